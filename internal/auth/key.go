package auth

import (
	"container/list"
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"math/big"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"time"
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

// maxAddresses is how many addresses are remembered: those that were seen last.
const maxAddresses = 10_000

// recent keeps the values of the keys that were used last.
type recent[K comparable, V any] struct {
	items map[K]*list.Element
	order list.List // of *pair, latest first
}

type pair[K comparable, V any] struct {
	key   K
	value V
}

// at is the value of a key, which counts as its use; nil if it has none and is not to be added.
func (r *recent[K, V]) at(key K, add bool) *V {
	if e := r.items[key]; e != nil {
		r.order.MoveToFront(e)
		return &e.Value.(*pair[K, V]).value
	}
	if !add {
		return nil
	}
	if r.items == nil {
		r.items = map[K]*list.Element{}
	}
	if len(r.items) >= maxAddresses {
		delete(r.items, r.order.Remove(r.order.Back()).(*pair[K, V]).key)
	}
	added := &pair[K, V]{key: key}
	r.items[key] = r.order.PushFront(added)
	return &added.value
}

// Limiter lets each address do something Burst times at once, and then once in Every.
type Limiter struct {
	Every time.Duration
	Burst int

	mu   sync.Mutex
	full recent[string, time.Time] // when the address has its whole burst again
}

// Wait is how long an address must wait before the next time; 0: not at all.
func (l *Limiter) Wait(address string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	full := l.full.at(Network(address), false)
	if full == nil {
		return 0
	}
	return max(0, full.Sub(now)-time.Duration(l.Burst-1)*l.Every)
}

// Take counts one time, unless the address must wait.
func (l *Limiter) Take(address string, now time.Time) (wait time.Duration) {
	if wait := l.Wait(address, now); wait > 0 {
		return wait
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	full := l.full.at(Network(address), true)
	if full.Before(now) {
		*full = now
	}
	*full = full.Add(l.Every)
	return 0
}

// Network is what an address counts as. Whoever has an IPv6 address has all of its /64.
func Network(address string) string {
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	if addr = addr.Unmap().WithZone(""); addr.Is4() {
		return addr.String()
	}
	prefix, _ := addr.Prefix(64) // which an IPv6 address has
	return prefix.String()
}

// Guesses limits how many wrong keys of an address are checked. It keeps out a right key as well,
// or the answer would tell which it is, unless the same one was right within the last hour.
type Guesses struct {
	wrong Limiter

	mu    sync.Mutex
	right recent[guess, time.Time] // when it was last right
}

type guess struct {
	network string
	token   [sha256.Size]byte
}

const (
	guessBurst = 10
	guessEvery = 5 * time.Second
	trustRight = time.Hour
)

// NewGuesses limits the guesses of each address: some at once, then one every few seconds.
func NewGuesses() *Guesses { return &Guesses{wrong: Limiter{Every: guessEvery, Burst: guessBurst}} }

// Wait is how long a token of an address is not checked; 0: it is.
func (g *Guesses) Wait(address, token string, now time.Time) time.Duration {
	wait := g.wrong.Wait(address, now)
	if wait == 0 {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if at := g.right.at(guess{Network(address), sha256.Sum256([]byte(token))}, false); at != nil && now.Sub(*at) < trustRight {
		return 0
	}
	return wait
}

// Wrong counts a wrong token, unless the address has had too many meanwhile: then it must wait.
func (g *Guesses) Wrong(address string, now time.Time) (wait time.Duration) {
	return g.wrong.Take(address, now)
}

// Right remembers that a token of an address was right.
func (g *Guesses) Right(address, token string, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	*g.right.at(guess{Network(address), sha256.Sum256([]byte(token))}, true) = now
}
