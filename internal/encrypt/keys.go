// Package encrypt encrypts small values with AES-256-GCM: data keys encrypt values, and the
// keys of a file encrypt data keys.
package encrypt

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const (
	keySize    = 32
	maxKeyFile = 64 << 10 // bytes
)

// Keys are the keys of a file. The first encrypts data keys, all decrypt them. It is safe for
// concurrent use.
type Keys struct {
	path string
	mu   sync.Mutex
	list []key
}

type key struct {
	id string // which says nothing about the key
	box
}

// LoadKeys reads a file with one key of 32 bytes in each line, as base64 or hexadecimal digits.
// Others must not be able to read it.
func LoadKeys(path string) (*Keys, error) {
	k := &Keys{path: path}
	return k, k.Reload()
}

// Reload reads the file again. After an error the keys are those from before.
func (k *Keys) Reload() error {
	info, err := os.Stat(k.path)
	if err == nil && info.Mode().Perm()&0o007 != 0 {
		return fmt.Errorf("%s can be used by everybody on this machine (mode %04o); make it 0600", k.path, info.Mode().Perm())
	}
	if err == nil && info.Size() > maxKeyFile {
		return fmt.Errorf("%s is larger than %d bytes", k.path, maxKeyFile)
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(k.path)
	}
	if err != nil {
		return err
	}
	list, err := parseKeys(text)
	if err != nil {
		return fmt.Errorf("%s: %w", k.path, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = list
	return nil
}

func parseKeys(text []byte) (list []key, err error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		raw, err := hex.DecodeString(line)
		if err != nil {
			raw, err = base64.RawStdEncoding.DecodeString(strings.TrimRight(line, "="))
		}
		if err != nil || len(raw) != keySize {
			return nil, fmt.Errorf("line %d is not a key of 32 bytes, as base64 or hexadecimal digits; make one with: openssl rand -base64 32", n)
		}
		if weak(raw) {
			return nil, fmt.Errorf("line %d is not random; make a key with: openssl rand -base64 32", n)
		}
		sum := sha256.Sum256(append([]byte("belfry key id\x00"), raw...))
		list = append(list, key{hex.EncodeToString(sum[:6]), newBox(raw)})
	}
	if list == nil && lines.Err() == nil {
		return nil, errors.New("there is no key in it; make one with: openssl rand -base64 32")
	}
	return list, lines.Err()
}

// weak reports whether a key has so few different bytes that it was not made at random.
func weak(raw []byte) bool {
	seen := map[byte]bool{}
	for _, b := range raw {
		seen[b] = true
	}
	return len(seen) < keySize/2
}

// CreateKeys makes a file with a new key. A file that is there is left as it is, and is
// fs.ErrExist.
func CreateKeys(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, base64.StdEncoding.EncodeToString(random(keySize)))
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = syncDirectory(filepath.Dir(path))
	}
	if err != nil {
		err = errors.Join(err, os.Remove(path)) // half a key is of no use
	}
	return err
}

// syncDirectory makes the entry of a new file last.
func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil && !errors.Is(err, fs.ErrInvalid) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

// Current is the id of the key that encrypts.
func (k *Keys) Current() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.list[0].id
}

// Wrap encrypts a data key with the first key, or with the first one of those that are used already,
// and returns the id of that. The file is read again if it did not have one of them before.
func (k *Keys) Wrap(data, about []byte, used ...string) (id string, wrapped []byte) {
	for _, id := range used {
		if _, known := k.find(id); !known {
			_ = k.Reload() // After an error the keys are those from before.
			break
		}
	}
	k.mu.Lock()
	first := k.list[max(slices.IndexFunc(k.list, func(key key) bool { return slices.Contains(used, key.id) }), 0)]
	k.mu.Unlock()
	return first.id, first.seal(data, append([]byte(first.id), about...))
}

// UnknownKeyError is the error of a key that the file does not have.
type UnknownKeyError struct{ ID, Path string }

func (e *UnknownKeyError) Error() string {
	return fmt.Sprintf("the database has data that is encrypted with the key %s, which is not in %s; add the line of that key", e.ID, e.Path)
}

// Unwrap decrypts a data key. The file is read again if it did not have the key before.
func (k *Keys) Unwrap(id string, wrapped, about []byte) ([]byte, error) {
	found, ok := k.find(id)
	if !ok && k.Reload() == nil {
		found, ok = k.find(id)
	}
	if !ok {
		return nil, &UnknownKeyError{id, k.path}
	}
	return found.open(wrapped, append([]byte(id), about...))
}

func (k *Keys) find(id string) (key, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range k.list {
		if key.id == id {
			return key, true
		}
	}
	return key{}, false
}

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
