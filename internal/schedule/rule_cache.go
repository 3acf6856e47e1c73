package schedule

import (
	"runtime"
	"strings"
	"sync"
	"weak"
)

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
