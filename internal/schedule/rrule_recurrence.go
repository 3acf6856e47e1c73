package schedule

import (
	"slices"
	"strings"
)

// frequency is the kind of period that a recurrence repeats in.
type frequency uint8

const (
	yearly frequency = iota
	monthly
	weekly
	daily
	hourly
	minutely
	secondly
)

var frequencies = []string{"YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY"}

func (f frequency) String() string { return frequencies[f] }

// rrule is one RRULE. The lists are as they were written, in order and
// without repetitions; those that were not given are nil.
type rrule struct {
	freq     frequency
	interval int64      // INTERVAL, 1 if it is not given
	count    int64      // COUNT, or 0
	until    *rruleDate // UNTIL, or nil; a date is the whole day
	months   []int      // BYMONTH
	weeks    []int      // BYWEEKNO
	yearDays []int      // BYYEARDAY
	days     []int      // BYMONTHDAY
	weekdays []nthWeekday
	hours    []int
	minutes  []int
	seconds  []int
	setPos   []int
	wkst     int // WKST, 0 for a Sunday; Monday if it is not given

	wallClock
	rrulePattern
	floor   int64 // no wall time before it
	ceiling int64 // no wall time after it: UNTIL on the wall clock
}

// nthWeekday is an element of BYDAY.
type nthWeekday struct {
	n       int // 2 in 2MO, -1 in -1MO, 0 in MO
	weekday int // 0 for a Sunday
}

const weekdayNames = "SUMOTUWETHFRSA"

// rrulePart is one "NAME=value" of a rule.
type rrulePart struct {
	line    *contentLine
	name    string
	value   string
	nameAt  int
	valueAt int
}

func (p *rrulePart) errorAt(i int, format string, args ...any) error {
	return p.line.errorAt(p.valueAt+i, p.name+": "+format, args...)
}

// parseRRule reads the rule that begins at a character of a line.
func parseRRule(l *contentLine, from int) (*rrule, error) {
	r := &rrule{interval: 1, wkst: 1}
	parts := map[string]*rrulePart{}
	text := strings.ToUpper(strings.TrimSuffix(l.text, ";"))
	for item := range strings.SplitSeq(text[min(from, len(text)):], ";") {
		name, value, ok := strings.Cut(item, "=")
		p := &rrulePart{l, name, value, from, from + len(name) + 1}
		switch {
		case !ok:
			return nil, l.errorAt(from, "%q is not of the form NAME=value", truncate(item))
		case parts[name] != nil:
			return nil, l.errorAt(from, "there are two %s parts", truncate(name))
		}
		if err := r.parsePart(p); err != nil {
			return nil, err
		}
		parts[name] = p
		from += len(item) + 1
	}
	if parts["FREQ"] == nil {
		return nil, l.errorAt(0, "FREQ is missing")
	}
	return r, r.checkParts(parts)
}

// parsePart takes one part into the rule.
func (r *rrule) parsePart(p *rrulePart) (err error) {
	switch p.name {
	case "FREQ":
		i := slices.Index(frequencies, p.value)
		if i < 0 {
			return p.errorAt(0, "there is no %q; it is one of %s", truncate(p.value), strings.Join(frequencies, ", "))
		}
		r.freq = frequency(i)
	case "INTERVAL":
		r.interval, err = p.parsePositive(maxInterval)
	case "COUNT":
		r.count, err = p.parsePositive(maxRRuleCount)
	case "UNTIL":
		var m rruleDate
		if m, err = p.line.parseDate(p.valueAt, p.value); err == nil {
			r.until = &m
		}
	case "WKST":
		if r.wkst = weekdayNumber(p.value); r.wkst < 0 {
			return p.errorAt(0, "there is no weekday %q; they are SU, MO, TU, WE, TH, FR and SA", truncate(p.value))
		}
	case "BYDAY":
		r.weekdays, err = p.parseWeekdays()
	case "BYMONTH":
		r.months, err = p.parseNumbers(1, 12, false)
	case "BYWEEKNO":
		r.weeks, err = p.parseNumbers(1, 53, true)
	case "BYYEARDAY":
		r.yearDays, err = p.parseNumbers(1, 366, true)
	case "BYMONTHDAY":
		r.days, err = p.parseNumbers(1, 31, true)
	case "BYHOUR":
		r.hours, err = p.parseNumbers(0, 23, false)
	case "BYMINUTE":
		r.minutes, err = p.parseNumbers(0, 59, false)
	case "BYSECOND":
		r.seconds, err = p.parseNumbers(0, 59, false)
	case "BYSETPOS":
		r.setPos, err = p.parseNumbers(1, 366, true)
	case "BYEASTER":
		return p.line.errorAt(p.nameAt, "BYEASTER is not part of RFC 5545 and not supported")
	default:
		return p.line.errorAt(p.nameAt, "there is no part %q in a rule", truncate(p.name))
	}
	return err
}

