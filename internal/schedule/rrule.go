package schedule

import (
	"math"
	"slices"
	"time"
)

const maxRRules = 16 // RRULE lines

// rruleSet is a recurrence set in the sense of RFC 5545: the times of its rules and
// RDATEs without those of its EXDATEs. Nothing fires before DTSTART, and DTSTART
// itself fires only if a rule names it. Rules of FREQ=HOURLY and finer are
// interval-like, others and RDATEs fixed-time.
type rruleSet struct {
	zone     *zone
	start    int64 // DTSTART as a wall time
	dateOnly bool  // DTSTART is a date without a time of day
	rules    []*rrule
	rdates   []rruleDate
	exdates  []rruleDate

	begin          int64        // the instant of DTSTART
	clocks         []*wallClock // of the rules and of the RDATEs that are wall times
	rdateInstants  []int64      // the RDATEs that are instants, in order
	exdateInstants []int64      // the instants of the EXDATEs, in order
	exdateGapTimes []int64      // the EXDATEs that the clock skips, as wall times in order

	readSteps, nextSteps int64 // what it took to read the set, and takes to find an occurrence
}

type rruleDate struct {
	at        int64 // a wall time of the set's zone, or an instant
	isInstant bool
	dateOnly  bool // without a time of day; at is midnight
}

// parseRRules parses a recurrence rule such as "FREQ=WEEKLY;BYDAY=MO,WE", alone or
// as one of several property lines.
func parseRRules(text string, o Options) Rule {
	c := &rruleParser{options: o}
	for _, l := range splitContentLines(text) {
		c.parseProperty(l)
	}
	return c.build()
}

func (r *rruleSet) Next(after time.Time) time.Time {
	c := newSetCursor(r)
	return instant(c.next(after.Unix(), horizon))
}

// prepare turns the dates of the set into instants and wall times.
func (r *rruleSet) prepare(o Options, b *budget) {
	for _, d := range r.exdates {
		t, skipped := r.zone.resolve(d.at)
		switch {
		case d.isInstant:
			r.exdateInstants = append(r.exdateInstants, d.at)
		case skipped:
			r.exdateGapTimes = append(r.exdateGapTimes, d.at)
		default:
			r.exdateInstants = append(r.exdateInstants, t)
			if again, later := r.zone.otherInstant(t); later {
				r.exdateInstants = append(r.exdateInstants, again)
			}
		}
	}
	slices.Sort(r.exdateInstants)
	slices.Sort(r.exdateGapTimes)
	for _, rule := range r.rules {
		rule.prepare(r, o, b)
		r.clocks = append(r.clocks, &rule.wallClock)
	}
	var walls wallList
	for _, d := range r.rdates {
		switch {
		case d.isInstant && d.at >= r.begin:
			r.rdateInstants = append(r.rdateInstants, d.at)
		case !d.isInstant && d.at >= r.start:
			walls = append(walls, d.at)
		}
	}
	slices.Sort(r.rdateInstants)
	if len(walls) > 0 {
		slices.Sort(walls)
		c := newWallClock(slices.Compact(walls), r.zone, false, o)
		c.begin, c.excluded, c.budget = r.begin, r.exdateGapTimes, b
		c.last = min(c.last, walls[len(walls)-1]+maxOffset)
		r.clocks = append(r.clocks, &c)
	}
}

// clock returns that of the first rule; all of a set share their zone and options.
func (r *rruleSet) clock() *wallClock { return r.clocks[0] }

// gapTimes is that of wallClock for the whole set, without what the EXDATEs remove.
func (r *rruleSet) gapTimes(i int) (walls []int64) {
	for _, c := range r.clocks {
		if r.zone.periods[i].start <= c.last {
			walls = append(walls, c.gapTimes(i)...)
		}
	}
	slices.Sort(walls)
	return slices.DeleteFunc(slices.Compact(walls), func(wall int64) bool {
		_, removed := slices.BinarySearch(r.exdateGapTimes, wall)
		return removed
	})
}

func (r *rruleSet) hasGapTimes(i int) bool {
	return slices.ContainsFunc(r.clocks, func(c *wallClock) bool { return r.zone.periods[i].start <= c.last && c.hasGapTimes(i) })
}

func (r *rruleSet) namesWall(wall, t int64) bool {
	return slices.ContainsFunc(r.clocks, func(c *wallClock) bool { return c.namesWall(wall, t) }) || slices.Contains(r.rdateInstants, t)
}

// countBetween counts the occurrences after an instant and before another, unless
// each has to be visited: those of several rules may coincide.
func (r *rruleSet) countBetween(from, end time.Time) (n int64, ok bool) {
	rule := r.rules[0]
	if len(r.rules) > 1 || len(r.rdates) > 0 || rule.needsEnumeration() {
		return 0, false
	}
	n, _ = rule.countBetween(from, end)
	for i, t := range r.exdateInstants {
		at := time.Unix(t, 0)
		if at.After(from) && at.Before(end) && (i == 0 || r.exdateInstants[i-1] != t) && rule.next(t-1, t) == t {
			n--
		}
	}
	return n, true
}

// setCursor finds the occurrences of a set one after another. It asks no rule about a
// stretch of time twice, nor more than a day beyond what it finds, so that rules that
// fire rarely cost little beside one that fires often.
type setCursor struct {
	set    *rruleSet
	clocks [maxRRules + 1]struct {
		found int64 // the next instant; unknown unless it is after the last one asked for
		empty int64 // there is none until then
	}
	asked int // how often a rule was
}

func newSetCursor(r *rruleSet) (c setCursor) {
	c.set = r
	for i := range r.clocks {
		c.clocks[i].found, c.clocks[i].empty = math.MinInt64, math.MinInt64
	}
	return c
}

