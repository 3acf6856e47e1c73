package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/target"
	"github.com/belfry-sh/belfry/internal/webhook"
)

// signedCallback is a request as its receiver got it.
type signedCallback struct {
	raw    []byte // with headers
	header http.Header
	body   []byte
}

// callback makes the handler of HTTP jobs send a request that is signed with the keys.
func callback(t *testing.T, keys ...string) (got signedCallback) {
	t.Helper()
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got.raw, _ = httputil.DumpRequest(r, true)
		got.header = r.Header
		_, got.body, _ = bytes.Cut(got.raw, []byte("\r\n\r\n"))
	}))
	defer receiver.Close()
	h := target.NewHTTP(target.HTTPOptions{
		Guard: target.NewGuard(false, []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}),
		SigningKeys: func(context.Context, string, string) (out [][]byte, err error) {
			for _, text := range keys {
				key, err := webhook.ParseKey(text)
				if err != nil {
					return nil, err
				}
				out = append(out, key)
			}
			return out, nil
		},
	})
	defer h.Close()
	run := &belfry.Run{ID: belfry.NewID(time.Now()), JobID: belfry.NewID(time.Now()), Attempt: 1,
		Payload: belfry.MustJSON(belfry.HTTPPayload{URL: receiver.URL, Body: json.RawMessage(`{"text":"Zoë. 10 €",  "n": 1.50}`)})}
	if err := h.Handle(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestVerifyWebhook(t *testing.T) {
	older, newer := webhook.NewKey(), webhook.NewKey()
	got := callback(t, newer, older)
	p := &testCLI{t: t}
	both, old := p.file("both.key", webhook.NewKey()+"\n"+older+"\r\n\n"), p.file("old.key", older)
	verify := func(in string, args ...string) result {
		p.stdin = strings.NewReader(in)
		return p.run(append([]string{"verify-webhook"}, args...)...)
	}
	header := []string{"--id", got.header.Get("Webhook-Id"), "--timestamp", got.header.Get("Webhook-Timestamp"), "--signature", got.header.Get("Webhook-Signature")}
	raw, body := string(got.raw), string(got.body)
	unsized := regexp.MustCompile(`(?i)content-length: \d+\r\n`).ReplaceAllString(raw, "")
	chunked := strings.Replace(unsized, "\r\n\r\n"+body, fmt.Sprintf("\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body), 1)
	past := regexp.MustCompile(`(?i)(webhook-timestamp: )\d+`).ReplaceAllString(raw, "${1}"+strconv.FormatInt(time.Now().Add(-time.Hour).Unix(), 10))
	for _, tt := range []struct {
		name, in string
		args     []string
		code     int
		want     string
	}{
		{"a request", raw, []string{"--secret-file", both}, exitOK, "valid: " + got.header.Get("Webhook-Id")},
		{"a request with plain line ends", strings.Replace(raw, "\r\n", "\n", strings.Count(raw, "\r\n")), []string{"--secret-file", old}, exitOK, "valid"},
		{"an editor added a line", raw + "\n", []string{"--secret-file", old}, exitOK, "valid"},
		{"a request without a length", unsized, []string{"--secret-file", old}, exitOK, "valid"},
		{"a request in chunks", chunked, []string{"--secret-file", old}, exitOK, "valid"},
		{"headers and body", body, append(header, "--secret-file", old), exitOK, "valid"},
		{"another body", body + "\n", append(header, "--secret-file", old), exitRefused, "no signature matches"},
		{"another key", raw, []string{"--secret-file", p.file("other.key", webhook.NewKey())}, exitRefused, "no signature matches"},
		{"another time", past, []string{"--secret-file", old}, exitRefused, "no signature matches"},
		{"too old", raw, []string{"--secret-file", old, "--tolerance", "-1h"}, exitRefused, "refuse it"},
		{"half a request", raw[:len(raw)-3], []string{"--secret-file", old}, exitUsage, "not complete"},
		{"a body alone", body, []string{"--secret-file", old}, exitUsage, "no HTTP request"},
		{"one header", body, []string{"--secret-file", old, "--id", "x"}, exitRefused, "0 headers webhook-timestamp"},
		{"no key", raw, nil, exitUsage, "--secret-file is required"},
		{"no key file", raw, []string{"--secret-file", "missing"}, exitOther, "missing"},
		{"a file without a key", raw, []string{"--secret-file", p.file("bad.key", older+"\ncanary-value")}, exitOther, "line 2"},
	} {
		r := verify(tt.in, tt.args...)
		if r.code != tt.code || !strings.Contains(r.out+r.err, tt.want) || strings.Contains(r.out+r.err, "canary-value") {
			t.Errorf("%s: exit code %d\n%s%s", tt.name, r.code, r.out, r.err)
		}
	}
}

// A job of a real server is signed with a secret of its namespace, also while that is replaced.
func TestCallbacksOfAServerAreSigned(t *testing.T) {
	requests := make(chan []byte, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		raw, _ := httputil.DumpRequest(r, true)
		requests <- raw
	}))
	defer receiver.Close()
	p := withServer(t)
	create := []string{"job", "create", "invoice", "--schedule", "@yearly", "--url", receiver.URL, "--body", `{"total": 12.50}`, "--sign-with", "hooks"}
	if r := p.run(create...); r.code != exitRefused || !strings.Contains(r.err, "the secret hooks, which does not exist") {
		t.Fatalf("without the secret: exit code %d\n%s", r.code, r.err)
	}
	older := p.ok("secret", "set", "hooks", "--generate", "whsec").out
	newer := p.ok("secret", "rotate", "hooks", "--generate", "whsec", "--keep-previous", "1h").out
	if newer == older {
		t.Fatal("the key was not replaced")
	}
	p.ok(create...)
	verified := func(keys ...string) {
		t.Helper()
		p.ok("job", "trigger", "invoice", "--wait")
		raw := <-requests
		for _, key := range keys {
			p.stdin = bytes.NewReader(raw)
			p.ok("verify-webhook", "--secret-file", p.file("hooks.key", key))
		}
		p.stdin = bytes.NewReader(bytes.Replace(raw, []byte("12.50"), []byte("99.50"), 1))
		if r := p.run("verify-webhook", "--secret-file", p.file("hooks.key", keys[0])); r.code != exitRefused {
			t.Errorf("another body: exit code %d\n%s%s", r.code, r.out, r.err)
		}
		p.stdin = nil
	}
	verified(newer, older)

	// The job is shown with the name of its secret, which is not a secret, and without the key.
	shown := p.ok("job", "show", "invoice", "-o", "json").out
	if !strings.Contains(shown, `"sign_with": "hooks"`) || strings.Contains(shown, "whsec_") {
		t.Errorf("the job is shown as %s", shown)
	}
	if r := p.run("secret", "delete", "hooks"); r.code != exitRefused {
		t.Errorf("a secret that a job is signed with can be deleted: exit code %d\n%s", r.code, r.err)
	}

	// Without a secret of its own, the job has that of the namespace.
	p.ok("job", "edit", "invoice", "--set", "payload.sign_with=null")
	p.ok("namespace", "set", "default", "--sign-with", "hooks")
	verified(newer, older)
}
