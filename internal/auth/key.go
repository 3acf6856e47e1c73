package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"math/big"
	"regexp"
	"strings"
)

// KeyPrefix begins every API key of the database, so that a scanner for secrets finds it.
const KeyPrefix = "bf_"

// KeyPattern matches an API key of the database in any text.
var KeyPattern = regexp.MustCompile(`bf_[a-z0-9]{8}_[0-9A-Za-z]{49}`)

const (
	base62       = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	keyLetters   = "0123456789abcdefghijkmnpqrstuvwxyz" // of ids: without those that look like digits
	idLength     = 8
	secretLength = 43 // 256 bits
	sumLength    = 6  // 32 bits
)

// NewKeyID returns a random id of a key.
func NewKeyID() string {
	random := make([]byte, idLength)
	rand.Read(random)
	for i, b := range random {
		random[i] = keyLetters[int(b)%len(keyLetters)]
	}
	return string(random)
}

// NewKey returns a new API key with an id, as bf_<id>_<secret><checksum>, and the hash of its secret,
// which is all that is stored.
func NewKey(id string) (text string, hash [sha256.Size]byte) {
	random := make([]byte, 32)
	rand.Read(random)
	secret := encode62(new(big.Int).SetBytes(random), secretLength)
	text = KeyPrefix + id + "_" + secret
	return text + checksum(text), sha256.Sum256([]byte(secret))
}

// ParseKey takes an API key apart. A key whose checksum is wrong was mistyped: nobody needs to look
// for it.
func ParseKey(text string) (id string, hash [sha256.Size]byte, ok bool) {
	if len(text) != len(KeyPrefix)+idLength+1+secretLength+sumLength || KeyPattern.FindString(text) != text {
		return "", hash, false
	}
	body, sum := text[:len(text)-sumLength], text[len(text)-sumLength:]
	id, secret, _ := strings.Cut(body[len(KeyPrefix):], "_")
	return id, sha256.Sum256([]byte(secret)), sum == checksum(body)
}

func checksum(text string) string {
	return encode62(big.NewInt(int64(crc32.ChecksumIEEE([]byte(text)))), sumLength)
}

// encode62 writes a number with so many digits.
func encode62(n *big.Int, digits int) string {
	out, base, digit := make([]byte, digits), big.NewInt(int64(len(base62))), new(big.Int)
	for i := digits - 1; i >= 0; i-- {
		n.DivMod(n, base, digit)
		out[i] = base62[digit.Int64()]
	}
	return string(out)
}