// next returns the first occurrence after an instant and not after the last, or never.
// The instant must not be before that of the call before.
func (c *setCursor) next(t, last int64) int64 {
	t = max(t, c.set.begin-1)
	for span := int64(secondsPerDay); t < last; {
		until := last
		if len(c.set.clocks) > 1 {
			until = min(t+span, last)
		}
		switch next := c.earliest(t, until); {
		case next > until:
			t, span = until, 4*span
		case c.set.excludes(next):
			t = next
		default:
			return next
		}
	}
	return never
}

// earliest returns the first instant after one and not after another of any rule or
// RDATE, or never.
func (c *setCursor) earliest(t, until int64) int64 {
	r, next := c.set, int64(never)
	if i, _ := slices.BinarySearch(r.rdateInstants, t+1); i < len(r.rdateInstants) && r.rdateInstants[i] <= until {
		next = r.rdateInstants[i]
	}
	for i, clock := range r.clocks {
		k := &c.clocks[i]
		if last := min(max(next, t+secondsPerDay), until); k.found <= t && k.empty < last {
			clock.budget.spend(1)
			c.asked++
			if at := clock.next(max(t, k.empty), last); at == never {
				k.empty = last
			} else {
				k.found = at
			}
		}
		if k.found > t && k.found <= until {
			next = min(next, k.found)
		}
	}
	return next
}

func (r *rruleSet) excludes(t int64) bool {
	_, removed := slices.BinarySearch(r.exdateInstants, t)
	return removed
}

// visitBetween counts the occurrences after an instant and before another, or says that
// there may be more.
func (r *rruleSet) visitBetween(from, end time.Time) (n int64, atLeast bool) {
	c := newSetCursor(r)
	last := min(end.Add(-1).Unix(), horizon-1)
	for at := c.next(from.Unix(), last); at != never; at = c.next(at, last) {
		if n == maxEnumerated || c.asked > maxAsked {
			return n, true
		}
		n++
	}
	return n, false
}

// nextUntil is Next for an occurrence before an end; without one it may return any that
// is not before the end, or the zero time.
func nextUntil(r Rule, after, end time.Time) time.Time {
	if set, ok := r.(*rruleSet); ok {
		c := newSetCursor(set)
		return instant(c.next(after.Unix(), min(end.Add(-1).Unix(), horizon)))
	}
	return r.Next(after)
}

// InOrder returns Next of a rule for a caller that asks for one occurrence after
// another, which costs less than asking for each of them alone. The function is not
// safe for concurrent use, and must not be asked for an earlier instant than before.
func InOrder(r Rule) func(after time.Time) time.Time {
	if set, ok := r.(*rruleSet); ok {
		c := newSetCursor(set)
		return func(after time.Time) time.Time { return instant(c.next(after.Unix(), horizon)) }
	}
	return r.Next
}

// Schedules come from strangers, and a few lines of RRULE can name so little, or count
// so much, that finding it takes seconds. A calendar rule therefore has a budget, over
// all its lines: of steps to be read, and of steps to find any of its occurrences. Parse
// refuses one that exceeds it. Steps are counted and not timed: whether a schedule is
// accepted depends on nothing but its text, its options and the zone database.
//
// A schedule that is stored may take twice as many, so that one that was accepted can
// still be read with newer zones, or by a release that counts a little differently.
const (
	maxReadSteps = 100_000 // to read a rule: to find the ends of its COUNTs and its rarest occurrences
	maxNextSteps = 20_000  // of one Next: some 50 years in which every day has to be tried
	storedShare  = 2
)

// budget counts steps, each of which takes 10 to 100 ns. Nil counts nothing: a rule has
// one only while it is read.
type budget struct {
	steps int64 // so far
	most  int64
}

func (b *budget) spend(steps int64) {
	if b != nil {
		b.add(steps)
	}
}

func (b *budget) add(steps int64) {
	if b.steps += steps; b.steps > b.most {
		panic(errTooExpensive)
	}
}

// prepareWithin prepares and measures a set, unless that takes too many steps.
func (r *rruleSet) prepareWithin(o Options, readSteps, nextSteps int64) {
	b := &budget{most: readSteps}
	r.prepare(o, b)
	r.nextSteps = r.measure(b)
	r.readSteps = b.steps
	r.setBudget(nil)
	if err := r.checkSteps(readSteps, nextSteps); err != nil {
		panic(err)
	}
}

func (r *rruleSet) setBudget(b *budget) {
	for _, rule := range r.rules {
		rule.wallPattern.budget = b
	}
	for _, c := range r.clocks {
		c.budget = b
	}
}

// measure returns how many steps it takes at most to find an occurrence. Where it takes
// many the set does not fire for years, so it is asked at the beginning of each year:
// that is right but for the steps of one year. A set that never fires takes none.
func (r *rruleSet) measure(b *budget) (most int64) {
	for t := r.begin - 1; ; {
		before := b.steps
		c := newSetCursor(r)
		next := c.next(t, horizon)
		if next == never && t < r.begin {
			return 0
		}
		if most = max(most, b.steps-before); next == never {
			return most
		}
		year, _, _ := dateOf(floorDiv(next, secondsPerDay))
		t = dayNumber(max(year+1, firstYear), 1, 1)*secondsPerDay - 1
	}
}

func (r *rruleSet) checkSteps(readSteps, nextSteps int64) error {
	if r.readSteps > readSteps || r.nextSteps > nextSteps {
		return errTooExpensive
	}
	return nil
}

var errTooExpensive = errorf(rruleExample, "the schedule takes too long to compute, all its lines together; "+
	"use fewer RRULE lines, UNTIL instead of COUNT, or fewer BY parts beside INTERVAL and BYSETPOS")
