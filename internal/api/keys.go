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
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/validate"
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
	auth.Principal
	sum   [sha256.Size]byte
	ended chan struct{}
}

const (
	maxKeyFile = 64 << 10 // bytes of a file of keys
	rereadKeys = time.Second
)

var (
	keyNames = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	keyTexts = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`) // what a Bearer header can carry
)

// LoadKeys reads a file with one key a line, alone or as name:key, and after it what the key may
// do; without that it may do everything. Blank lines and those that start with # are left out. It
// refuses a file that everybody may read or that others than its owner may write, one without
// keys, and keys that could be guessed.
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
	before := k.state.Load()
	for i := range before.list {
		old := &before.list[i]
		same := slices.IndexFunc(now.list, func(k key) bool { return k.sum == old.sum && reflect.DeepEqual(k.Principal, old.Principal) })
		if same < 0 {
			defer close(old.ended)
		} else {
			now.list[same].ended = old.ended
		}
	}
	k.state.Store(&now)
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
		name, rest, named := strings.Cut(line, ":")
		if !named {
			name, rest = fmt.Sprintf("line-%d", n), line
		}
		text, attributes, _ := strings.Cut(strings.TrimSpace(rest), " ")
		k := key{sum: sha256.Sum256([]byte(text)), ended: make(chan struct{})}
		rights, err := parseRights(strings.Fields(attributes))
		name = strings.TrimSpace(name)
		switch {
		case !keyNames.MatchString(name):
			err = errors.New("a key's name has 1 to 64 letters, digits, dots, underscores and hyphens")
		case err != nil:
		case !keyTexts.MatchString(text):
			err = errors.New("a key has letters, digits and any of -._~+/ only, and may end in =")
		case names[name]:
			err = fmt.Errorf("there is a key named %s already", name)
		case sums[k.sum]:
			err = errors.New("the key is there already")
		default:
			err = checkStrength(text)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		names[name], sums[k.sum] = true, true
		k.Principal = rights
		k.Actor = belfry.Actor{Kind: belfry.ActorKey, ID: name, Name: name}
		list = append(list, k)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.New("there is no key in it")
	}
	return list, nil
}

// parseRights reads what follows a key. It never repeats a word in an error, which may be a key.
func parseRights(words []string) (p auth.Principal, err error) {
	p.Role = belfry.RoleAdmin
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		list := strings.Split(value, ",")
		switch {
		case word == "commands":
			p.Commands = true
		case name == "role" && auth.IsRole(belfry.Role(value)):
			p.Role = belfry.Role(value)
		case name == "role":
			err = errors.New("the role is none of reader, operator, author, admin and worker")
		case name == "namespace" && !slices.ContainsFunc(list, func(n string) bool { return !validate.Namespace(n) }):
			p.Namespaces = append(p.Namespaces, list...)
		case name == "namespace":
			err = errors.New("a namespace has 1 to 63 lower-case letters, digits and hyphens; separate several by commas")
		case name == "queue" && !slices.ContainsFunc(list, func(q string) bool { return validate.Queue(q) != "" }):
			p.Queues = append(p.Queues, list...)
		case name == "queue":
			err = errors.New("a queue is not the name of one; separate several by commas")
		default:
			err = errors.New("what follows the key must be any of role=, namespace=, queue= and commands")
		}
		if err != nil {
			return p, err
		}
	}
	if p.Queues != nil && p.Role != belfry.RoleWorker {
		return p, errors.New("queue= is for the role worker")
	}
	p.Commands = p.Commands || p.Role == belfry.RoleAdmin && p.SeesAll()
	return p, nil
}

// Authenticate finds the holder of a key. It takes as long for one that is there as for one that
// is not.
func (k *Keys) Authenticate(_ context.Context, token string) (*auth.Principal, error) {
	return k.Holder(sha256.Sum256([]byte(token)))
}

// Holder is who has the key with a hash.
func (k *Keys) Holder(hash [sha256.Size]byte) (*auth.Principal, error) {
	var found *key
	list := k.state.Load().list
	for i := range list {
		if subtle.ConstantTimeCompare(hash[:], list[i].sum[:]) == 1 {
			found = &list[i]
		}
	}
	if found == nil {
		return nil, auth.ErrUnknown
	}
	p := found.Principal
	p.Ended = found.ended
	return &p, nil
}

const (
	minKey     = 32  // characters of a key
	minEntropy = 112 // bits of a key, as estimated: 128 random ones may have a pattern by chance
	pattern    = 4   // characters in a row that follow a pattern
)

// checkStrength refuses a key of the file that could be guessed. It does not repeat the key.
func checkStrength(key string) error {
	if len(key) < minKey {
		return fmt.Errorf("the key has %d characters, the least is %d; make one with: openssl rand -hex 32", len(key), minKey)
	}
	if bits := entropy(key); bits < minEntropy {
		return fmt.Errorf("the key could be guessed: it repeats itself or follows a pattern, and has about %.0f bits instead of 128; make one with: openssl rand -hex 32", bits)
	}
	return nil
}

// entropy estimates the bits of a key, the most that it may have: as many as its alphabet allows
// for each character, and none for those that repeat what was before or continue a row such as
// 1234 or aaaa.
func entropy(key string) float64 {
	distinct := map[byte]bool{}
	hex, alphabet := true, 0
	for i := range len(key) {
		distinct[key[i]] = true
		hex = hex && !strings.ContainsRune("ghijklmnopqrstuvwxyzGHIJKLMNOPQRSTUVWXYZ", rune(key[i]))
	}
	for _, class := range []string{"0123456789", "abcdef", "ABCDEF"} {
		if strings.ContainsAny(key, class) {
			alphabet += len(class)
		}
	}
	if !hex {
		alphabet = 64
	}
	each := math.Log2(float64(min(alphabet, 2*len(distinct))))
	bits := 0.0
	for i := range len(key) {
		from := i + 1 - pattern
		repeated := from > 0 && strings.Contains(key[:i], key[from:i+1])
		if !repeated && !isRow(key[max(0, from):i+1]) {
			bits += each
		}
	}
	return bits
}

// isRow reports whether every character is as far from the one before, and next to it at most.
func isRow(text string) bool {
	if len(text) < pattern {
		return false
	}
	step := int(text[1]) - int(text[0])
	for i := 1; i < len(text); i++ {
		if int(text[i])-int(text[i-1]) != step {
			return false
		}
	}
	return step >= -1 && step <= 1
}
