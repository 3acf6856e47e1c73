package secret

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// minPart is how long a part of a secret must be to be searched for on its own.
const minPart = 6

var (
	words       = regexp.MustCompile(`[^\s"'<>()\[\],]+`)
	credentials = regexp.MustCompile(`(?i)\b(bearer|basic)[ \t]+[^\s"'<>]+`)
)

// Redact masks secrets in a text that is logged, such as the error of a target that
// repeats its request: the secrets of the payload, wherever they are in the text and
// however they are quoted, and what Mask would find in it.
func Redact(text string, payload json.RawMessage) string {
	if text == "" {
		return ""
	}
	text = strings.NewReplacer(replacements(payload)...).Replace(text)
	text = credentials.ReplaceAllString(text, "$1 "+Masked)
	return words.ReplaceAllStringFunc(text, func(word string) string { return maskText(word, 0, maskAll) })
}

// replacements are the forms in which secrets of a payload may appear, the longest first,
// each followed by what replaces it.
func replacements(payload json.RawMessage) []string {
	var found []string
	add := func(secret string) string {
		found = append(found, forms(secret)...)
		return Masked
	}
	switch {
	case len(payload) == 0:
	case json.Valid(payload):
		maskJSON(payload, 0, add)
	default:
		add(string(payload))
	}
	slices.SortFunc(found, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b)) })
	var pairs []string
	for _, form := range slices.Compact(found) {
		pairs = append(pairs, form, Masked)
	}
	return pairs
}

// forms are a secret, its parts, such as the password of a user, and each of them encoded.
func forms(secret string) (all []string) {
	plain := []string{secret}
	if decoded, err := url.QueryUnescape(secret); err == nil {
		plain = append(plain, decoded)
	}
	for _, word := range strings.Fields(secret) {
		if decoded, err := base64.StdEncoding.DecodeString(word); err == nil {
			plain = append(plain, string(decoded))
		}
	}
	for _, text := range slices.Clone(plain) {
		for _, part := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\r\n:;,=&\"'{}[]\\", r) }) {
			if len(part) >= minPart {
				plain = append(plain, part)
			}
		}
	}
	for _, text := range plain {
		quoted := strconv.Quote(text)
		encoded, _ := json.Marshal(text)
		all = append(all, text, url.QueryEscape(text), url.PathEscape(text), quoted[1:len(quoted)-1], string(encoded[1:len(encoded)-1]))
	}
	return slices.DeleteFunc(all, func(form string) bool { return len(form) < minPart/2 })
}
