package schedule

import (
	"slices"
	"strings"
)

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

// rrule is one RRULE. Its lists are in order and without repetitions, and nil if
// they are not given.
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
	wallPattern
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

func parseRRule(l *contentLine, from int) *rrule {
	r := &rrule{interval: 1, wkst: 1}
	parts := map[string]*rrulePart{}
	text := strings.ToUpper(strings.TrimSuffix(l.text, ";"))
	for item := range strings.SplitSeq(text[min(from, len(text)):], ";") {
		name, value, ok := strings.Cut(item, "=")
		p := &rrulePart{l, name, value, from, from + len(name) + 1}
		switch {
		case !ok:
			panic(l.errorAt(from, "%q is not of the form NAME=value", item))
		case parts[name] != nil:
			panic(l.errorAt(from, "there are two %s parts", name))
		}
		r.parsePart(p)
		parts[name] = p
		from += len(item) + 1
	}
	if parts["FREQ"] == nil {
		panic(l.errorAt(0, "FREQ is missing"))
	}
	r.checkParts(parts)
	return r
}

func (r *rrule) parsePart(p *rrulePart) {
	switch p.name {
	case "FREQ":
		i := slices.Index(frequencies, p.value)
		if i < 0 {
			panic(p.errorAt(0, "unknown frequency %q; use one of "+strings.Join(frequencies, ", "), p.value))
		}
		r.freq = frequency(i)
	case "INTERVAL":
		r.interval = p.parsePositive(maxInterval)
	case "COUNT":
		r.count = p.parsePositive(maxRRuleCount)
	case "UNTIL":
		m := p.line.parseDate(p.valueAt, p.value)
		r.until = &m
	case "WKST":
		if r.wkst = weekdayNumber(p.value); r.wkst < 0 {
			panic(p.errorAt(0, "unknown weekday %q; use SU, MO, TU, WE, TH, FR or SA", p.value))
		}
	case "BYDAY":
		r.weekdays = p.parseWeekdays()
	case "BYEASTER":
		panic(p.line.errorAt(p.nameAt, "BYEASTER is not part of RFC 5545 and not supported"))
	default:
		for _, l := range r.numberLists() {
			if l.name == p.name {
				*l.values = p.parseNumbers(l.low, l.high, l.signed)
				return
			}
		}
		panic(p.line.errorAt(p.nameAt, "unknown part %q", p.name))
	}
}

type numberList struct {
	name      string
	values    *[]int
	low, high int
	signed    bool // negative numbers count from the end
}

func (r *rrule) numberLists() [8]numberList {
	return [8]numberList{
		{"BYMONTH", &r.months, 1, 12, false},
		{"BYWEEKNO", &r.weeks, 1, 53, true},
		{"BYYEARDAY", &r.yearDays, 1, 366, true},
		{"BYMONTHDAY", &r.days, 1, 31, true},
		{"BYHOUR", &r.hours, 0, 23, false},
		{"BYMINUTE", &r.minutes, 0, 59, false},
		{"BYSECOND", &r.seconds, 0, 59, false},
		{"BYSETPOS", &r.setPos, 1, 366, true},
	}
}

const (
	maxInterval   = 1_000_000_000
	maxRRuleCount = 1_000_000 // of COUNT
)

func (p *rrulePart) parsePositive(most int) int64 {
	return int64(p.parseNumber(0, p.value, 1, most, false))
}

