package webhook

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

func mustParse(t *testing.T, text string) []byte {
	t.Helper()
	key, err := ParseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

var bodies = []string{"", "x", `{"a":"ü"}`, "a.b\n\x00\xff", strings.Repeat("long ", 30_000)}

func TestOfficialLibraryAcceptsOurSignatures(t *testing.T) {
	older, newer := NewKey(), NewKey()
	for _, body := range bodies {
		h := http.Header{}
		Sign(h, "0198f5c0-1d7c", time.Now(), []byte(body), mustParse(t, newer), mustParse(t, older))
		for _, text := range []string{older, newer} {
			official, err := standardwebhooks.NewWebhook(text)
			if err != nil {
				t.Fatal(err)
			}
			if err := official.Verify([]byte(body), h); err != nil {
				t.Errorf("%.20q: %v", body, err)
			}
			if official.Verify([]byte(body+" "), h) == nil {
				t.Errorf("%.20q: the library accepts another body", body)
			}
		}
	}
}

func TestWeAcceptSignaturesOfTheOfficialLibrary(t *testing.T) {
	text, now := NewKey(), time.Unix(1_794_000_000, 0)
	official, err := standardwebhooks.NewWebhook(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range bodies {
		signature, err := official.Sign("msg_1", now, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		h := http.Header{IDHeader: {"msg_1"}, TimestampHeader: {"1794000000"}, SignatureHeader: {"v1a,asymmetric v1,bm8= " + signature}}
		if err := Verify(h, []byte(body), now, time.Minute, mustParse(t, NewKey()), mustParse(t, text)); err != nil {
			t.Errorf("%.20q: %v", body, err)
		}
	}
}

// Every bit of what is signed, of the signature and of the key counts.
func TestAChangedBitIsRefused(t *testing.T) {
	key, body, now := mustParse(t, NewKey()), []byte(`{"amount": 100}`), time.Unix(1_794_000_000, 0)
	signed := http.Header{}
	Sign(signed, "run-1", now, body, key)
	const forever = 200 * 365 * 24 * time.Hour // the timestamp itself is changed too
	if err := Verify(signed, body, now, forever, key); err != nil {
		t.Fatal(err)
	}
	flips := func(value []byte, accepted func([]byte) bool) {
		t.Helper()
		for i := range len(value) * 8 {
			changed := bytes.Clone(value)
			changed[i/8] ^= 1 << (i % 8)
			if accepted(changed) {
				t.Errorf("%q is accepted in place of %q", changed, value)
			}
		}
	}
	flips(body, func(b []byte) bool { return Verify(signed, b, now, forever, key) == nil })
	flips(key, func(b []byte) bool { return Verify(signed, body, now, forever, b) == nil })
	for _, name := range []string{IDHeader, TimestampHeader, SignatureHeader} {
		flips([]byte(signed.Get(name)), func(b []byte) bool {
			h := signed.Clone()
			h[name] = []string{string(b)}
			return Verify(h, body, now, forever, key) == nil
		})
	}
}

func TestWhyARequestIsRefused(t *testing.T) {
	key, now := mustParse(t, NewKey()), time.Unix(1_794_000_000, 0)
	for _, tt := range []struct {
		name   string
		change func(http.Header)
		now    time.Time
		keys   [][]byte
		want   string
	}{
		{"just in time", nil, now.Add(5 * time.Minute), [][]byte{key}, ""},
		{"old", nil, now.Add(5*time.Minute + time.Second), [][]byte{key}, "more than 5m0s ago"},
		{"from the future", nil, now.Add(-5*time.Minute - time.Second), [][]byte{key}, "compare the clocks"},
		{"another key", nil, now, [][]byte{mustParse(t, NewKey())}, "no signature matches"},
		{"no key", nil, now, nil, "no signature matches"},
		{"no signature", func(h http.Header) { h.Del(SignatureHeader) }, now, [][]byte{key}, "0 headers webhook-signature"},
		{"two ids", func(h http.Header) { h.Add(IDHeader, "b") }, now, [][]byte{key}, "2 headers webhook-id"},
		{"empty id", func(h http.Header) { h.Set(IDHeader, "") }, now, [][]byte{key}, "webhook-id"},
		{"no time", func(h http.Header) { h.Set(TimestampHeader, "today") }, now, [][]byte{key}, "not a number"},
		{"no version", func(h http.Header) { h.Set(SignatureHeader, strings.TrimPrefix(h.Get(SignatureHeader), "v1,")) }, now, [][]byte{key}, "no signature matches"},
		{"another version", func(h http.Header) { h.Set(SignatureHeader, "v2"+strings.TrimPrefix(h.Get(SignatureHeader), "v1")) }, now, [][]byte{key}, "no signature matches"},
	} {
		h := http.Header{}
		Sign(h, "a", now, nil, key)
		if tt.change != nil {
			tt.change(h)
		}
		err := Verify(h, nil, tt.now, 5*time.Minute, tt.keys...)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
	h := http.Header{}
	Sign(h, "a", time.Unix(1<<62, 0), nil, key)
	if Verify(h, nil, now, 5*time.Minute, key) == nil {
		t.Error("a time that no duration can reach is accepted")
	}
}

func TestKeys(t *testing.T) {
	if a, b := NewKey(), NewKey(); a == b || len(mustParse(t, a)) != 32 {
		t.Errorf("got %q and %q", a, b)
	}
	good := KeyPrefix + strings.Repeat("QUFB", 8)
	mustParse(t, good)
	for _, text := range []string{
		"", "whsec_", strings.TrimPrefix(good, KeyPrefix), "WHSEC_" + strings.TrimPrefix(good, KeyPrefix), good + "\n", " " + good,
		KeyPrefix + "QUFB", KeyPrefix + strings.Repeat("QUFB", 22), good + "QQ", KeyPrefix + strings.Repeat("QUFB", 7) + "QUE\n=", good + "QR==",
	} {
		if _, err := ParseKey(text); err == nil || len(text) > 8 && strings.Contains(err.Error(), strings.TrimPrefix(text, KeyPrefix)) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
