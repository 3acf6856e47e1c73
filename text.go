package belfry

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Clean makes what a target or handler said fit to keep: at most limit bytes,
// valid UTF-8, no zero bytes.
func Clean(s string, limit int) string {
	s = strings.ToValidUTF8(cut(s, limit), "\uFFFD")
	s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	return cut(s, limit) // The replacement is longer than what it replaces.
}

// cut shortens s to at most limit bytes without leaving half a character.
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

var varying = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|0x[0-9a-fA-F]+|[0-9]+`)

// Fingerprint is the same for failures that differ only in numbers and ids, so
// that dead letters can be grouped by what went wrong.
func Fingerprint(r Result) string {
	what := fmt.Sprintf("%s %d %s", r.Outcome, r.HTTPStatus, varying.ReplaceAllString(r.Error, "#"))
	sum := sha256.Sum256([]byte(what))
	return hex.EncodeToString(sum[:8])
}