func (p *rrulePart) parseNumbers(low, high int, signed bool) (list []int) {
	pos := 0
	for item := range strings.SplitSeq(p.value, ",") {
		list = append(list, p.parseNumber(pos, item, low, high, signed))
		pos += len(item) + 1
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// parseNumber parses a number from low to high, or from -high to -low if it is signed.
func (p *rrulePart) parseNumber(pos int, text string, low, high int, signed bool) int {
	digits := text
	if signed && text != "" && (text[0] == '+' || text[0] == '-') {
		digits = text[1:]
	}
	if digits == "" {
		panic(p.errorAt(pos, "a value is missing"))
	}
	if strings.Trim(digits, "0123456789") != "" {
		panic(p.errorAt(pos, "%q is not a number", text))
	}
	switch n := int(parseDigits(digits, maxInterval)); {
	case (n < low || n > high) && signed:
		panic(p.errorAt(pos, "%s is out of range, it goes from %d to %d or from -%d to -%d", text, low, high, high, low))
	case p.name == "BYSECOND" && n == 60:
		panic(p.errorAt(pos, "60 is a leap second, which no clock here shows; it goes from 0 to 59"))
	case n < low || n > high:
		panic(p.errorAt(pos, "%s is out of range, it goes from %d to %d", text, low, high))
	case text[0] == '-':
		return -n
	default:
		return n
	}
}

// parseWeekdays parses a list such as "MO,2TU,-1FR".
func (p *rrulePart) parseWeekdays() (list []nthWeekday) {
	pos := 0
	for item := range strings.SplitSeq(p.value, ",") {
		split := max(len(item)-2, 0)
		d := nthWeekday{weekday: weekdayNumber(item[split:])}
		if d.weekday < 0 {
			panic(p.errorAt(pos, "unknown weekday %q; use SU, MO, TU, WE, TH, FR or SA, with or without a number before them", item))
		}
		if split > 0 {
			d.n = p.parseNumber(pos, item[:split], 1, 53, true)
		}
		if !slices.Contains(list, d) {
			list = append(list, d)
		}
		pos += len(item) + 1
	}
	return list
}

// weekdayNumber returns 0 for "SU" to 6 for "SA", or -1.
func weekdayNumber(name string) int {
	if i := strings.Index(weekdayNames, name); len(name) == 2 && i%2 == 0 {
		return i / 2
	}
	return -1
}

// checkParts refuses what RFC 5545 does not allow together.
func (r *rrule) checkParts(parts map[string]*rrulePart) {
	forbid := func(name, format string, args ...any) error {
		p := parts[name]
		return p.line.errorAt(p.nameAt, name+" "+format, args...)
	}
	days := 5 // of the same weekday in a month or year
	if r.freq == yearly && r.months == nil {
		days = 53
	}
	switch {
	case r.count > 0 && r.until != nil:
		panic(forbid("COUNT", "and UNTIL exclude each other"))
	case r.weeks != nil && r.freq != yearly:
		panic(forbid("BYWEEKNO", "requires FREQ=YEARLY, not %s", r.freq))
	case r.yearDays != nil && (r.freq == monthly || r.freq == weekly || r.freq == daily):
		panic(forbid("BYYEARDAY", "cannot be combined with FREQ=%s", r.freq))
	case r.days != nil && r.freq == weekly:
		panic(forbid("BYMONTHDAY", "cannot be combined with FREQ=WEEKLY"))
	case r.setPos != nil && r.months == nil && r.weeks == nil && r.yearDays == nil && r.days == nil && r.weekdays == nil &&
		r.hours == nil && r.minutes == nil && r.seconds == nil:
		panic(forbid("BYSETPOS", "requires another BY part to choose from"))
	}
	for _, d := range r.weekdays {
		switch {
		case d.n == 0:
		case r.freq != yearly && r.freq != monthly:
			panic(forbid("BYDAY", "allows numbers only with FREQ=MONTHLY and FREQ=YEARLY, not with %s", r.freq))
		case r.weeks != nil:
			panic(forbid("BYDAY", "allows no numbers together with BYWEEKNO"))
		case d.n > days || d.n < -days:
			panic(forbid("BYDAY", "%d is out of range: a month has at most %d of a weekday", d.n, days))
		}
	}
}

// needsEnumeration reports whether occurrences can only be counted one by one.
func (r *rrule) needsEnumeration() bool {
	return r.freq >= hourly && r.interval > 1 && r.limitsTimeOfDay()
}

// limitsTimeOfDay reports whether a rule of hours or less has times of day without units.
func (r *rrule) limitsTimeOfDay() bool {
	return r.hours != nil || r.freq >= minutely && r.minutes != nil || r.freq == secondly && r.seconds != nil
}

func (r *rrule) prepare(set *rruleSet, o Options, b *budget) {
	if set.dateOnly && (r.hours != nil || r.minutes != nil || r.seconds != nil) {
		panic(errorf(rruleExample, "BYHOUR, BYMINUTE and BYSECOND need a DTSTART with a time of day, such as DTSTART:20260301T000000"))
	}
	r.wallClock = newWallClock(r, set.zone, r.freq >= hourly, o)
	r.wallPattern = newWallPattern(r, set.start, b)
	if r.setPos != nil {
		r.periodicity = r.unit
	}
	r.wallClock.budget = b
	r.begin, r.excluded = set.begin, set.exdateGapTimes
	r.floor, r.ceiling = set.start, horizon+maxOffset
	if periods := r.zone.periods; r.repeat {
		// If the clock soon goes back behind DTSTART, the times that it repeats are
		// after DTSTART.
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
	if r.nextMatch(r.floor, r.ceiling) == never {
		r.neverMatches = true // It need not be searched again.
	}
	if r.count > 0 {
		r.last = min(r.last, r.countEnd())
	}
	r.ceiling = min(r.ceiling, r.last+maxOffset)
}

func (r *rrule) nextWall(from, limit int64) int64 {
	return r.nextMatch(max(from, r.floor), min(limit, r.ceiling))
}
