package schedule

import (
	"runtime"
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
	if err != nil {
		return nil, err
	}
	return sharedRules.put(key, r), nil
}

func parse(text string, o Options) (Rule, error) {
	n, _ := notationOf(text)
	switch {
	case n == nil:
		return nil, errorf(cronExample, "the text is empty")
	case len(text) > n.maxText:
		return nil, errorf(n.example, "the text has %d bytes, the most is %d", len(text), n.maxText)
	case !n.lines:
		if err := checkCharacters(text); err != nil {
			return nil, err
		}
	}
	return n.parse(text, o)
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