const (
	maxInterval   = 1_000_000_000
	maxRRuleCount = 1_000_000 // of COUNT

	// maxSlowTimes is the most for all rules of a set together of which each
	// occurrence has to be looked at to count them.
	maxEnumeratedCount = 100_000
)

// parsePositive reads a number from 1 to most.
func (p *rrulePart) parsePositive(most int) (int64, error) {
	n, err := p.parseNumber(0, p.value, 1, most, false)
	return int64(n), err
}

// parseNumbers reads a list of numbers.
func (p *rrulePart) parseNumbers(low, high int, signed bool) (list []int, err error) {
	pos := 0
	for item := range strings.SplitSeq(p.value, ",") {
		n, err := p.parseNumber(pos, item, low, high, signed)
		if err != nil {
			return nil, err
		}
		list = append(list, n)
		pos += len(item) + 1
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// parseNumber reads a number from low to high. A signed one may also be negative, and
// counts from the end then.
func (p *rrulePart) parseNumber(pos int, text string, low, high int, signed bool) (int, error) {
	digits := text
	if signed && text != "" && (text[0] == '+' || text[0] == '-') {
		digits = text[1:]
	}
	if digits == "" {
		return 0, p.errorAt(pos, "a value is missing")
	}
	n := 0
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return 0, p.errorAt(pos, "%q is not a number", truncate(text))
		}
		n = min(n*10+int(digits[i]-'0'), maxInterval+1)
	}
	switch {
	case (n < low || n > high) && signed:
		return 0, p.errorAt(pos, "%s is out of range, it goes from %d to %d or from -%d to -%d", truncate(text), low, high, high, low)
	case p.name == "BYSECOND" && n == 60:
		return 0, p.errorAt(pos, "60 is a leap second, which no clock here shows; it goes from 0 to 59")
	case n < low || n > high:
		return 0, p.errorAt(pos, "%s is out of range, it goes from %d to %d", truncate(text), low, high)
	case text[0] == '-':
		return -n, nil
	}
	return n, nil
}

// parseWeekdays reads a list such as "MO,2TU,-1FR".
func (p *rrulePart) parseWeekdays() (list []nthWeekday, err error) {
	pos := 0
	for item := range strings.SplitSeq(p.value, ",") {
		split := max(len(item)-2, 0)
		d := nthWeekday{weekday: weekdayNumber(item[split:])}
		if d.weekday < 0 {
			return nil, p.errorAt(pos, "there is no weekday %q; they are SU, MO, TU, WE, TH, FR and SA, with or without a number before them", truncate(item))
		}
		if split > 0 {
			if d.n, err = p.parseNumber(pos, item[:split], 1, 53, true); err != nil {
				return nil, err
			}
		}
		if !slices.Contains(list, d) {
			list = append(list, d)
		}
		pos += len(item) + 1
	}
	return list, nil
}

// weekdayNumber returns 0 for "SU" to 6 for "SA", or -1.
func weekdayNumber(name string) int {
	if i := strings.Index(weekdayNames, name); len(name) == 2 && i%2 == 0 {
		return i / 2
	}
	return -1
}

