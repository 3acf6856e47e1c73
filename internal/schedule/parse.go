package schedule

import (
	"strings"
	"unicode/utf8"
)

// maxText is the longest text of a schedule, in bytes.
const maxText = 1024

// accepted names the forms that Parse reads.
const accepted = "accepted are cron expressions, macros such as @daily, and instants such as " + instantExample

// Parse reads the text of a schedule. The form is told by its shape: a first word
// that begins with a digit and holds a "T" is an instant, everything else a cron
// expression. Whatever it refuses, it refuses with an *Error.
func Parse(text string, o Options) (Rule, error) {
	trimmed := strings.TrimSpace(text)
	if trimmed == "" {
		return nil, refuse("the text is empty")
	}
	if len(text) > maxText {
		return nil, refuse("the text has %d bytes, the most is %d", len(text), maxText)
	}
	upper := strings.ToUpper(trimmed)
	switch {
	case strings.Contains(upper, "FREQ="):
		return nil, refuse("calendar rules (RRULE) are not supported yet; %s", accepted)
	case upper[0] == 'P', upper[0] == 'R' && strings.Contains(upper, "/"):
		return nil, refuse("ISO-8601 intervals are not supported yet; %s", accepted)
	}
	if err := checkCharacters(text); err != nil {
		return nil, err
	}
	if isInstant(upper) {
		return parseOnce(text, o)
	}
	return parseCron(text, o)
}

// isInstant tells an instant, also one that is not quite right, from a cron
// expression, of which the first field is never a year.
func isInstant(upper string) bool {
	word, _, _ := strings.Cut(strings.ReplaceAll(upper, "\t", " "), " ")
	digits := len(word) - len(strings.TrimLeft(word, "0123456789"))
	return digits > 0 && strings.Contains(word, "T") || digits == 4 && strings.HasPrefix(word[4:], "-")
}

// checkCharacters lets only printable ASCII characters and tabs pass, so that a
// column is the same in bytes and in characters from here on.
func checkCharacters(text string) error {
	for i, r := range text {
		switch {
		case r == utf8.RuneError:
			return at(i, cronExample, "the text is not valid UTF-8")
		case r < ' ' && r != '\t' || r == 0x7f:
			return at(i, cronExample, "control character %U", r)
		case r > '~':
			return at(i, cronExample, "unexpected character %q", r)
		}
	}
	return nil
}

// splitZone takes a prefix such as "CRON_TZ=Europe/Paris" off a text. It returns
// the zone's name, and where the name and the rest begin.
func splitZone(text string) (name string, nameAt, restAt int, ok bool) {
	start := len(text) - len(strings.TrimLeft(text, " \t"))
	for _, prefix := range [...]string{"TZ=", "CRON_TZ="} {
		if strings.HasPrefix(text[start:], prefix) {
			nameAt = start + len(prefix)
			restAt = nameAt + strings.IndexAny(text[nameAt:]+" ", " \t")
			return text[nameAt:restAt], nameAt, restAt, true
		}
	}
	return "", 0, 0, false
}
