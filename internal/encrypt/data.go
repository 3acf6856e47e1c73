package encrypt

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
)

// Prefix begins every encrypted text. The version of the data key and the rest follow.
const Prefix = "enc:v1:"

// ErrAltered is the error of what cannot be decrypted: it was changed, or belongs elsewhere.
var ErrAltered = errors.New("the encrypted value was changed, or belongs to something else")

// DataKey encrypts values of a namespace. It is safe for concurrent use.
type DataKey struct {
	Version int
	box
}

// NewDataKey makes key material for a data key.
func NewDataKey() []byte { return random(keySize) }

// OpenDataKey is the data key of key material.
func OpenDataKey(version int, raw []byte) *DataKey { return &DataKey{version, newBox(raw)} }

// Seal encrypts a value as text of the characters of URLs and colons. About says what it is; it
// can be decrypted for the same only.
func (d *DataKey) Seal(value []byte, about ...string) string {
	version := strconv.Itoa(d.Version)
	return Prefix + version + ":" + base64.RawURLEncoding.EncodeToString(d.seal(value, About(append(about, version)...)))
}

// Version is the version of the data key of an encrypted text; ok is false if it is none.
func Version(text string) (version int, ok bool) {
	rest, ok := strings.CutPrefix(text, Prefix)
	number, _, found := strings.Cut(rest, ":")
	version, err := strconv.Atoi(number)
	return version, ok && found && err == nil
}

// Open decrypts what Seal has encrypted.
func (d *DataKey) Open(text string, about ...string) ([]byte, error) {
	version := strconv.Itoa(d.Version)
	encoded, ok := strings.CutPrefix(text, Prefix+version+":")
	raw, err := base64.RawURLEncoding.DecodeString(encoded)
	if !ok || err != nil {
		return nil, ErrAltered
	}
	return d.open(raw, About(append(about, version)...))
}

// About joins what an encrypted value is about, so that no two lists are the same.
func About(parts ...string) (out []byte) {
	for _, part := range parts {
		out = append(binary.AppendUvarint(out, uint64(len(part))), part...)
	}
	return out
}

// box encrypts with random nonces, which precede what is encrypted.
type box struct{ cipher.AEAD }

func newBox(raw []byte) box {
	block, err := aes.NewCipher(raw)
	if err != nil {
		panic(err) // the key has the wrong size
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return box{aead}
}

func (b box) seal(value, about []byte) []byte { return b.Seal(nil, nil, value, about) }

func (b box) open(sealed, about []byte) ([]byte, error) {
	value, err := b.Open(nil, nil, sealed, about)
	if err != nil {
		return nil, ErrAltered
	}
	return value, nil
}

func random(n int) []byte {
	raw := make([]byte, n)
	rand.Read(raw) // which never fails
	return raw
}
