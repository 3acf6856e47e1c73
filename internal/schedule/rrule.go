package schedule

import (
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

// parseRRuleSet parses a recurrence rule such as "FREQ=WEEKLY;BYDAY=MO,WE", alone or
// as one of several property lines.
func parseRRuleSet(text string, o Options) (Rule, error) {
	lines, err := splitContentLines(text)
	if err != nil {
		return nil, err
	}
	c := &rruleParser{options: o}
	for _, l := range lines {
		if err := c.parseProperty(l); err != nil {
			return nil, err
		}
	}
	return c.build()
}

func (r *rruleSet) Next(after time.Time) time.Time {
	c := newSetCursor(r)
	return instant(c.next(after.Unix(), horizon))
}

// prepare turns the dates of the set into instants and wall times.
func (r *rruleSet) prepare(o Options, b *budget) error {
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
		if err := rule.prepare(r, o, b); err != nil {
			return err
		}
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
	return nil
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
