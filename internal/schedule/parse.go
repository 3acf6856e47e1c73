package schedule

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
	"weak"
)

// Parse parses the text of a schedule. A text with "FREQ=" is a calendar rule, one
// that begins with "P", or with "R" and has a slash, an interval, one whose first
// word begins with a digit and contains a "T" an instant; everything else is a cron
// expression. All errors are of type *Error.
//
// Rules are shared: as long as a rule is in use, parsing the same text with the
// same options returns it again, whatever Options.Now is.
func Parse(text string, o Options) (Rule, error) {
	key := newRuleKey(text, o)
	r := sharedRules.get(key)
	if r != nil && o.Now.IsZero() {
		return r, nil
	}
	var err error
	if r == nil {
		r, err = parse(text, o)
	}
	if err == nil {
		err = checkFires(r, o.Now)
	}
	if set, ok := r.(*rruleSet); ok && err == nil && !o.Now.IsZero() {
		err = set.checkSteps(maxReadSteps, maxNextSteps)
	}
	if err != nil {
		return nil, err
	}
	return sharedRules.put(key, r), nil
}

// The functions that parse panic with an Error where a text is wrong, and parse and the
// other exported functions catch it: a parser then reads like the grammar.
func parse(text string, o Options) (_ Rule, err error) {
	defer catch(&err)
	n, _ := notationOf(text)
	switch {
	case n == nil:
		panic(errorf(cronExample, "the text is empty"))
	case len(text) > n.maxText:
		panic(errorf(n.example, "the text has %d bytes, the most is %d", len(text), n.maxText))
	case !n.lines && checkCharacters(text) != nil:
		return nil, checkCharacters(text)
	}
	return n.parse(text, o), nil
}

// catch returns the Error of a panic. It must be deferred.
func catch(err *error) {
	switch cause := recover().(type) {
	case nil:
	case *Error:
		*err = cause
	default:
		panic(cause)
	}
}

// notation is a way to write a schedule.
type notation struct {
	matches    func(upper string) bool // tells it from the notations after it
	parse      func(text string, o Options) Rule
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
	parse:      parseRRules,
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

// checkCharacters accepts only printable ASCII characters and tabs, so that columns
// count bytes and characters alike.
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

// splitZone parses a prefix such as "CRON_TZ=Europe/Paris". It returns the name of
// the zone, and where the name and the rest begin.
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

// checkFires refuses a rule without an occurrence after now; see Options.Now. An
// instant that has passed is accepted: its run may be late.
func checkFires(r Rule, now time.Time) error {
	first, example, noTime, parts := time.Unix(-1, 0), cronExample, "no time", "it"
	set, isSet := r.(*rruleSet)
	if isSet {
		first, example, noTime, parts = time.Unix(set.begin-1, 0), rruleExample, "no time from DTSTART on", "its parts"
	}
	from := now
	if now.IsZero() {
		from = first
	}
	_, once := r.(*oneOff)
	next := r.Next(from)
	switch {
	case once, !next.IsZero() && (now.IsZero() || !next.After(now.AddDate(maxYearsAhead, 0, 0))):
		return nil
	case now.IsZero() || isSet && next.IsZero() && r.Next(first).IsZero():
		return errorf(example, "the schedule never fires: %s fits all of %s", noTime, parts)
	case isSet && next.IsZero():
		return errorf(example, "the schedule is over: its last occurrence has passed")
	}
	return errorf(example, "the schedule never fires: nothing in the next %d years fits all of %s", maxYearsAhead, parts)
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
	defer catch(new(error)) // Parse says what is wrong.
	for _, l := range splitContentLines(text) {
		if property, end := propertyName(l.text); property == "DTSTART" && end != 0 {
			p := &dateProperty{line: l, name: property}
			if p.parseParameters(); p.zone == nil {
				break
			}
			return p.zone.location.String(), true
		}
	}
	return "", false
}

type scanner struct {
	text string
	pos  int
}

// peek returns the next character in upper case, or 0 at the end.
func (s *scanner) peek() byte {
	if s.pos >= len(s.text) {
		return 0
	}
	c := s.text[s.pos]
	if 'a' <= c && c <= 'z' {
		c -= 'a' - 'A'
	}
	return c
}

// accept consumes a character if it is the next one.
func (s *scanner) accept(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.pos++
	return true
}

func (s *scanner) digits() string {
	start := s.pos
	for c := s.peek(); '0' <= c && c <= '9'; c = s.peek() {
		s.pos++
	}
	return s.text[start:s.pos]
}

// parseDigits returns the number that digits write, or most+1 if it is larger.
func parseDigits(digits string, most int64) (n int64) {
	for _, c := range digits {
		n = min(n*10+int64(c-'0'), most+1)
	}
	return n
}

// sharedRules holds the rules in use, so that a million jobs of a thousand schedules
// hold a thousand rules. Its pointers are weak: a rule that nobody else holds is
// removed at the next garbage collection.
var sharedRules = ruleCache{rules: map[ruleKey]func() Rule{}}

type ruleCache struct {
	mu    sync.Mutex
	rules map[ruleKey]func() Rule // nil once the rule is gone
}

// ruleKey is everything that a rule depends on.
type ruleKey struct {
	text     string
	timezone string
	skipGap  bool
	overlap  DSTOverlap
	hasStart bool // the rule depends on Options.Start
	start    int64
	micros   int // of the second
}

func newRuleKey(text string, o Options) ruleKey {
	key := ruleKey{text: text, timezone: o.Timezone, skipGap: o.SkipGap, overlap: o.Overlap}
	if !o.Start.IsZero() && NeedsStart(text) {
		key.hasStart, key.start, key.micros = true, o.Start.Unix(), o.Start.Nanosecond()/1000
	}
	return key
}

// get returns a rule that is in use, or nil.
func (c *ruleCache) get(key ruleKey) Rule {
	c.mu.Lock()
	defer c.mu.Unlock()
	if find := c.rules[key]; find != nil {
		return find()
	}
	return nil
}

// put adds a rule, and returns it or an equal one that another goroutine added first.
func (c *ruleCache) put(key ruleKey, r Rule) Rule {
	c.mu.Lock()
	defer c.mu.Unlock()
	if find := c.rules[key]; find != nil {
		if earlier := find(); earlier != nil {
			return earlier
		}
	}
	key.text, key.timezone = strings.Clone(key.text), strings.Clone(key.timezone) // They may be part of a large request.
	switch r := r.(type) {
	case *cron:
		c.rules[key] = weakRule(c, key, r)
	case *durationInterval:
		c.rules[key] = weakRule(c, key, r)
	case *calendarInterval:
		c.rules[key] = weakRule(c, key, r)
	case *rruleSet:
		c.rules[key] = weakRule(c, key, r)
	case *oneOff:
		c.rules[key] = weakRule(c, key, r)
	}
	return r
}

// weakRule returns a function that finds a rule as long as it is in use.
func weakRule[T any, P interface {
	*T
	Rule
}](c *ruleCache, key ruleKey, p P) func() Rule {
	pointer := weak.Make((*T)(p))
	runtime.AddCleanup((*T)(p), c.evict, key)
	return func() Rule {
		if p := pointer.Value(); p != nil {
			return P(p)
		}
		return nil
	}
}

// evict removes a rule that is gone, unless an equal one took its place.
func (c *ruleCache) evict(key ruleKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if find := c.rules[key]; find != nil && find() == nil {
		delete(c.rules, key)
	}
}
