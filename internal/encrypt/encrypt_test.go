package encrypt

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKeyFiles(t *testing.T) {
	good := random(keySize)
	for name, tt := range map[string]struct {
		text string
		mode fs.FileMode
		want string
	}{
		"base64":           {base64.StdEncoding.EncodeToString(good), 0o600, ""},
		"digits":           {"# a comment\n\n" + hex.EncodeToString(good) + "\r\n", 0o400, ""},
		"a group":          {base64.RawStdEncoding.EncodeToString(good) + "\n", 0o640, ""},
		"for everybody":    {base64.StdEncoding.EncodeToString(good), 0o644, "can be used by everybody"},
		"empty":            {"# nothing\n", 0o600, "there is no key in it"},
		"short":            {base64.StdEncoding.EncodeToString(good[:16]), 0o600, "line 1 is not a key of 32 bytes"},
		"a second line":    {base64.StdEncoding.EncodeToString(good) + "\nnonsense\n", 0o600, "line 2 is not a key"},
		"not random":       {strings.Repeat("00", 32), 0o600, "line 1 is not random"},
		"of a letter":      {base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("abcd"), 8)), 0o600, "line 1 is not random"},
		"an endless file":  {strings.Repeat("#\n", maxKeyFile), 0o600, "is larger than"},
		"an endless line ": {strings.Repeat("a", maxKeyFile-1), 0o600, ""},
	} {
		path := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(path, []byte(tt.text), tt.mode); err != nil {
			t.Fatal(err)
		}
		_, err := LoadKeys(path)
		if name == "an endless line " {
			if err == nil {
				t.Error("an endless line is a key")
			}
			continue
		}
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", name, err, tt.want)
		}
		if err != nil && len(tt.text) > 20 && tt.mode == 0o644 && strings.Contains(err.Error(), tt.text[:20]) {
			t.Errorf("%s: the error has the key: %v", name, err)
		}
	}
}

func TestKeysAreMadeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if err := CreateKeys(path); err != nil {
		t.Fatal(err)
	}
	first, _ := os.ReadFile(path)
	if err := CreateKeys(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second time: %v", err)
	}
	second, _ := os.ReadFile(path)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || !bytes.Equal(first, second) || len(first) != 45 {
		t.Errorf("the file is %v with %d bytes, %v", info.Mode(), len(first), err)
	}
}

func TestSealedValuesOpenForTheSameOnly(t *testing.T) {
	one, other := OpenDataKey(1, random(keySize)), OpenDataKey(1, random(keySize))
	text := one.Seal([]byte("value"), "ns", "secret", "name")
	if again := one.Seal([]byte("value"), "ns", "secret", "name"); again == text {
		t.Error("the same value is encrypted to the same text")
	}
	if value, err := one.Open(text, "ns", "secret", "name"); err != nil || string(value) != "value" {
		t.Errorf("got %q, %v", value, err)
	}
	for _, about := range [][]string{{"ns", "secret", "other"}, {"n", "ssecret", "name"}, {"ns", "secretname"}, {"ns", "secret", "name", ""}, nil} {
		if _, err := one.Open(text, about...); !errors.Is(err, ErrAltered) {
			t.Errorf("%q: %v", about, err)
		}
	}
	if _, err := other.Open(text, "ns", "secret", "name"); !errors.Is(err, ErrAltered) {
		t.Errorf("another key: %v", err)
	}
	if _, err := (&DataKey{2, one.box}).Open(strings.Replace(text, "v1:1:", "v1:2:", 1), "ns", "secret", "name"); !errors.Is(err, ErrAltered) {
		t.Errorf("another version: %v", err)
	}
	for i := range text {
		changed := []byte(text)
		if changed[i] ^= 1; i == len(text)-1 {
			changed[i] = '!' // the last character has bits that mean nothing
		}
		if _, err := one.Open(string(changed), "ns", "secret", "name"); err == nil {
			t.Errorf("it opens with the byte %d changed", i)
		}
	}
}
