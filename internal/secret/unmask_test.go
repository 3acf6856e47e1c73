package secret

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestUnmask(t *testing.T) {
	const moved = `payload.list[0].token, payload.list[1].token`
	for _, tt := range []struct{ name, payload, stored, want, errors string }{
		{"a header", `{"headers":{"Authorization":"***"}}`, `{"headers":{"Authorization":"Bearer abc"}}`, `{"headers":{"Authorization":"Bearer abc"}}`, ""},
		{"white space and order are kept", `{ "b": 1, "token" : "***" }`, `{"token":"x","b":2}`, `{ "b": 1, "token" : "x" }`, ""},
		{"a secret that is no text", `{"credentials":"***"}`, `{"credentials":{"user":"u","pin":1234}}`, `{"credentials":{"user":"u","pin":1234}}`, ""},
		{"a secret that is replaced", `{"token":"new"}`, `{"token":"old"}`, `{"token":"new"}`, ""},
		{"a secret that is taken away", `{}`, `{"token":"old"}`, `{}`, ""},
		{"a star written as an escape", `{"token":"\u002A**"}`, `{"token":"old"}`, `{"token":"old"}`, ""},
		{"an address", `{"url":"https://***@h/x?token=***&a=1"}`, `{"url":"https://u:p@h/x?token=abc&a=1"}`, `{"url":"https://u:p@h/x?token=abc&a=1"}`, ""},
		{"an address that was changed", `{"url":"https://h/y?token=***"}`, `{"url":"https://h/x?token=abc"}`, `{"url":"https://h/y?token=***"}`, "payload.url"},
		{"one secret of two is new", `{"q":"token=new&sig=***"}`, `{"q":"token=old&sig=abc"}`, `{"q":"token=new&sig=***"}`, "payload.q"},
		{"a form", `{"body":"a=1&password=***"}`, `{"body":"a=1&password=x"}`, `{"body":"a=1&password=x"}`, ""},
		{"JSON in a text", `{"body":"{\"token\":\"***\"}"}`, `{"body":"{\"token\": \"x\"}"}`, `{"body":"{\"token\": \"x\"}"}`, ""},
		{"JSON in a text, with nothing behind it", `{"body":"{\"token\":\"***\"}"}`, `{"body":"{}"}`, `{"body":"{\"token\":\"***\"}"}`, "payload.body"},
		{"a signed token", `{"x":"***"}`, `{"x":"eyJh.b.c"}`, `{"x":"eyJh.b.c"}`, ""},
		{"a bearer", `["Bearer ***"]`, `["Bearer abc"]`, `["Bearer abc"]`, ""},
		{"a text alone", `"***"`, `"eyJh.b.c"`, `"eyJh.b.c"`, ""},
		{"doubled keys", `{"token":"***","token":"***"}`, `{"token":"a","token":"b"}`, `{"token":"a","token":"b"}`, ""},
		{"a key too often", `{"token":"***","token":"***"}`, `{"token":"a"}`, `{"token":"a","token":"***"}`, "payload.token"},

		{"nothing is stored", `{"token":"***","headers":{"Cookie":"***"}}`, ``, `{"token":"***","headers":{"Cookie":"***"}}`, "payload.token, payload.headers.Cookie"},
		{"something else is stored", `{"token":"***"}`, `["token"]`, `{"token":"***"}`, "payload.token"},
		{"a secret under another name", `{"token2":"***"}`, `{"token":"x"}`, `{"token2":"***"}`, "payload.token2"},
		{"half a secret", `{"token":"Bearer ***"}`, `{"token":"Bearer abc"}`, `{"token":"Bearer ***"}`, "payload.token"},
		{"a secret within a new secret", `{"credentials":{"user":"***","list":["***"]}}`, `{"credentials":{"user":"u","list":["a"]}}`,
			`{"credentials":{"user":"***","list":["***"]}}`, "payload.credentials.user, payload.credentials.list[0]"},
		{"a secret with stars in it", `{"token":"a***b","q":"token=a***b"}`, ``, `{"token":"a***b","q":"token=a***b"}`, ""},
		{"stars that hide nothing", `{"stars":"***","q":"rating=***","text":"*** new ***"}`, `{}`, `{"stars":"***","q":"rating=***","text":"*** new ***"}`, ""},
		{"stars that were stored", `{"token":"***","q":"token=***"}`, `{"token":"***","q":"token=***"}`, `{"token":"***","q":"token=***"}`, ""},
		{"what is not JSON", `{"token":"***"`, `{"token":"x"}`, `{"token":"***"`, ""},

		{"a list", `{"list":[{"token":"***","a":1},{"token":"***"}]}`, `{"list":[{"token":"x"},{"token":"y"}]}`, `{"list":[{"token":"x","a":1},{"token":"y"}]}`, ""},
		{"a list that grew", `{"list":[{"token":"***"},{"token":"new"}]}`, `{"list":[{"token":"x"}]}`, `{"list":[{"token":"x"},{"token":"new"}]}`, ""},
		{"a list that grew in front", `{"list":[{"a":1,"token":"new"},{"token":"***"}]}`, `{"list":[{"token":"x"}]}`, `{"list":[{"a":1,"token":"new"},{"token":"***"}]}`, "payload.list[1].token"},
		{"a list that lost one", `{"list":[{"token":"***"}]}`, `{"list":[{"token":"x"},{"token":"y"}]}`, `{"list":[{"token":"***"}]}`, "payload.list[0].token"},
		{"a list in another order", `{"list":[{"n":2,"token":"***"},{"n":1,"token":"***"}]}`, `{"list":[{"n":1,"token":"x"},{"n":2,"token":"y"}]}`,
			`{"list":[{"n":2,"token":"***"},{"n":1,"token":"***"}]}`, moved},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, errors := Unmask(json.RawMessage(tt.payload), json.RawMessage(tt.stored))
			if string(got) != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			var fields []string
			for _, f := range errors {
				fields = append(fields, f.Field)
				if f.Message != "is masked; give the secret itself" {
					t.Errorf("%s: %s", f.Field, f.Message)
				}
			}
			if got := strings.Join(fields, ", "); got != tt.errors {
				t.Errorf("errors of %q, want %q", got, tt.errors)
			}
		})
	}
}

