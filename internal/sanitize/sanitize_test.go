package sanitize

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestTextIsValidUTF8WithoutNUL(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"plain text is kept", "ok", "ok"},
		{"a rune at the limit is not cut in half", "abcdefgé", "abcdefg"},
		{"a rune that ends at the limit is kept", "abcdeféé", "abcdefé"},
		{"a long text is cut", "abcdefghijk", "abcdefgh"},
		{"replacements do not make it longer than allowed", "\xffa\xffa\xffa\xff", "\uFFFDa\uFFFDa"},
		{"nor do those of zero bytes", "\x00\x00\x00\x00\x00", "\uFFFD\uFFFD"},
		{"what is no text at all is not lost without a trace", strings.Repeat("\x80", 100), "\uFFFD"},
		{"zero bytes and bad UTF-8 are replaced", "a\x00b\xff", "a\uFFFDb\uFFFD"},
	} {
		if got := Text(tt.in, 8); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestTextKeepsToItsLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.SampledFrom([]string{"a", "é", "€", "😀", "\x00", "\xff", "\x80", "\xf0\x9f"})
		s := strings.Join(rapid.SliceOfN(piece, 0, 40).Draw(t, "pieces"), "")
		limit := rapid.IntRange(0, 60).Draw(t, "limit")
		got := Text(s, limit)
		if len(got) > limit || !utf8.ValidString(got) || strings.Contains(got, "\x00") {
			t.Fatalf("got %q, %d bytes of %d", got, len(got), limit)
		}
		if utf8.ValidString(s) && !strings.Contains(s, "\x00") && (!strings.HasPrefix(s, got) || len(got) < min(len(s), limit-3)) {
			t.Fatalf("got %q of %q", got, s)
		}
	})
}

func TestLogKeepsOffsets(t *testing.T) {
	for given, want := range map[string]string{"": "", "a\n\té😀\x1b": "a\n\té😀\x1b", "a\x00b\xff\xc3": "a?b??", "\ufffd\x80": "\ufffd?"} {
		if got := Log(given); got != want || len(got) != len(given) {
			t.Errorf("%q: got %q, want %q", given, got, want)
		}
	}
}
