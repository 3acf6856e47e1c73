package schedule

import (
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
	key := keyOf(text, o)
	r, known := shared.get(key)
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
		r = shared.put(key, r)
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
	calendar := isCalendar(upper)
	most := maxText
	if calendar {
		most = maxCalendarText
	}
	if len(text) > most {
		return nil, refuse("the text has %d bytes, the most is %d", len(text), most)
	}
	if err := checkCharacters(text, calendar); err != nil {
		return nil, err
	}
	switch {
	case calendar:
		return nil, refuse("calendar rules (RRULE) are not supported yet")
	case isInterval(upper):
		return parseInterval(text, o)
	case isInstant(upper):
		return parseOnce(text, o)
	}
	return parseCron(text, o)
}

// isCalendar tells a calendar rule, also one that lacks the most important part.
func isCalendar(upper string) bool {
	for _, begin := range [...]string{"RRULE", "DTSTART", "RDATE", "EXDATE", "EXRULE"} {
		if strings.HasPrefix(upper, begin) {
			return true
		}
	}
	return strings.Contains(upper, "FREQ=")
}

// isInstant tells an instant, also one that is not quite right, from a cron
// expression, of which the first field is never a year.
func isInstant(upper string) bool {
	word, _, _ := strings.Cut(strings.ReplaceAll(upper, "\t", " "), " ")
	digits := len(word) - len(strings.TrimLeft(word, "0123456789"))
	return digits > 0 && strings.Contains(word, "T") || digits == 4 && strings.HasPrefix(word[4:], "-")
}

// checkCharacters lets only printable ASCII characters and tabs pass, and line
// breaks in calendar rules, so that a column is the same in bytes and in
// characters from here on.
func checkCharacters(text string, calendar bool) error {
	for i, r := range text {
		switch {
		case r == utf8.RuneError:
			return at(i, cronExample, "the text is not valid UTF-8")
		case calendar && (r == '\n' || r == '\r'):
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

// patience is how far ahead of Options.Now an occurrence may lie. The fifth
// Tuesday of a February can be 40 years away.
const patience = 45

// checkFires refuses a rule without an occurrence after now; see Options.Now. A
// single instant is always accepted: who asks may still want it late.
func checkFires(r Rule, now time.Time) error {
	if _, single := r.(*once); single {
		return nil
	}
	if now.IsZero() {
		if r.Next(time.Unix(-1, 0)).IsZero() {
			return refuse("the schedule never fires: no time fits all of it")
		}
		return nil
	}
	next := r.Next(now)
	if next.IsZero() || next.After(now.AddDate(patience, 0, 0)) {
		return refuse("the schedule never fires: nothing in the next %d years fits all of it", patience)
	}
	return nil
}
