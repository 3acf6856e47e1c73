package schedule

import (
	"slices"
	"strings"
	"time"
)

// notation is a way to write a schedule.
type notation struct {
	matches    func(upper string) bool // tells it from the notations after it
	parse      func(text string, o Options) (Rule, error)
	needsStart func(upper string) bool          // see NeedsStart
	namedZone  func(text string) (string, bool) // see NamedZone; nil: never
	maxText    int                              // bytes
	example    string
	lines      bool // it may have several lines, and checks its characters itself
}

var notations = [...]*notation{&rruleNotation, &intervalNotation, &instantNotation, &cronNotation}

var rruleNotation = notation{
	matches: func(upper string) bool { // even a rule whose FREQ is missing
		name, end := propertyName(upper)
		return strings.Contains(upper, "FREQ=") || slices.Contains(rruleProperties, name) && (end == ':' || end == ';')
	},
	parse:      parseRRuleSet,
	needsStart: func(upper string) bool { return !containsFolded(upper, "DTSTART") },
	namedZone:  rruleZone,
	maxText:    4096, // room for some 400 dates
	example:    rruleStartExample,
	lines:      true,
}

var intervalNotation = notation{
	matches: func(upper string) bool {
		return upper[0] == 'P' || upper[0] == 'R' && strings.Contains(upper, "/")
	},
	parse:      parseInterval,
	needsStart: func(upper string) bool { return strings.Count(upper, "/") < 2 },
	maxText:    1024,
	example:    intervalExample,
}

var instantNotation = notation{
	matches: func(upper string) bool { // even a malformed one; the first field of a cron expression is never a year
		word, _, _ := strings.Cut(strings.ReplaceAll(upper, "\t", " "), " ")
		digits := len(word) - len(strings.TrimLeft(word, "0123456789"))
		return digits > 0 && strings.Contains(word, "T") || digits == 4 && strings.HasPrefix(word[4:], "-")
	},
	parse:      parseOneOff,
	needsStart: func(string) bool { return false },
	maxText:    1024,
	example:    instantExample,
}

var cronNotation = notation{
	matches:    func(string) bool { return true },
	parse:      parseCron,
	needsStart: func(upper string) bool { return strings.Contains(upper, "@EVERY") },
	namedZone: func(text string) (string, bool) {
		name, _, _, ok := splitZone(text)
		return name, ok
	},
	maxText: 1024,
	example: cronExample,
}

// notationOf returns the notation of a text and the text trimmed and in upper case. It
// returns nil for an empty text.
func notationOf(text string) (*notation, string) {
	upper := strings.ToUpper(strings.TrimSpace(text))
	if upper == "" {
		return nil, ""
	}
	for _, n := range notations {
		if n.matches(upper) {
			return n, upper
		}
	}
	return nil, upper
}

// NeedsStart reports whether a schedule counts from a start that its text does not
// give: an interval such as PT15M, R5/P1D or "@every 90s", or a calendar rule
// without DTSTART. Parse then requires Options.Start; it ignores it for any other
// schedule. For a text that Parse refuses, the answer means nothing.
func NeedsStart(text string) bool {
	n, upper := notationOf(text)
	return n != nil && n.needsStart(upper)
}

// DefaultStart returns the start of a new schedule that needs one and was given
// none: the present second. A schedule that ends after a number of occurrences
// starts at the next second, so that its first occurrence has not passed. It returns
// the zero time if the schedule needs no start, so the result can be used as
// Options.Start in any case.
func DefaultStart(text string, now time.Time) time.Time {
	n, upper := notationOf(text)
	if n == nil || !n.needsStart(upper) {
		return time.Time{}
	}
	start := now.UTC().Truncate(time.Second)
	repetitions := len(upper) > 1 && upper[0] == 'R' && upper[1] >= '0' && upper[1] <= '9'
	if repetitions || containsFolded(upper, "COUNT=") {
		start = start.Add(time.Second)
	}
	return start
}

// containsFolded reports whether a calendar rule contains a name, which a folded line
// may interrupt by blanks.
func containsFolded(upper, name string) bool {
	return strings.Contains(upper, name) || strings.Contains(strings.Join(strings.Fields(upper), ""), name)
}

// NamedZone returns the time zone that the text of a schedule names itself, as in
// "CRON_TZ=Europe/Paris 0 9 * * *" or "DTSTART;TZID=Europe/Paris:20260301T090000".
// Without one, and without Options.Timezone, a schedule is read in UTC.
func NamedZone(text string) (name string, ok bool) {
	n, _ := notationOf(text)
	if n == nil || n.namedZone == nil {
		return "", false
	}
	return n.namedZone(text)
}

// rruleZone is the time zone of a DTSTART line.
func rruleZone(text string) (name string, ok bool) {
	lines, err := splitContentLines(text)
	if err != nil {
		return "", false
	}
	for _, l := range lines {
		if property, end := propertyName(l.text); property == "DTSTART" && end != 0 {
			p := &dateProperty{line: l, name: property}
			if err := p.parseParameters(); err != nil || p.zone == nil {
				return "", false
			}
			return p.zone.location.String(), true
		}
	}
	return "", false
}
