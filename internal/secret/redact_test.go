package secret_test

import (
	"testing"

	"github.com/belfry-sh/belfry/internal/secret"
)

func TestRedact(t *testing.T) {
	const payload = `{"url": "https://ann:pass%2Fword1@example.com/a?token=t0ken%20one&page=2", "method": "POST",
		"headers": {"Authorization": "Bearer abcdef.123456", "Credentials": {"nested": ["deepsecret"]}, "Proxy-Authorization": "Basic YW5uOmh1bnRlcjI="},
		"body": "{\"password\": \"quo\\\"ted pass\", \"to\": \"ann\"}"}`
	for given, want := range map[string]string{
		"":                                  "",
		"the target answered 503":           "the target answered 503",
		"page 2 of ann":                     "page 2 of ann",
		"redirected to /next/abcdef.123456": "redirected to /next/***",
		"sent Bearer abcdef.123456":         "sent ***",
		"login pass/word1 or pass%2Fword1":  "login *** or ***",
		`bad status "t0ken one" or t0ken%20one or t0ken+one`: `bad status "***" or *** or ***`,
		"user hunter2 was refused":                           "user *** was refused",
		"it said deepsecret":                                 "it said ***",
		`it said quo"ted pass and {"x": "quo\"ted pass"}`:    `it said *** and {"x": "***"}`,
		"dial postgres://bob:other@db/x?sslmode=off failed":  "dial postgres://***@db/x?sslmode=off failed",
		`Get "https://h/x?api_key=unknown&n=1": EOF`:         `Get "https://h/x?api_key=***&n=1": EOF`,
		"the header was Authorization: bearer xyz.unknown":   "the header was Authorization: bearer ***",
		"password=unknown was refused":                       "password=*** was refused",
	} {
		if got := secret.Redact(given, []byte(payload)); got != want {
			t.Errorf("%s: got %s, want %s", given, got, want)
		}
	}
	for payload, want := range map[string]string{"": "it is hunter2hunter2", "hunter2hunter2": "it is ***", `{"n": 1}`: "it is hunter2hunter2"} {
		if got := secret.Redact("it is hunter2hunter2", []byte(payload)); got != want {
			t.Errorf("with the payload %q: got %s, want %s", payload, got, want)
		}
	}
}
