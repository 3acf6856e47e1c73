package api

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const (
	aliceKey = "alice-0123456789-0123456789-0123456789"
	bobKey   = "bob-0123456789-0123456789-0123456789=="
)

var discardLog = slog.New(slog.DiscardHandler)

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
		{"one that the group may read", aliceKey, 0o640, "mode 0640"},
		{"one that the world may read", aliceKey, 0o604, "mode 0604"},
		{"one that others may write", aliceKey, 0o602, "mode 0602"},
		{"a short key", "# a comment\nalice:secret-but-short", 0o600, "line 2: the key has 16 characters"},
		{"a key with a blank", aliceKey + " x", 0o600, "line 1"},
		{"a name with a blank", "al ice:" + aliceKey, 0o600, "name"},
		{"a name without a key", "alice:", 0o600, "0 characters"},
		{"a name twice", "a:" + aliceKey + "\na:" + bobKey, 0o600, "line 2"},
		{"a key twice", "a:" + aliceKey + "\nb:" + aliceKey, 0o600, "line 2"},
		{"a huge one", strings.Repeat("#\n", maxKeyFile), 0o600, "the most is"},
	} {
		_, err := LoadKeys(keyFile(t, tt.text, tt.mode))
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.says)
		} else if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "0123456789") {
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
		name, err := keys.check([]string{tt.header}, discardLog)
		if name != tt.name || (err == nil) != tt.ok {
			t.Errorf("%s: got %q, error %v", tt.header, name, err)
		}
	}
	if _, err := keys.check([]string{"Bearer " + aliceKey, "Bearer " + bobKey}, discardLog); err == nil {
		t.Error("two headers were accepted")
	}
}

func TestKeysAreReloadedWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := keyFile(t, aliceKey, 0o600)
		keys, err := LoadKeys(path)
		if err != nil {
			t.Fatal(err)
		}
		var lines strings.Builder
		log := slog.New(slog.NewTextHandler(&lines, nil))
		has := func(key string, want bool) {
			t.Helper()
			if _, ok := keys.find(key, log); ok != want {
				t.Errorf("the key is accepted: %v", ok)
			}
		}
		if err := os.WriteFile(path, []byte(bobKey), 0o600); err != nil {
			t.Fatal(err)
		}
		has(aliceKey, true)
		time.Sleep(time.Second)
		has(aliceKey, false)
		has(bobKey, true)

		os.Chmod(path, 0o644)
		for range 3 {
			time.Sleep(time.Second)
			has(bobKey, true)
		}
		if n := strings.Count(lines.String(), "mode 0644"); n != 1 {
			t.Errorf("it was logged %d times:\n%s", n, &lines)
		}
		os.Chmod(path, 0o600)
		os.WriteFile(path, []byte(aliceKey), 0o600)
		time.Sleep(time.Second)
		has(bobKey, false)
		has(aliceKey, true)
	})
}
