// Package sanitize makes text from outside safe to store and to show.
package sanitize

import (
	"strings"
	"unicode/utf8"
)

// Text returns at most limit bytes of s as valid UTF-8 without NUL bytes.
func Text(s string, limit int) string {
	s = strings.ToValidUTF8(cut(s, limit), "\uFFFD")
	s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	return cut(s, limit) // the replacement is longer than what it replaces
}

// Log returns s as valid UTF-8 without NUL bytes, and as long as it was: other bytes become
// question marks, so that offsets in a log stay right.
func Log(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	out := []byte(s)
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == 0 || r == utf8.RuneError && size == 1 {
			out[i] = '?'
		}
		i += size
	}
	return string(out)
}

// cut shortens s to at most limit bytes without splitting a character.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	end := limit
	for end > 0 && limit-end < utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}
