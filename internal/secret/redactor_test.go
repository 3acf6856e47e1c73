package secret

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// windows reports whether a text has eight bytes of a secret in a row, as they are or decoded.
func windows(text, secret string) bool {
	for i := 0; i+8 <= len(secret); i++ {
		if strings.Contains(text, secret[i:i+8]) {
			return true
		}
	}
	return false
}

func TestRedactorFindsEveryForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringMatching(`[A-Za-z0-9+/ "<é%]{12,60}`).Draw(t, "value")
		before := rapid.StringMatching(`[a-z]{0,5}`).Draw(t, "before")
		after := rapid.StringMatching(`[a-z]{0,5}`).Draw(t, "after")
		quoted, _ := json.Marshal(value)
		inner := string(quoted[1 : len(quoted)-1])
		r := NewRedactor(nil, value)
		for name, tt := range map[string]struct{ text, secret string }{
			"raw":     {before + value + after, value},
			"query":   {before + url.QueryEscape(value) + after, url.QueryEscape(value)},
			"path":    {before + url.PathEscape(value) + after, url.PathEscape(value)},
			"JSON":    {before + inner + after, inner},
			"hex":     {before + hex.EncodeToString([]byte(value)) + after, hex.EncodeToString([]byte(value))},
			"base64":  {base64.StdEncoding.EncodeToString([]byte(before + value + after)), base64.StdEncoding.EncodeToString([]byte(value))},
			"base64u": {base64.RawURLEncoding.EncodeToString([]byte(before + value + after)), base64.RawURLEncoding.EncodeToString([]byte(value))},
		} {
			got := r.Redact(tt.text, false)
			if windows(got, tt.secret) || !strings.Contains(got, Masked) {
				t.Fatalf("%s: %q became %q", name, tt.text, got)
			}
			for cut := range len(tt.text) {
				if got := r.Redact(tt.text[:cut], true); windows(got, tt.secret) {
					t.Fatalf("%s: %q, which was cut, became %q", name, tt.text[:cut], got)
				}
			}
			erased := []byte(tt.text)
			if r.Erase(erased); len(erased) != len(tt.text) || windows(string(erased), tt.secret) {
				t.Fatalf("%s: %q was erased to %q", name, tt.text, erased)
			}
		}
	})
}

func TestShortValuesAreNotRedacted(t *testing.T) {
	if r := NewRedactor(json.RawMessage(`{"token":"12345","otp":true}`), "abc"); r != nil {
		t.Errorf("it looks for %q", r.forms)
	}
	if got := NewRedactor(json.RawMessage(`{"url":"https://h/x","body":{"page":2}}`)).Redact("page 2 of https://h/x", true); got != "page 2 of https://h/x" {
		t.Errorf("got %s", got)
	}
}

func TestWellKnownTokensAreMasked(t *testing.T) {
	long := strings.Repeat("aB3", 14)
	for _, token := range []string{
		"AKIA" + "IOSFODNN7ABCDEFG", "ghp_" + long, "github_pat_" + long, "glpat-" + long, "xoxb-" + "123456789012-" + long, "hooks.slack.com/services/T0/B0/" + long,
		"sk_" + "live_" + long, "whsec_" + long, "bf_k7m2q9d4_" + long, "AIza" + long[:35], "eyJ" + long + "." + long + "." + long,
		"-----BEGIN RSA PRIVATE KEY-----\n" + long + "\n-----END RSA PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\n" + long,
	} {
		got := (*Redactor)(nil).Redact("it said "+token+", and no more", false)
		if windows(got, long) || !strings.HasPrefix(got, "it said "+strings.TrimSuffix(Masked, "*")) && !strings.Contains(got, Masked) {
			t.Errorf("%s became %s", token, got)
		}
	}
	const harmless = "ghost_town bf_ whsec_ AKIA eyJ sk_live risk_test_ xoxo- a PRIVATE KEY is needed"
	if got := (*Redactor)(nil).Redact(harmless, false); got != harmless {
		t.Errorf("got %s", got)
	}
}

// What mayHaveSecrets lets pass has nothing to mask.
func FuzzMayHaveSecrets(f *testing.F) {
	for _, seed := range []string{`{"url":"https://u:p@h/?token=x"}`, `{"a":["Bearer x"," basic y","eyJa.b.c"]}`, `{"p\u0061ssword":1}`, `{"a":"{\"sig\":1}","b":"x=1"}`, `[1,"\u0042earer x"]`, `{"key":"a","auth":{}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if json.Valid(raw) && !mayHaveSecrets(raw) {
			var plain, masked any
			if json.Unmarshal(raw, &plain) == nil && json.Unmarshal(Mask(raw), &masked) == nil && !jsonEqual(plain, masked) {
				t.Errorf("%s is masked as %s", raw, Mask(raw))
			}
		}
	})
}

func jsonEqual(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

func TestReferencesAreNoSecrets(t *testing.T) {
	for in, want := range map[string]string{
		`{"Authorization":"Bearer {{secret \"a\"}}","token":"{{secret 'b'}}","x":"a=1&token={{ secret c }}"}`:                `{"Authorization":"Bearer {{secret \"a\"}}","token":"{{secret 'b'}}","x":"a=1&token={{ secret c }}"}`,
		`{"token":"x{{secret a}}","url":"https://h/?key={{secret a}}&sig=abc","form":"token=abc&b={{secret b}}"}`:            `{"token":"***","url":"https://h/?key={{secret a}}&sig=***","form":"token=***&b={{secret b}}"}`,
		`{"token":"{{secret A}}","password":"{{other}}","text":"{{secret \"a\"}} and more","authorization":"bearer secret"}`: `{"token":"***","password":"***","text":"{{secret \"a\"}} and more","authorization":"***"}`,
	} {
		if got := string(Mask(json.RawMessage(in))); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	for text, want := range map[string]string{`{{secret "a"}}{{secret 'b-c.d_e'}} {{ secret f }} {{secret \"g\"}} {{name}}`: "a b-c.d_e f g true", `{{secret "A"}}`: " false", `{{secret}} {{secret a}}`: "a false", "none": " true"} {
		names, ok := References(text)
		if got := strings.Join(names, " ") + map[bool]string{true: " true", false: " false"}[ok]; got != want {
			t.Errorf("%s has %s, want %s", text, got, want)
		}
	}
}

func BenchmarkMayHaveSecrets(b *testing.B) {
	payload := []byte(`{"url":"https://example.com/hooks/report","method":"POST","headers":{"Accept":"application/json"},"body":{"format":"pdf","customer":12345}}`)
	for b.Loop() {
		if mayHaveSecrets(payload) {
			b.Fatal("it may")
		}
	}
}
