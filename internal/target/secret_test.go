package target

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/secret"
)

// fakeSecrets are secrets by namespace and name.
type fakeSecrets map[string]secret.Named

func (f fakeSecrets) Lookup(_ context.Context, namespace, name string) (secret.Named, error) {
	if namespace+"/"+name == "ours/down" {
		return secret.Named{}, errors.New("dial tcp 10.0.0.1:5432: refused")
	}
	found, ok := f[namespace+"/"+name]
	if !ok {
		return found, belfry.Errorf(belfry.NotFound, "there is none")
	}
	return found, nil
}

func TestRequestsWithSecrets(t *testing.T) {
	var uri, header, body string
	calls := 0
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		uri, header, body = r.RequestURI, r.Header.Get("X-Key"), string(raw)
		calls++
	}))
	defer server.Close()
	secrets := fakeSecrets{
		"ours/odd":        {Values: []string{`a"b\c&d=/e?<é +`, "the one before"}},
		"ours/lines":      {Values: []string{"one\ntwo"}},
		"ours/elsewhere":  {Values: []string{"kept"}, AllowedHosts: []string{"api.example.com"}},
		"ours/here":       {Values: []string{"given"}, AllowedHosts: []string{"127.0.0.1"}},
		"theirs/not-ours": {Values: []string{"theirs"}},
	}
	h := handler(t, HTTPOptions{Guard: NewGuard(false, prefixes("127.0.0.0/8")), Secrets: secrets})
	for _, tt := range []struct{ name, path, rest, uri, header, body, err string }{
		{"everywhere", `/p/{{secret 'odd'}}?q={{secret \"odd\"}}`, `"headers":{"X-Key":"Bearer {{secret \"odd\"}}"},"body":{"k":"-{{secret \"odd\"}}-"}`,
			`/p/a%22b%5Cc%26d%3D%2Fe%3F%3C%C3%A9%20%2B?q=a%22b%5Cc%26d%3D%2Fe%3F%3C%C3%A9%20%2B`, `Bearer a"b\c&d=/e?<é +`, `{"k":"-a\"b\\c&d=/e?<é +-"}`, ""},
		{"a text", `/`, `"body":"it is {{secret odd}}"`, "/", "", `it is a"b\c&d=/e?<é +`, ""},
		{"a form", `/`, `"headers":{"content-type":"application/x-www-form-urlencoded"},"body":"a=1&k={{secret odd}}"`, "/", "", `a=1&k=a%22b%5Cc%26d%3D%2Fe%3F%3C%C3%A9%20%2B`, ""},
		{"JSON in a text", `/`, `"body":"{\"k\":\"{{secret odd}}\"}"`, "/", "", `{"k":"a\"b\\c&d=/e?<é +"}`, ""},
		{"an allowed host", `/`, `"headers":{"X-Key":"{{secret here}}"}`, "/", "given", "", ""},
		{"other templates stay", `/`, `"body":"{{name}} {{ .Secret }}"`, "/", "", "{{name}} {{ .Secret }}", ""},
		{"another host", `/`, `"headers":{"X-Key":"{{secret elsewhere}}"}`, "", "", "", `the secret "elsewhere" must not be sent to 127.0.0.1; its allowed hosts are api.example.com`},
		{"another namespace", `/`, `"body":"{{secret not-ours}}"`, "", "", "", `the secret "not-ours" does not exist`},
		{"a line break", `/`, `"headers":{"X-Key":"{{secret lines}}"}`, "", "", "", `the secret "lines" has a line break`},
		{"no database", `/`, `"body":"{{secret down}}"`, "", "", "", `the secret "down" cannot be read: the database does not answer`},
		{"no reference", `/`, `"body":"{{secret Odd}}"`, "", "", "", `payload.body: has a reference to a secret that cannot be read`},
	} {
		uri, header, body, calls = "", "", "", 0
		run := &belfry.Run{Namespace: "ours", Payload: json.RawMessage(fmt.Sprintf(`{"url":"%s%s",%s}`, server.URL, tt.path, tt.rest))}
		before := string(run.Payload)
		err := h.Handle(t.Context(), run)
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.err)
		}
		if got := unescaped(body); uri != tt.uri || header != tt.header || got != unescaped(tt.body) {
			t.Errorf("%s: %s with %q and %s", tt.name, uri, header, body)
		}
		if err != nil && calls > 0 {
			t.Errorf("%s: the target was called", tt.name)
		}
		if string(run.Payload) != before {
			t.Errorf("%s: the payload has become %s", tt.name, run.Payload)
		}
	}
}

// unescaped is JSON without the escapes that need not be there.
func unescaped(text string) string {
	return strings.NewReplacer(`\u003c`, "<", `\u0026`, "&").Replace(text)
}
