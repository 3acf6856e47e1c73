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
