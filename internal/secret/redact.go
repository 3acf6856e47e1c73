package secret

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	minPart   = 6       // bytes that a secret, or a part of one, must have to be searched for
	minPrefix = 4       // bytes of a secret at the end of a text that was cut that are masked
	maxForm   = 8 << 10 // bytes of a secret that are searched for in its encoded forms
)

var (
	words       = regexp.MustCompile(`[^\s"'<>()\[\],]+`)
	credentials = regexp.MustCompile(`(?i)\b(bearer|basic)[ \t]+[^\s"'<>]+`)
)

// Redact masks secrets in a text that is logged, such as the error of a target that
// repeats its request: the secrets of the payload and the values, wherever they are in the text
// and however they are encoded, and what Mask would find in it.
func Redact(text string, payload json.RawMessage, values ...string) string {
	if text == "" {
		return ""
	}
	text = NewRedactor(payload, values...).Redact(text, false)
	text = credentials.ReplaceAllString(text, "$1 "+Masked)
	return words.ReplaceAllStringFunc(text, func(word string) string { return maskText(word, 0, maskAll) })
}

// Redactor masks known secrets. Nil knows none.
type Redactor struct {
	forms []string // in which they may appear, the longest first
}

// NewRedactor masks the secrets of a payload, and other values. Those of less than six bytes are
// not searched for: they would be found everywhere.
func NewRedactor(payload json.RawMessage, values ...string) *Redactor {
	var found []string
	for _, value := range values {
		found = append(found, forms(value)...)
	}
	add := func(secret string) string {
		found = append(found, forms(secret)...)
		return Masked
	}
	switch {
	case !mayHaveSecrets(payload):
	case json.Valid(payload):
		maskJSON(payload, 0, add)
	default:
		add(string(payload))
	}
	if found == nil {
		return nil
	}
	slices.SortFunc(found, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b)) })
	return &Redactor{slices.Compact(found)}
}

// Redact masks the secrets in a text, and what has the form of a well-known token. If the text was
// cut, the beginning of a secret at its end is masked as well.
func (r *Redactor) Redact(text string, wasCut bool) string {
	var out strings.Builder
	from := 0
	for _, m := range r.find([]byte(text), wasCut) {
		out.WriteString(text[from:m.start] + Masked)
		from = m.end
	}
	out.WriteString(text[from:])
	return maskTokens(out.String())
}

// Erase overwrites the secrets in a text with stars, so that it stays as long as it was.
func (r *Redactor) Erase(text []byte) {
	for _, m := range r.find(text, false) {
		for i := m.start; i < m.end; i++ {
			text[i] = '*'
		}
	}
}

// match is where a secret is in a text.
type match struct{ start, end int }

// find returns where secrets are, in order. Those that overlap are one.
func (r *Redactor) find(text []byte, wasCut bool) (found []match) {
	if r == nil {
		return nil
	}
	var all []match
	for _, form := range r.forms {
		for from := 0; ; from++ {
			at := bytes.Index(text[from:], []byte(form))
			if at < 0 {
				break
			}
			from += at
			all = append(all, match{from, from + len(form)})
		}
	}
	if n := r.Begun(text); wasCut && n >= minPrefix {
		all = append(all, match{len(text) - n, len(text)})
	}
	slices.SortFunc(all, func(a, b match) int { return cmp.Compare(a.start, b.start) })
	for _, m := range all {
		if last := len(found) - 1; last >= 0 && m.start <= found[last].end {
			found[last].end = max(found[last].end, m.end)
		} else {
			found = append(found, m)
		}
	}
	return found
}

// Begun is how many bytes at the end of a text may be the beginning of a secret.
func (r *Redactor) Begun(text []byte) (longest int) {
	if r == nil {
		return 0
	}
	for _, form := range r.forms {
		for n := min(len(form)-1, len(text)); n > longest; n-- {
			if text[len(text)-n] == form[0] && string(text[len(text)-n:]) == form[:n] {
				longest = n
			}
		}
	}
	return longest
}

// Longest is how many bytes the longest form of a secret has.
func (r *Redactor) Longest() int {
	if r == nil {
		return 0
	}
	return len(r.forms[0])
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
		if len(text) < minPart || onlyReferences(text) {
			continue
		}
		quoted := strconv.Quote(text)
		encoded, _ := json.Marshal(text)
		query := url.QueryEscape(text)
		all = append(all, text, query, strings.ReplaceAll(query, "+", "%20"), url.PathEscape(text), quoted[1:len(quoted)-1], string(encoded[1:len(encoded)-1]))
		raw := []byte(text[:min(len(text), maxForm)])
		digits := hex.EncodeToString(raw)
		all = append(append(all, digits, strings.ToUpper(digits)), base64Forms(raw)...)
	}
	return all
}

// base64Forms are what does not change of a secret that is encoded together with what is around
// it, by how many bytes are before it.
func base64Forms(raw []byte) (all []string) {
	for before := range 3 {
		padded := append(make([]byte, before), raw...)
		start, end := (before*8+5)/6, len(padded)*8/6 // whole characters of the secret
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			if form := encoding.EncodeToString(padded)[start:end]; len(form) >= minPart {
				all = append(all, form)
			}
		}
	}
	return all
}

// tokenForms are the forms of well-known secrets, each with the text that it begins with.
var tokenForms = []struct {
	begin string
	form  *regexp.Regexp
}{
	{"AKIA", regexp.MustCompile(`\bAKIA[0-9A-Z]{16}\b`)},
	{"ASIA", regexp.MustCompile(`\bASIA[0-9A-Z]{16}\b`)},
	{"gh", regexp.MustCompile(`\bgh[pousr]_[0-9A-Za-z]{30,}`)},
	{"github_pat_", regexp.MustCompile(`\bgithub_pat_[0-9A-Za-z_]{30,}`)},
	{"glpat-", regexp.MustCompile(`\bglpat-[0-9A-Za-z_-]{20,}`)},
	{"xox", regexp.MustCompile(`\bxox[abeoprs]-[0-9A-Za-z-]{10,}`)},
	{"hooks.slack.com/", regexp.MustCompile(`hooks\.slack\.com/services/[0-9A-Za-z/]+`)},
	{"k_", regexp.MustCompile(`\b[prs]k_(live|test)_[0-9A-Za-z]{10,}`)},
	{"whsec_", regexp.MustCompile(`\bwhsec_[0-9A-Za-z+/]{20,}={0,2}`)},
	{"bf_", regexp.MustCompile(`\bbf_[0-9a-z]+_[0-9A-Za-z]{20,}`)},
	{"AIza", regexp.MustCompile(`\bAIza[0-9A-Za-z_-]{35}`)},
	{"eyJ", regexp.MustCompile(`\beyJ[0-9A-Za-z_-]{5,}\.[0-9A-Za-z_-]{5,}\.[0-9A-Za-z_-]*`)},
	{"PRIVATE KEY", regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?s:.*?)(-----END [A-Z0-9 ]*PRIVATE KEY-----|$)`)},
}

// maskTokens masks what has the form of a well-known secret.
func maskTokens(text string) string {
	for _, token := range tokenForms {
		if strings.Contains(text, token.begin) {
			text = token.form.ReplaceAllString(text, Masked)
		}
	}
	return text
}
