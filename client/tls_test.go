package client

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKeysAreNotSentInTheClear(t *testing.T) {
	for server, refused := range map[string]bool{
		"http://127.0.0.1:7070":           false,
		"http://127.9.9.9":                false,
		"http://[::1]:7070":               false,
		"http://[::ffff:127.0.0.1]:7070":  false,
		"http://localhost:7070":           false,
		"belfry.LOCALHOST.":               false,
		"https://belfry.example.com":      false,
		"http://belfry.example.com":       true,
		"belfry.example.com:7070":         true,
		"http://10.0.0.1":                 true,
		"http://0.0.0.0:7070":             true,
		"http://127.0.0.1.example.com":    true,
		"http://localhost.example.com/":   true,
		"http://[fe80::1]:7070/behind/it": true,
	} {
		_, err := New(server, WithKey(testKey))
		if got := err != nil; got != refused {
			t.Errorf("%s: got %v", server, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "--insecure-plain-http") || strings.Contains(err.Error(), testKey)) {
			t.Errorf("%s: got %v", server, err)
		}
		for name, options := range map[string][]Option{"without a key": nil, "when it is allowed": {WithKey(testKey), WithInsecurePlainHTTP()}} {
			if _, err := New(server, options...); err != nil {
				t.Errorf("%s %s: got %v", server, name, err)
			}
		}
	}
}

func TestTLSOptions(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, options := range map[string][]Option{
		"read the CA file":              {WithTLS(TLS{CAFile: "/nowhere"})},
		"has no certificate":            {WithTLS(TLS{CAFile: text})},
		"is not a fingerprint":          {WithTLS(TLS{Fingerprint: "SHA256:ab:cd"})},
		"and one with its key":          {WithTLS(TLS{CertFile: text})},
		"read the client certificate":   {WithTLS(TLS{CertFile: text, KeyFile: text})},
		"needs an HTTP client without":  {WithTLS(TLS{CAFile: text}), WithHTTPClient(&http.Client{Transport: http.DefaultTransport})},
		"needs an HTTP client without ": {WithHTTPClient(&http.Client{Transport: http.DefaultTransport}), WithTLS(TLS{CAFile: text})},
	} {
		if _, err := New("https://belfry.example.com", options...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
