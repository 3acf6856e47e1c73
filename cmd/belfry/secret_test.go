package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

func TestSecrets(t *testing.T) {
	p := withServer(t)
	got := make(chan string, 10)
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.Header.Get("Authorization") + " " + r.URL.Query().Get("k") + " " + string(body)
	}))
	defer target.Close()
	if r := p.ok("secret", "list"); !strings.Contains(r.err, "No secrets.") {
		t.Errorf("no secrets: %+v", r)
	}
	p.stdin = strings.NewReader("canary-one\n")
	if r := p.ok("secret", "set", "one", "-"); strings.Contains(r.out+r.err, "canary") || !strings.Contains(r.err, "Saved one.") {
		t.Errorf("set: %+v", r)
	}
	p.stdin = nil
	p.ok("secret", "set", "two", "--from-file", p.file("value", "canary-two"), "--allowed-host", "127.0.0.1")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"set", "three", "canary"}, "is not an argument"},
		{[]string{"set", "three"}, "there is no terminal"},
		{[]string{"set", "three", "-"}, "the value is empty"},
		{[]string{"set", "three", "--from-file", filepath.Join(t.TempDir(), "none")}, "--from-file"},
		{[]string{"set", "three", "--from-file", p.file("binary", "\xff\xfe")}, "is not UTF-8"},
		{[]string{"set", "three", "--from-file", p.file("long", strings.Repeat("x", belfry.MaxSecret+1))}, "more than 65536 bytes"},
		{[]string{"set", "Three", "--from-file", p.file("value", "x")}, "name: must be lower-case letters"},
		{[]string{"set", "one", "--from-file", p.file("value", "x"), "--keep-previous", "soon"}, "--keep-previous"},
		{[]string{"delete", "none"}, `there is no secret named "none"`},
	} {
		if r := p.run(append([]string{"secret"}, tt.args...)...); r.code == 0 || !strings.Contains(r.err, tt.want) {
			t.Errorf("secret %q: %+v, want %q", tt.args, r, tt.want)
		}
	}
	create := []string{"job", "create", "calls", "--schedule", "@yearly", "--url", target.URL + `/?k={{secret "two"}}`, "--header", `Authorization: Bearer {{secret "one"}}`, "--body", `{"a": "{{secret two}}"}`}
	p.ok(create...)
	call := func(want string) {
		t.Helper()
		p.ok("job", "trigger", "calls", "--wait")
		if text := <-got; text != want {
			t.Errorf("the target got %q, want %q", text, want)
		}
	}
	call(`Bearer canary-one canary-two {"a":"canary-two"}`)
	if r := p.ok("secret", "rotate", "two", "--from-file", p.file("value", "canary-new"), "--keep-previous", "1d"); strings.Contains(r.out+r.err, "canary") {
		t.Errorf("rotate: %+v", r)
	}
	var list []belfry.Secret
	text := p.ok("secret", "list", "-o", "json").out
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list) != 2 || list[1].PreviousUntil == nil || len(list[1].AllowedHosts) != 1 || strings.Contains(text, "canary") {
		t.Errorf("the list is %s, %v", text, err)
	}
	if r := p.run("secret", "delete", "two"); r.code == 0 || !strings.Contains(r.err, `jobs use the secret "two": calls`) {
		t.Errorf("delete: %+v", r)
	}
	p.ok("secret", "delete", "one", "--force")
	if r := p.run(append(create[:2:2], append([]string{"again"}, create[3:]...)...)...); r.code == 0 || !strings.Contains(r.err, "refers to the secret one, which does not exist") {
		t.Errorf("a job with a secret that is gone: %+v", r)
	}
	if r := p.ok("secret", "reencrypt"); !strings.Contains(r.err, "Read ") {
		t.Errorf("reencrypt: %+v", r)
	}
}
