package api

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
)

// Keys are the API keys of a file, of which only hashes are kept. While Watch runs, they
// follow the file. While the file cannot be used, no key is accepted.
type Keys struct {
	path  string
	state atomic.Pointer[keyState]
}

// keyState is what the file had when it was last read.
type keyState struct {
	list []key
	err  error // why the file cannot be used; then there is no key
}

type key struct {
	name string
	sum  [sha256.Size]byte
}

const (
	minKey     = 32       // characters of a key
	maxKeyFile = 64 << 10 // bytes of a file of keys
	rereadKeys = time.Second
)

var (
	keyNames = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	keyTexts = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`) // what a Bearer header can carry
)

// LoadKeys reads a file with one key a line, alone or as name:key. Blank lines and
// those that start with # are left out. It refuses a file that everybody may read or
// that others than its owner may write, one without keys, and keys of less than 32
// characters.
func LoadKeys(path string) (*Keys, error) {
	list, err := readKeys(path)
	if err != nil {
		return nil, err
	}
	k := &Keys{path: path}
	k.state.Store(&keyState{list: list})
	return k, nil
}

// Watch reads the file every second until ctx ends. A key that was added or taken away
// counts at once. A file that cannot be used counts when it is seen for the second time,
// since a file that is being replaced may be missing or incomplete for a moment.
func (k *Keys) Watch(ctx context.Context, log *slog.Logger) {
	for failed := false; ; {
		list, err := readKeys(k.path)
		if err == nil || failed {
			k.set(keyState{list, err}, log)
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return
		case <-time.After(rereadKeys):
		}
	}
}

// set replaces the keys, and logs when the file becomes unusable, for another reason than
// before, and when it can be used again.
func (k *Keys) set(now keyState, log *slog.Logger) {
	before := k.state.Swap(&now)
	switch {
	case now.err != nil && (before.err == nil || before.err.Error() != now.err.Error()):
		log.Error(unusableKeys, "error", now.err)
	case now.err == nil && before.err != nil:
		log.Info("the API key file can be used again")
	}
}

const unusableKeys = "the API key file of this server cannot be used, so no API key is accepted"

// Err says that no key is accepted because of the file. The cause, which names the file,
// is not part of its message.
func (k *Keys) Err() error {
	if err := k.state.Load().err; err != nil {
		return belfry.Errorf(belfry.Unavailable, unusableKeys+": %w", err)
	}
	return nil
}

func readKeys(path string) ([]key, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read API keys: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("read API keys: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read API keys: %s is not a regular file", path)
	}
	if mode := info.Mode().Perm(); mode&0o026 != 0 {
		return nil, fmt.Errorf("read API keys: %s has mode %04o: everybody may read it, or others than its owner may write it; use chmod 600, or 640 for a group", path, mode)
	}
	if info.Size() > maxKeyFile {
		return nil, fmt.Errorf("read API keys: %s has %d bytes, the most is %d", path, info.Size(), maxKeyFile)
	}
	list, err := parseKeys(io.LimitReader(file, maxKeyFile))
	if err != nil {
		return nil, fmt.Errorf("read API keys: %s: %w", path, err)
	}
	return list, nil
}

// parseKeys never repeats a key in an error.
func parseKeys(r io.Reader) ([]key, error) {
	var list []key
	names := make(map[string]bool)
	sums := make(map[[sha256.Size]byte]bool)
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, text, named := strings.Cut(line, ":")
		if !named {
			name, text = fmt.Sprintf("line-%d", n), line
		}
		name, text = strings.TrimSpace(name), strings.TrimSpace(text)
		sum := sha256.Sum256([]byte(text))
		switch {
		case !keyNames.MatchString(name):
			return nil, fmt.Errorf("line %d: a key's name has 1 to 64 letters, digits, dots, underscores and hyphens", n)
		case len(text) < minKey:
			return nil, fmt.Errorf("line %d: the key has %d characters, the least is %d", n, len(text), minKey)
		case !keyTexts.MatchString(text):
			return nil, fmt.Errorf("line %d: a key has letters, digits and any of -._~+/ only, and may end in =", n)
		case names[name]:
			return nil, fmt.Errorf("line %d: there is a key named %s already", n, name)
		case sums[sum]:
			return nil, fmt.Errorf("line %d: the key is there already", n)
		}
		names[name], sums[sum] = true, true
		list = append(list, key{name, sum})
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.New("there is no key in it")
	}
	return list, nil
}

// find gives the name of a key. It takes as long for one that is there as for one
// that is not.
func (k *Keys) find(text string) (name string, ok bool) {
	sum := sha256.Sum256([]byte(text))
	for _, known := range k.state.Load().list {
		if subtle.ConstantTimeCompare(sum[:], known.sum[:]) == 1 {
			name, ok = known.name, true
		}
	}
	return name, ok
}

// Find returns the hash of a key, if it is one of them.
func (k *Keys) Find(text string) (hash [sha256.Size]byte, ok bool) {
	_, ok = k.find(text)
	return sha256.Sum256([]byte(text)), ok
}

// Name is the name of the key with this hash, if there still is one.
func (k *Keys) Name(hash [sha256.Size]byte) (name string, ok bool) {
	for _, known := range k.state.Load().list {
		if known.sum == hash {
			return known.name, true
		}
	}
	return "", false
}

// check finds the key in an Authorization header and says whose it is. A key of the file may do
// everything.
func (k *Keys) check(headers []string) (*auth.Principal, error) {
	if k.Err() != nil {
		return nil, noKey(`Bearer realm="belfry"`, unusableKeys+"; its log says why")
	}
	if len(headers) == 0 {
		return nil, noKey(`Bearer realm="belfry"`, "an API key is required: send the header Authorization: Bearer <key>")
	}
	scheme, text, _ := strings.Cut(headers[0], " ")
	if len(headers) == 1 && strings.EqualFold(scheme, "Bearer") {
		if name, ok := k.find(strings.TrimSpace(text)); ok {
			return &auth.Principal{Actor: belfry.Actor{Kind: belfry.ActorKey, ID: name, Name: name}, Role: belfry.RoleAdmin, Commands: true}, nil
		}
	}
	return nil, noKey(`Bearer realm="belfry", error="invalid_token"`, "the Authorization header does not hold a valid API key")
}

func noKey(challenge, detail string) *httpError {
	return &httpError{code: belfry.Unauthorized, detail: detail, header: map[string]string{"WWW-Authenticate": challenge}}
}

// limiter bounds the requests a second of each API key. It never has more entries
// than there were names of keys.
type limiter struct {
	every rate.Limit
	burst int
	keys  sync.Map // name of a key to *rate.Limiter
}

// newLimiter allows so many requests a second, and twice as many at once; nil for
// no limit.
func newLimiter(perSecond float64) *limiter {
	if perSecond <= 0 || math.IsNaN(perSecond) || math.IsInf(perSecond, 1) {
		return nil
	}
	return &limiter{
		every: rate.Limit(perSecond),
		burst: max(1, int(min(2*perSecond, math.MaxInt32))),
	}
}

// allow counts a request, or says when to try again.
func (l *limiter) allow(key string, now time.Time) error {
	if l == nil {
		return nil
	}
	known, ok := l.keys.Load(key)
	if !ok {
		known, _ = l.keys.LoadOrStore(key, rate.NewLimiter(l.every, l.burst))
	}
	r := known.(*rate.Limiter).ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait <= 0 {
		return nil
	}
	r.CancelAt(now)
	seconds := max(1, int64(math.Ceil(wait.Seconds())))
	return &httpError{code: belfry.RateLimited, detail: "too many requests with this API key; try again later", header: map[string]string{"Retry-After": strconv.FormatInt(seconds, 10)}}
}
