package main

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// escape makes text from outside safe to print on a terminal: characters that are not
// printable, such as escape sequences and changes of the writing direction, are
// replaced by their codes.
func escape(s string) string { return escapeExcept(s, "") }

// escapeLines is escape for text of several lines, which are kept.
func escapeLines(s string) string {
	return escapeExcept(strings.ReplaceAll(s, "\r\n", "\n"), "\n\t")
}

func escapeExcept(s, keep string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !isPrintable(r) || r == utf8.RuneError }) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case isPrintable(r) || strings.ContainsRune(keep, r):
			b.WriteRune(r)
		default:
			b.WriteString(escapeCode(r))
		}
		s = s[size:]
	}
	return b.String()
}

func isPrintable(r rune) bool { return r == ' ' || unicode.IsPrint(r) }

func escapeCode(r rune) string {
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

// escapeJSON replaces characters in the strings of a JSON text that are not printable
// by their codes. Its meaning stays the same.
func escapeJSON(content []byte) []byte {
	if bytes.IndexFunc(content, func(r rune) bool { return r != '\n' && !isPrintable(r) }) < 0 {
		return content
	}
	var b bytes.Buffer
	for len(content) > 0 {
		r, size := utf8.DecodeRune(content)
		switch {
		case r == '\n' || isPrintable(r):
			b.WriteRune(r)
		case r >= 0x10000:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		content = content[size:]
	}
	return b.Bytes()
}

// shorten cuts a text to a width.
func shorten(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:width-1]) + "…"
}