// tokens is what a JSON text says, whatever its blanks and escapes.
func tokens(t *rapid.T, text []byte) (out []json.Token) {
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	for {
		token, err := in.Token()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		out = append(out, token)
	}
}

// value draws JSON that is full of secrets.
func value(t *rapid.T, depth int) string {
	quote := func(s string) string { out, _ := json.Marshal(s); return string(out) }
	secret := rapid.StringMatching(`[a-z<>&"é*]{0,6}`)
	kind := rapid.IntRange(0, 11).Draw(t, "kind")
	if depth == 0 {
		kind %= 9
	}
	switch kind {
	case 0:
		return rapid.SampledFrom([]string{"null", "true", "1e3", "-0.50", `"\u002a**"`, `"***"`, `"\u2028"`}).Draw(t, "scalar")
	case 1:
		return quote(secret.Draw(t, "text"))
	case 2:
		return quote("Bearer " + secret.Draw(t, "bearer"))
	case 3:
		return quote("eyJ" + secret.Draw(t, "head") + "." + secret.Draw(t, "body") + ".x")
	case 4:
		return quote(fmt.Sprintf("https://%s@host/p?token=%s&b=%s#sig=%s", secret.Draw(t, "user"), rapid.StringMatching(`[a-z*]{0,4}`).Draw(t, "token"), "2", secret.Draw(t, "sig")))
	case 5:
		return quote("a=1;password=" + rapid.StringMatching(`[a-z*]{0,4}`).Draw(t, "password") + "&key=2")
	case 6, 7:
		return quote(value(t, 0))
	case 8:
		return quote(`{"token":` + value(t, 0) + `}`)
	case 9:
		var items []string
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			items = append(items, value(t, depth-1))
		}
		return " [" + strings.Join(items, " , ") + "]"
	default:
		var members []string
		for range rapid.IntRange(0, 4).Draw(t, "members") {
			key := rapid.SampledFrom([]string{"token", "a", "b", "Set-Cookie", "p\\u0061ssword", "ü"}).Draw(t, "key")
			members = append(members, `"`+key+`" : `+value(t, depth-1))
		}
		return "{" + strings.Join(members, ",") + " }"
	}
}

func TestUnmaskingWhatWasMaskedGivesItBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stored := value(t, 3)
		masked := Mask(json.RawMessage(stored))
		got, errors := Unmask(masked, json.RawMessage(stored))
		if len(errors) > 0 || !slices.Equal(tokens(t, got), tokens(t, []byte(stored))) {
			t.Fatalf("stored %s\nmasked %s\ngot    %s\nfaults %v", stored, masked, got, errors)
		}
		if again, errors := Unmask(json.RawMessage(stored), json.RawMessage(stored)); len(errors) > 0 || !slices.Equal(tokens(t, again), tokens(t, []byte(stored))) {
			t.Fatalf("stored %s\ngot    %s\nfaults %v", stored, again, errors)
		}
	})
}

func TestUnmaskingAfterAnEditElsewhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secrets := value(t, 3)
		stored := `{"first":1,"kept":` + secrets + `,"last":2}`
		masked := string(Mask(json.RawMessage(stored)))
		edited := `{"new":[],"first":"3",` + strings.TrimSuffix(strings.TrimPrefix(masked, `{"first":1,`), `,"last":2}`) + `}`
		got, errors := Unmask(json.RawMessage(edited), json.RawMessage(stored))
		want := `{"new":[],"first":"3","kept":` + secrets + `}`
		if len(errors) > 0 || !slices.Equal(tokens(t, got), tokens(t, []byte(want))) {
			t.Fatalf("edited %s\ngot    %s\nwant   %s\nfaults %v", edited, got, want, errors)
		}
	})
}

// A payload of the largest size does not keep anybody waiting, however it is built.
func TestUnmaskingIsFast(t *testing.T) {
	for name, big := range map[string]string{
		"deep": strings.Repeat(`[{"a":`, 4900) + `{"token":"***"}` + strings.Repeat(`}]`, 4900),
		"wide": `{"token":"***","list":[` + strings.Repeat(`{"token":"***"},`, 15_000) + `1]}`,
		"keys": `{` + strings.Repeat(`"token":"***",`, 18_000) + `"x":1}`,
	} {
		start := time.Now()
		if _, errors := Unmask(json.RawMessage(big), json.RawMessage(strings.ReplaceAll(big, "***", "secret"))); len(errors) > 0 {
			t.Errorf("%s: %d errors", name, len(errors))
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s: %d bytes took %v", name, len(big), took)
		}
	}
}
