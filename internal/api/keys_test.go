package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
)

const (
	aliceKey = "alice-4Kq27ZtR4mWx8LbVn3JcYd6HsPeuTA9f"
	bobKey   = "bob-e7Qz1NwXr5TkM2vGhB9yLdS4aFjU6cPo=="
)

// check finds whose key is in Authorization headers.
func check(keys *Keys, headers ...string) (*auth.Principal, error) {
	r := httptest.NewRequest("GET", "/", nil)
	r.Header["Authorization"] = headers
	return NewAccess(keys, nil, slog.New(slog.DiscardHandler)).check(r)
}

func keyFile(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadKeysErrors(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		mode       os.FileMode
		says       string
	}{
		{"an empty one", "", 0o600, "no key"},
		{"one of comments", "# none\n\n", 0o600, "no key"},
		{"one that everybody may read", aliceKey, 0o604, "mode 0604"},
		{"one that everybody may write", aliceKey, 0o602, "mode 0602"},
		{"one that the group may write", aliceKey, 0o660, "mode 0660"},
		{"a short key", "# a comment\nalice:secret-but-short", 0o600, "line 2: the key has 16 characters"},
		{"a key with a blank", aliceKey + " x", 0o600, "line 1: what follows"},
		{"a name with a blank", "al ice:" + aliceKey, 0o600, "name"},
		{"a name without a key", "alice:", 0o600, "line 1: a key has letters"},
		{"a name twice", "a:" + aliceKey + "\na:" + bobKey, 0o600, "line 2"},
		{"a key twice", "a:" + aliceKey + "\nb:" + aliceKey, 0o600, "line 2"},
		{"a huge one", strings.Repeat("#\n", maxKeyFile), 0o600, "the most is"},
	} {
		_, err := LoadKeys(keyFile(t, tt.text, tt.mode))
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.says)
		} else if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), aliceKey[6:]) {
			t.Errorf("%s: the error repeats the key: %v", tt.name, err)
		}
	}
	if _, err := LoadKeys(t.TempDir()); err == nil {
		t.Error("a folder was read")
	}
	if _, err := LoadKeys(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there was read")
	}
}

func TestKeysCheck(t *testing.T) {
	keys, err := LoadKeys(keyFile(t, "# people\nalice: "+aliceKey+"\n\n  "+bobKey+"\n", 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		header, name string
		ok           bool
	}{
		{"Bearer " + aliceKey, "alice", true},
		{"bearer " + aliceKey, "alice", true},
		{"Bearer " + bobKey, "line-4", true},
		{"Bearer " + aliceKey[:37], "", false},
		{"Bearer " + aliceKey + "0", "", false},
		{"Bearer alice:" + aliceKey, "", false},
		{"Basic " + aliceKey, "", false},
		{"Bearer", "", false},
		{"Bearer ", "", false},
		{aliceKey, "", false},
	} {
		name := ""
		p, err := check(keys, tt.header)
		if p != nil {
			name = p.Name
		}
		if name != tt.name || (err == nil) != tt.ok {
			t.Errorf("%s: got %q, error %v", tt.header, name, err)
		}
	}
	if _, err := check(keys, "Bearer "+aliceKey, "Bearer "+bobKey); err == nil {
		t.Error("two headers were accepted")
	}
}

// Secrets of Kubernetes are files of root that the group of the pod may read.
func TestKeyFileOfAGroup(t *testing.T) {
	for _, mode := range []os.FileMode{0o400, 0o440, 0o600, 0o640} {
		if _, err := LoadKeys(keyFile(t, aliceKey, mode)); err != nil {
			t.Errorf("mode %04o: %v", mode, err)
		}
	}
}

// lockedText is a log that is read while it is written.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// watchedKeys are the keys of a file that is watched until the test ends. wait lets the
// file be read n times more.
func watchedKeys(t *testing.T, path string) (keys *Keys, wait func(n int), log *lockedText) {
	t.Helper()
	keys, err := LoadKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	log = &lockedText{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		keys.Watch(ctx, slog.New(slog.NewTextHandler(log, nil)))
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	wait = func(n int) {
		time.Sleep(time.Duration(n) * rereadKeys)
		synctest.Wait()
	}
	wait(0)
	return keys, wait, log
}

func TestKeysFollowTheirFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := keyFile(t, aliceKey+"\n"+bobKey, 0o600)
		keys, wait, _ := watchedKeys(t, path)
		has := func(key string, want bool) {
			t.Helper()
			if _, err := check(keys, "Bearer "+key); (err == nil) != want {
				t.Errorf("%.5s: the key is accepted: %v", key, err == nil)
			}
		}
		has(aliceKey, true)
		has(bobKey, true)
		os.WriteFile(path, []byte(bobKey), 0o600)
		wait(1)
		has(aliceKey, false)
		has(bobKey, true)

		// An editor or Kubernetes renames: for a moment there is no file, or another one.
		os.Rename(path, path+"~")
		wait(1)
		has(bobKey, true)
		os.WriteFile(path, []byte(aliceKey), 0o600)
		wait(1)
		has(aliceKey, true)
		has(bobKey, false)
	})
}

func TestUnusableKeyFileAcceptsNoKey(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(path string) error
		says  string
	}{
		{"it is emptied", func(path string) error { return os.Truncate(path, 0) }, "no key in it"},
		{"it is deleted", os.Remove, "no such file"},
		{"it is malformed", func(path string) error { return os.WriteFile(path, []byte(aliceKey+"\nsecret"), 0o600) }, "line 2"},
		{"everybody may read it", func(path string) error { return os.Chmod(path, 0o644) }, "mode 0644"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := keyFile(t, aliceKey, 0o600)
				keys, wait, log := watchedKeys(t, path)
				if err := tt.spoil(path); err != nil {
					t.Fatal(err)
				}
				wait(1)
				if _, err := check(keys, "Bearer "+aliceKey); err != nil {
					t.Errorf("after one look: %v", err)
				}
				wait(1)
				for _, headers := range [][]string{{"Bearer " + aliceKey}, {"Bearer secret"}, {"Bearer "}, nil} {
					_, err := check(keys, headers...)
					e, ok := errors.AsType[*httpError](err)
					if !ok || e.status() != http.StatusUnauthorized || !strings.Contains(e.detail, "key file of this server cannot be used") || strings.Contains(e.detail, path) {
						t.Errorf("%q: got %v", headers, err)
					}
				}
				e, ok := errors.AsType[*belfry.Error](keys.Err())
				if !ok || e.Code != belfry.Unavailable || !strings.Contains(e.Message, "key file of this server cannot be used") || strings.Contains(e.Message, path) {
					t.Errorf("it is not ready because of: %v", keys.Err())
				}
				wait(5)
				if text := log.String(); strings.Count(text, "level=ERROR") != 1 || !strings.Contains(text, tt.says) || strings.Contains(text, "secret") {
					t.Errorf("the log is\n%s", text)
				}

				os.Remove(path)
				wait(1)
				os.WriteFile(path, []byte(bobKey), 0o600)
				wait(1)
				if _, err := check(keys, "Bearer "+bobKey); err != nil || keys.Err() != nil {
					t.Errorf("it is usable again: %v, %v", err, keys.Err())
				}
				if _, err := check(keys, "Bearer "+aliceKey); err == nil {
					t.Error("the old key is accepted")
				}
				if !strings.Contains(log.String(), "can be used again") {
					t.Errorf("the log is\n%s", log)
				}
			})
		})
	}
}
