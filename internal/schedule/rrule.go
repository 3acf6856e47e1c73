package schedule

import (
	"slices"
	"time"
)

const (
	// maxCalendarText is the longest text of a calendar rule, in bytes. It leaves
	// room for some 400 dates.
	maxCalendarText = 4096

	// maxRecurrences is how many RRULE lines one text may have.
	maxRecurrences = 16

	calendarExample = "FREQ=WEEKLY;BYDAY=MO,WE;BYHOUR=9"
	anchoredExample = "DTSTART:20260302T090000 RRULE:" + calendarExample
)

// calendarRule is a set of recurrences in the sense of RFC 5545: what its rules
// and its RDATEs name, without what its EXDATEs name. Nothing fires before
// DTSTART, and DTSTART itself fires only if a rule names it.
//
// Rules name wall times, which meet the clock as those of cron expressions do:
// those of FREQ=HOURLY and finer are interval-like, the others fixed-time.
type calendarRule struct {
	zone     *zone
	start    int64 // DTSTART as a wall time
	dated    bool  // DTSTART is a date without a time of day
	anchored bool  // the text has a DTSTART; otherwise it is Options.Start
	rules    []*recurrence
	rdates   []moment
	exdates  []moment

	begin   int64   // the instant of DTSTART
	added   []int64 // the instants of the RDATEs, in order
	removed []int64 // the instants of the EXDATEs, in order
	lost    []int64 // the EXDATEs that the clock skips, as wall times in order
}

// moment is a date or a date and time of a calendar rule.
type moment struct {
	at    int64 // a wall time of the rule's zone, or an instant
	exact bool  // at is an instant
	dated bool  // at is the midnight of a date without a time of day
}

// parseCalendar reads a recurrence rule such as "FREQ=WEEKLY;BYDAY=MO,WE", alone
// or as one of several property lines.
func parseCalendar(text string, o Options) (Rule, error) {
	if len(text) > maxCalendarText {
		return nil, refuseRule("the text has %d bytes, the most for a calendar rule is %d", len(text), maxCalendarText)
	}
	lines, err := calendarLines(text)
	if err != nil {
		return nil, err
	}
	c := &calendarReader{options: o}
	for _, l := range lines {
		if err := c.property(l); err != nil {
			return nil, err
		}
	}
	r, err := c.rule()
	if err != nil {
		return nil, err
	}
	return r, r.checkFires(o.Now)
}

// Next returns the earliest of what the rules and the RDATEs name next, unless an
// EXDATE takes it away.
func (r *calendarRule) Next(after time.Time) time.Time {
	t := max(after.Unix(), r.begin-1)
	for t < horizon {
		next := int64(never)
		for _, rule := range r.rules {
			next = min(next, rule.next(t))
		}
		if i, _ := slices.BinarySearch(r.added, t+1); i < len(r.added) {
			next = min(next, r.added[i])
		}
		if _, removed := slices.BinarySearch(r.removed, next); !removed {
			return instant(next)
		}
		t = next
	}
	return time.Time{}
}

// settle turns the dates of the set into instants, and prepares its rules.
func (r *calendarRule) settle(o Options) error {
	for _, m := range r.exdates {
		switch {
		case m.exact:
			r.removed = append(r.removed, m.at)
		case r.skips(m.at):
			r.lost = append(r.lost, m.at)
		default:
			r.removed = r.instants(r.removed, m.at, true)
		}
	}
	slices.Sort(r.removed)
	slices.Sort(r.lost)
	for _, m := range r.rdates {
		switch {
		case m.exact:
			if m.at >= r.begin {
				r.added = append(r.added, m.at)
			}
		case m.at < r.start || r.skips(m.at) && (o.SkipGap || slices.Contains(r.lost, m.at)):
			// Before DTSTART, or a wall time that never comes.
		default:
			r.added = r.instants(r.added, m.at, o.Overlap == DSTBoth)
		}
	}
	slices.Sort(r.added)
	for _, rule := range r.rules {
		if err := rule.settle(r, o); err != nil {
			return err
		}
	}
	return nil
}

func (r *calendarRule) skips(wall int64) bool {
	_, skipped := r.zone.resolve(wall)
	return skipped
}

// instants appends the instant of a wall time from DTSTART on, and the second one
// if the clock shows it twice and both are wanted.
func (r *calendarRule) instants(list []int64, wall int64, both bool) []int64 {
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
func (r *calendarRule) checkFires(now time.Time) error {
	if !now.IsZero() {
		next := r.Next(now)
		if !next.IsZero() && !next.After(now.AddDate(patience, 0, 0)) {
			return nil
		}
		if next.IsZero() && !r.Next(time.Unix(r.begin-1, 0)).IsZero() {
			return refuseRule("the schedule is over: its last occurrence has passed")
		}
		if !next.IsZero() {
			return refuseRule("the schedule never fires: nothing in the next %d years fits all of its parts", patience)
		}
	} else if !r.Next(time.Unix(r.begin-1, 0)).IsZero() {
		return nil
	}
	return refuseRule("the schedule never fires: no time from DTSTART on fits all of its parts")
}

// refuseRule returns an Error about a calendar rule as a whole.
func refuseRule(format string, args ...any) error {
	e := at(0, calendarExample, format, args...).(*Error)
	e.Column = 0
	return e
}

// clock returns the clock of the first rule; all of a set share their zone and
// options.
func (r *calendarRule) clock() *wallClock { return &r.rules[0].wallClock }

// gapTimes is that of wallClock for all rules and RDATEs, without what the EXDATEs
// remove.
func (r *calendarRule) gapTimes(i int) (walls []int64) {
	start := r.zone.periods[i].start
	for _, rule := range r.rules {
		if start <= rule.last {
			walls = append(walls, rule.gapTimes(i)...)
		}
	}
	for _, d := range r.rdates {
		if t, skipped := r.zone.resolve(d.at); !d.exact && skipped && t == start && d.at >= r.start {
			walls = append(walls, d.at)
		}
	}
	slices.Sort(walls)
	return slices.DeleteFunc(slices.Compact(walls), func(wall int64) bool {
		_, removed := slices.BinarySearch(r.lost, wall)
		return removed
	})
}

// namesWall reports whether a rule or an RDATE names a wall time or its instant.
func (r *calendarRule) namesWall(wall, t int64) bool {
	return slices.ContainsFunc(r.rules, func(rule *recurrence) bool { return rule.namesWall(wall, t) }) ||
		slices.ContainsFunc(r.rdates, func(d moment) bool { return d.exact && d.at == t || !d.exact && d.at == wall })
}

// countBetween counts the occurrences after an instant and before another, unless
// each has to be visited: those of several rules may coincide.
func (r *calendarRule) countBetween(from, end time.Time) (n int64, ok bool) {
	rule := r.rules[0]
	if len(r.rules) > 1 || len(r.added) > 0 || rule.countsSlowly() {
		return 0, false
	}
	n, _ = rule.countBetween(from, end)
	for i, t := range r.removed {
		at := time.Unix(t, 0)
		if at.After(from) && at.Before(end) && (i == 0 || r.removed[i-1] != t) && rule.next(t-1) == t {
			n--
		}
	}
	return n, true
}
