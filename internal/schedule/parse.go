package schedule

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// maxText is the longest text of a schedule, in bytes, other than that of a
// calendar rule.
const maxText = 1024

// Parse reads the text of a schedule. The form is told by its shape: "FREQ=" makes
// it a calendar rule, a "P" or an "R" with a slash an interval, a first word that
// begins with a digit and holds a "T" an instant, and everything else is a cron
// expression. Whatever it refuses, it refuses with an *Error.
//
// Rules are shared: as long as a rule is in use, reading the same text with the
// same options, whatever Options.Now, returns it again.
func Parse(text string, o Options) (Rule, error) {
	key := newRuleKey(text, o)
	r, known := sharedRules.get(key)
	if !known {
		var err error
		if r, err = parse(text, o); err != nil {
			return nil, err
		}
	}
	if !known || !o.Now.IsZero() {
		if err := checkFires(r, o.Now); err != nil {
			return nil, err
		}
	}
	if !known {
		r = sharedRules.put(key, r)
	}
	return r, nil
}

// parse reads a text of any form.
func parse(text string, o Options) (Rule, error) {
	trimmed := strings.TrimSpace(text)
	if trimmed == "" {
		return nil, refuse("the text is empty")
	}
	upper := strings.ToUpper(trimmed)
	if isRRule(upper) {
		return parseRRuleSet(text, o)
	}
	if len(text) > maxText {
		return nil, refuse("the text has %d bytes, the most is %d", len(text), maxText)
	}
	if err := checkCharacters(text); err != nil {
		return nil, err
	}
	switch {
	case isInterval(upper):
		return parseInterval(text, o)
	case isInstant(upper):
		return parseOneOff(text, o)
	}
	return parseCron(text, o)
}

// isRRule tells a calendar rule, also one that lacks the most important part.
func isRRule(upper string) bool {
	name, end := propertyName(upper)
	return strings.Contains(upper, "FREQ=") || slices.Contains(rruleProperties, name) && (end == ':' || end == ';')
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
			return errorAt(i, cronExample, "the text is not valid UTF-8")
		case r < ' ' && r != '\t' || r == 0x7f:
			return errorAt(i, cronExample, "control character %U", r)
		case r > '~':
			return errorAt(i, cronExample, "unexpected character %q", r)
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

// maxYearsAhead is how far ahead of Options.Now an occurrence may lie. The fifth
// Tuesday of a February can be 40 years away.
const maxYearsAhead = 45

// checkFires refuses a rule without an occurrence after now; see Options.Now. A
// single instant is always accepted: who asks may still want it late.
func checkFires(r Rule, now time.Time) error {
	switch r := r.(type) {
	case *oneOff:
		return nil
	case *rruleSet:
		return r.checkFires(now)
	}
	if now.IsZero() {
		if r.Next(time.Unix(-1, 0)).IsZero() {
			return refuse("the schedule never fires: no time fits all of it")
		}
		return nil
	}
	next := r.Next(now)
	if next.IsZero() || next.After(now.AddDate(maxYearsAhead, 0, 0)) {
		return refuse("the schedule never fires: nothing in the next %d years fits all of it", maxYearsAhead)
	}
	return nil
}
