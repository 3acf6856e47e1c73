package schedule

import (
	"runtime"
	"strings"
	"sync"
	"weak"
)

// sharedRules holds the rules in use, so that a million jobs of a thousand schedules
// hold a thousand rules. It does not keep them: a rule that nobody else holds is
// forgotten at the next garbage collection.
var sharedRules = ruleCache{rules: map[ruleKey]func() Rule{}}

type ruleCache struct {
	mu    sync.Mutex
	rules map[ruleKey]func() Rule // nil once the rule is gone
}

// ruleKey is all that a rule depends on.
type ruleKey struct {
	text     string
	timezone string
	skipGap  bool
	overlap  DSTOverlap
	anchored bool // it depends on the start beside the text
	start    int64
	micros   int // of the second
}

// newRuleKey returns the key of a text with its options. What a text without need for a
// start says does not depend on one.
func newRuleKey(text string, o Options) ruleKey {
	key := ruleKey{text: text, timezone: o.Timezone, skipGap: o.SkipGap, overlap: o.Overlap}
	if !o.Start.IsZero() && needsStart(text) {
		key.anchored, key.start, key.micros = true, o.Start.Unix(), o.Start.Nanosecond()/1000
	}
	return key
}

// needsStart reports whether a rule may depend on the start beside its text.
func needsStart(text string) bool {
	upper := strings.ToUpper(strings.TrimSpace(text))
	switch {
	case upper == "":
		return false
	case isRRule(upper):
		return !strings.Contains(upper, "DTSTART")
	case isInterval(upper):
		return strings.Count(upper, "/") < 2
	}
	return strings.Contains(upper, "@EVERY")
}

func (s *ruleCache) get(key ruleKey) (Rule, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if find := s.rules[key]; find != nil {
		r := find()
		return r, r != nil
	}
	return nil, false
}

// put shares a rule, and returns it or an equal one that somebody shared first.
func (s *ruleCache) put(key ruleKey, r Rule) Rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	if find := s.rules[key]; find != nil {
		if earlier := find(); earlier != nil {
			return earlier
		}
	}
	key.text, key.timezone = strings.Clone(key.text), strings.Clone(key.timezone) // They may be part of a large request.
	switch r := r.(type) {
	case *cron:
		s.rules[key] = weakRule(s, key, r)
	case *durationInterval:
		s.rules[key] = weakRule(s, key, r)
	case *calendarInterval:
		s.rules[key] = weakRule(s, key, r)
	case *mixedInterval:
		s.rules[key] = weakRule(s, key, r)
	case *rruleSet:
		s.rules[key] = weakRule(s, key, r)
	case *oneOff:
		s.rules[key] = weakRule(s, key, r)
	}
	return r
}

// weakRule returns a function that finds a rule as long as somebody else holds it.
func weakRule[T any, P interface {
	*T
	Rule
}](s *ruleCache, key ruleKey, p P) func() Rule {
	pointer := weak.Make((*T)(p))
	runtime.AddCleanup((*T)(p), s.evict, key)
	return func() Rule {
		if p := pointer.Value(); p != nil {
			return P(p)
		}
		return nil
	}
}

// evict takes a rule out that is gone, unless an equal one took its place.
func (s *ruleCache) evict(key ruleKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if find := s.rules[key]; find != nil && find() == nil {
		delete(s.rules, key)
	}
}
