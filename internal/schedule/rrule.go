package schedule

import (
	"slices"
	"time"
)

const (
	// maxCalendarText is the longest text of a calendar rule, in bytes. It leaves
	// room for some 400 dates.
	maxRRuleText = 4096

	// maxRecurrences is how many RRULE lines one text may have.
	maxRRules = 16
)

// rruleSet is a set of recurrences in the sense of RFC 5545: what its rules
// and its RDATEs name, without what its EXDATEs name. Nothing fires before
// DTSTART, and DTSTART itself fires only if a rule names it.
//
// Rules name wall times, which meet the clock as those of cron expressions do:
// those of FREQ=HOURLY and finer are interval-like, the others fixed-time.
type rruleSet struct {
	zone     *zone
	start    int64 // DTSTART as a wall time
	dateOnly bool  // DTSTART is a date without a time of day
	anchored bool  // the text has a DTSTART; otherwise it is Options.Start
	rules    []*rrule
	rdates   []rruleDate
	exdates  []rruleDate

	begin          int64   // the instant of DTSTART
	rdateInstants  []int64 // the instants of the RDATEs, in order
	exdateInstants []int64 // the instants of the EXDATEs, in order
	exdateGapTimes []int64 // the EXDATEs that the clock skips, as wall times in order
}

// rruleDate is a date or a date and time of a calendar rule.
type rruleDate struct {
	at        int64 // a wall time of the rule's zone, or an instant
	isInstant bool  // at is an instant
	dateOnly  bool  // at is the midnight of a date without a time of day
}

// parseRRuleSet reads a recurrence rule such as "FREQ=WEEKLY;BYDAY=MO,WE", alone
// or as one of several property lines.
func parseRRuleSet(text string, o Options) (Rule, error) {
	if len(text) > maxRRuleText {
		return nil, errorf(rruleExample, "the text has %d bytes, the most for a calendar rule is %d", len(text), maxRRuleText)
	}
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

// Next returns the earliest of what the rules and the RDATEs name next, unless an
// EXDATE takes it away.
func (r *rruleSet) Next(after time.Time) time.Time {
	t := max(after.Unix(), r.begin-1)
	for t < horizon {
		next := int64(never)
		for _, rule := range r.rules {
			next = min(next, rule.next(t))
		}
		if i, _ := slices.BinarySearch(r.rdateInstants, t+1); i < len(r.rdateInstants) {
			next = min(next, r.rdateInstants[i])
		}
		if _, removed := slices.BinarySearch(r.exdateInstants, next); !removed {
			return instant(next)
		}
		t = next
	}
	return time.Time{}
}

// prepare turns the dates of the set into instants, and prepares its rules.
func (r *rruleSet) prepare(o Options) error {
	for _, m := range r.exdates {
		switch {
		case m.isInstant:
			r.exdateInstants = append(r.exdateInstants, m.at)
		case r.inGap(m.at):
			r.exdateGapTimes = append(r.exdateGapTimes, m.at)
		default:
			r.exdateInstants = r.instants(r.exdateInstants, m.at, true)
		}
	}
	slices.Sort(r.exdateInstants)
	slices.Sort(r.exdateGapTimes)
	for _, m := range r.rdates {
		switch {
		case m.isInstant:
			if m.at >= r.begin {
				r.rdateInstants = append(r.rdateInstants, m.at)
			}
		case m.at < r.start || r.inGap(m.at) && (o.SkipGap || slices.Contains(r.exdateGapTimes, m.at)):
			// Before DTSTART, or a wall time that never comes.
		default:
			r.rdateInstants = r.instants(r.rdateInstants, m.at, o.Overlap == DSTBoth)
		}
	}
	slices.Sort(r.rdateInstants)
	for _, rule := range r.rules {
		if err := rule.prepare(r, o); err != nil {
			return err
		}
	}
	return nil
}

func (r *rruleSet) inGap(wall int64) bool {
	_, skipped := r.zone.resolve(wall)
	return skipped
}

// instants appends the instant of a wall time from DTSTART on, and the second one
// if the clock shows it twice and both are wanted.
func (r *rruleSet) instants(list []int64, wall int64, both bool) []int64 {
	first, skipped := r.zone.resolve(wall)
	if first >= r.begin {
		list = append(list, first)
	}
	if skipped || first >= r.begin && !both {
		return list
	}
	periods := r.zone.periods
	if i := r.zone.at(first); i+1 < len(periods) {
		second := wall - periods[i+1].offset
		if second >= periods[i+1].start && second >= r.begin && second > first {
			list = append(list, second)
		}
	}
	return list
}

// checkFires refuses a rule without an occurrence; see Options.Now.
func (r *rruleSet) checkFires(now time.Time) error {
	if !now.IsZero() {
		next := r.Next(now)
		if !next.IsZero() && !next.After(now.AddDate(maxYearsAhead, 0, 0)) {
			return nil
		}
		if next.IsZero() && !r.Next(time.Unix(r.begin-1, 0)).IsZero() {
			return errorf(rruleExample, "the schedule is over: its last occurrence has passed")
		}
		if !next.IsZero() {
			return errorf(rruleExample, "the schedule never fires: nothing in the next %d years fits all of its parts", maxYearsAhead)
		}
	} else if !r.Next(time.Unix(r.begin-1, 0)).IsZero() {
		return nil
	}
	return errorf(rruleExample, "the schedule never fires: no time from DTSTART on fits all of its parts")
}

// clock returns the clock of the first rule; all of a set share their zone and
// options.
func (r *rruleSet) clock() *wallClock { return &r.rules[0].wallClock }

// gapTimes is that of wallClock for all rules and RDATEs, without what the EXDATEs
// remove.
func (r *rruleSet) gapTimes(i int) (walls []int64) {
	start := r.zone.periods[i].start
	for _, rule := range r.rules {
		if start <= rule.last {
			walls = append(walls, rule.gapTimes(i)...)
		}
	}
	for _, d := range r.rdates {
		if t, skipped := r.zone.resolve(d.at); !d.isInstant && skipped && t == start && d.at >= r.start {
			walls = append(walls, d.at)
		}
	}
	slices.Sort(walls)
	return slices.DeleteFunc(slices.Compact(walls), func(wall int64) bool {
		_, removed := slices.BinarySearch(r.exdateGapTimes, wall)
		return removed
	})
}

// namesWall reports whether a rule or an RDATE names a wall time or its instant.
func (r *rruleSet) namesWall(wall, t int64) bool {
	return slices.ContainsFunc(r.rules, func(rule *rrule) bool { return rule.namesWall(wall, t) }) ||
		slices.ContainsFunc(r.rdates, func(d rruleDate) bool { return d.isInstant && d.at == t || !d.isInstant && d.at == wall })
}

// countBetween counts the occurrences after an instant and before another, unless
// each has to be visited: those of several rules may coincide.
func (r *rruleSet) countBetween(from, end time.Time) (n int64, ok bool) {
	rule := r.rules[0]
	if len(r.rules) > 1 || len(r.rdateInstants) > 0 || rule.needsEnumeration() {
		return 0, false
	}
	n, _ = rule.countBetween(from, end)
	for i, t := range r.exdateInstants {
		at := time.Unix(t, 0)
		if at.After(from) && at.Before(end) && (i == 0 || r.exdateInstants[i-1] != t) && rule.next(t-1) == t {
			n--
		}
	}
	return n, true
}