// checkParts refuses what RFC 5545 does not allow together.
func (r *rrule) checkParts(parts map[string]*rrulePart) error {
	forbid := func(name, format string, args ...any) error {
		p := parts[name]
		return p.line.errorAt(p.nameAt, name+" "+format, args...)
	}
	days := 5 // how many of a weekday there may be where an ordinal counts
	if r.freq == yearly && r.months == nil {
		days = 53
	}
	switch {
	case r.count > 0 && r.until != nil:
		return forbid("COUNT", "and UNTIL exclude each other")
	case r.weeks != nil && r.freq != yearly:
		return forbid("BYWEEKNO", "goes with FREQ=YEARLY only, not with %s", r.freq)
	case r.yearDays != nil && (r.freq == monthly || r.freq == weekly || r.freq == daily):
		return forbid("BYYEARDAY", "does not go with FREQ=%s", r.freq)
	case r.days != nil && r.freq == weekly:
		return forbid("BYMONTHDAY", "does not go with FREQ=WEEKLY")
	case r.setPos != nil && r.months == nil && r.weeks == nil && r.yearDays == nil && r.days == nil && r.weekdays == nil &&
		r.hours == nil && r.minutes == nil && r.seconds == nil:
		return forbid("BYSETPOS", "chooses from what another BY part names, and there is none")
	}
	for _, d := range r.weekdays {
		switch {
		case d.n == 0:
		case r.freq != yearly && r.freq != monthly:
			return forbid("BYDAY", "has numbers with FREQ=MONTHLY and FREQ=YEARLY only, not with %s", r.freq)
		case r.weeks != nil:
			return forbid("BYDAY", "has no numbers together with BYWEEKNO")
		case d.n > days || d.n < -days:
			return forbid("BYDAY", "%d is out of range: a month has at most %d of a weekday", d.n, days)
		}
	}
	return nil
}

// checkDateOnly refuses times of day for a rule that begins on a date without one.
func (r *rrule) checkDateOnly() error {
	if r.hours != nil || r.minutes != nil || r.seconds != nil {
		return errorf(rruleExample, "BYHOUR, BYMINUTE and BYSECOND need a DTSTART with a time of day, such as DTSTART:20260301T000000")
	}
	return nil
}

// needsEnumeration says whether the occurrences of a day cannot be told without
// looking at each.
func (r *rrule) needsEnumeration() bool {
	if r.freq <= daily {
		return r.setPos != nil
	}
	return r.interval > 1 && r.limitsTimeOfDay()
}

// limitsTimeOfDay says whether a rule of hours or less is limited to times of the day.
func (r *rrule) limitsTimeOfDay() bool {
	return r.hours != nil || r.freq >= minutely && r.minutes != nil || r.freq == secondly && r.seconds != nil
}

// prepare prepares a rule of a set for Next.
func (r *rrule) prepare(set *rruleSet, o Options) error {
	if set.dateOnly {
		if err := r.checkDateOnly(); err != nil {
			return err
		}
	}
	r.wallClock = newWallClock(r, set.zone, r.freq >= hourly, o)
	r.rrulePattern = newRRulePattern(r, set.start)
	if r.setPos != nil {
		r.periodicity = r.unit
	}
	r.begin, r.excluded = set.begin, set.exdateGapTimes
	r.floor, r.ceiling = set.start, horizon+2*secondsPerDay
	if periods := r.zone.periods; r.repeat {
		// If the clock goes back behind DTSTART before long, the times it shows again
		// are after DTSTART.
		if i := r.zone.at(r.begin) + 1; i < len(periods) {
			r.floor = min(r.floor, periods[i].start+periods[i].offset)
		}
	}
	if u := r.until; u != nil {
		switch {
		case u.isInstant:
			r.last = min(r.last, u.at)
		case u.dateOnly:
			r.ceiling = min(r.ceiling, u.at+secondsPerDay-1)
		default:
			r.ceiling = min(r.ceiling, u.at)
		}
	}
	if r.count > 0 {
		r.last = min(r.last, r.countEnd())
	}
	// No clock is two days away from UTC.
	r.ceiling = min(r.ceiling, r.last+2*secondsPerDay)
	return nil
}

// nextWall returns the first wall time of the rule that is not before the given
// one, or never.
func (r *rrule) nextWall(from int64) int64 {
	return r.nextMatch(max(from, r.floor), r.ceiling)
}
