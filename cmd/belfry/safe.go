package main

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// safe makes text that somebody else wrote fit for a terminal: whatever is not
// simply seen, such as the beginning of a command to the terminal or a turn of
// the direction of writing, is shown by its code.
func safe(s string) string { return escape(s, "") }

// safeLines is safe for text of several lines, which stay lines.
func safeLines(s string) string {
	return escape(strings.ReplaceAll(s, "\r\n", "\n"), "\n\t")
}

// escape shows all but what can be seen, and the characters to keep.
func escape(s, keep string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return hidden(r) || r == utf8.RuneError }) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case !hidden(r) || strings.ContainsRune(keep, r):
			b.WriteRune(r)
		default:
			b.WriteString(code(r))
		}
		s = s[size:]
	}
	return b.String()
}

// hidden tells characters that are not simply seen.
func hidden(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }

// code is how a hidden character is shown.
func code(r rune) string {
	switch {
	case r == '\n':
		return `\n`
	case r == '\r':
		return `\r`
	case r == '\t':
		return `\t`
	case r < 0x80:
		return fmt.Sprintf(`\x%02x`, r)
	case r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}

// shorten cuts a text that would be too wide for a column.
func shorten(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:width-1]) + "…"
}
