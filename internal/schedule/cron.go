package schedule

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// cron is a parsed cron expression. Its sets have bit n for the n-th value of
// their range.
type cron struct {
	wallClock

	times  timeSet
	months uint64
	years  *bitset // from 1970 on; nil means every year
	days   monthTable

	dayFields *dayFields // the source of days
	text      string     // the fields as they were written, macros expanded
}

// monthTable holds the matching days of a month, bit 0 for the first. All a month's
// days depend on is how long it is and on which weekday it begins.
type monthTable [4][7]uint32

func (c *cron) nextWall(wall, _ int64) int64 {
	today := floorDiv(wall, secondsPerDay)
	day := c.nextDay(today)
	if day == today {
		if s := c.times.next(int(wall - today*secondsPerDay)); s >= 0 {
			return today*secondsPerDay + int64(s)
		}
		day = c.nextDay(today + 1)
	}
	if day == never {
		return never
	}
	return day*secondsPerDay + int64(c.times.next(0))
}

func (c *cron) hasWall(wall int64) bool { return c.nextWall(wall, wall) == wall }

// nextDay returns the first matching day from the given one on, or never.
func (c *cron) nextDay(from int64) int64 {
	year, month, day := dateOf(from)
	for ; year <= lastYear+1; year, month, day = year+1, 1, 1 {
		if c.years != nil {
			next := c.years.next(year - firstYear)
			if next < 0 {
				return never
			}
			if next += firstYear; next != year {
				year, month, day = next, 1, 1
			}
		}
		for left := c.months >> (month - 1) << (month - 1); left != 0; left &= left - 1 {
			if m := bits.TrailingZeros64(left) + 1; m != month {
				month, day = m, 1
			}
			first := dayNumber(year, month, 1)
			matching := c.days[monthLength(year, month)-28][weekdayOf(first)]
			if matching = matching >> (day - 1) << (day - 1); matching != 0 {
				return first + int64(bits.TrailingZeros32(matching))
			}
		}
	}
	return never
}

// dayFields holds the two day fields of an expression. Bit n of a set of days
// stands for day n+1; bit n of a set counted from the end for the
// day n days before the last; bit n of a set of weekdays for weekday n.
type dayFields struct {
	days        uint64 // 15
	last        uint64 // L, L-3
	nearest     uint64 // 15W: the weekday nearest to the day
	lastNearest uint64 // LW, L-3W

	weekdays    uint64    // FRI
	nth         [5]uint64 // FRI#2 is in nth[1]
	lastWeekday uint64    // FRIL

	eitherField bool // both fields are restricted, so that one of them is enough
}

func (f *dayFields) monthTable() (d monthTable) {
	for length := 28; length <= 31; length++ {
		for first := range 7 {
			byDay, byWeekday := f.byDay(length, first), f.byWeekday(length, first)
			if f.eitherField {
				d[length-28][first] = byDay | byWeekday
			} else {
				d[length-28][first] = byDay & byWeekday
			}
		}
	}
	return d
}

func (f *dayFields) byDay(length, first int) uint32 {
	fromEnd := func(set uint64) uint64 { return bits.Reverse64(set) >> (64 - length) }
	matching := f.days | fromEnd(f.last)
	for near := f.nearest | fromEnd(f.lastNearest); near != 0; near &= near - 1 {
		if day := bits.TrailingZeros64(near) + 1; day <= length {
			matching |= 1 << (workday(day, length, first) - 1)
		}
	}
	return uint32(matching & (1<<length - 1))
}

func (f *dayFields) byWeekday(length, first int) uint32 {
	// week lays a set of weekdays out from the first of the month on.
	week := func(set uint64) uint64 { return (set>>first | set<<(7-first)) & (1<<7 - 1) }
	var matching uint64
	for i, nth := range f.nth {
		seven := 7 * i
		matching |= week(f.weekdays|nth) << seven
		matching |= week(f.lastWeekday) << seven & ((1<<7 - 1) << (length - 7))
	}
	return uint32(matching & (1<<length - 1))
}

// workday returns the day from Monday to Friday that is nearest to the given one
// and in the same month.
func workday(day, length, first int) int {
	switch (first + day - 1) % 7 {
	case 6: // Saturday
		if day == 1 {
			return 3
		}
		return day - 1
	case 0: // Sunday
		if day == length {
			return day - 2
		}
		return day + 1
	}
	return day
}

func (c *cron) countWalls(from, end int64) int64 {
	firstDay, lastDay := floorDiv(from, secondsPerDay), floorDiv(end, secondsPerDay)
	n := c.countDays(firstDay, lastDay) * int64(c.times.len)
	if c.nextDay(lastDay) == lastDay {
		n += int64(c.times.rank(int(end - lastDay*secondsPerDay)))
	}
	if c.nextDay(firstDay) == firstDay {
		n -= int64(c.times.rank(int(from - firstDay*secondsPerDay)))
	}
	return n
}

func (c *cron) countDays(from, end int64) (n int64) {
	year, month, day := dateOf(from)
	for first := from - int64(day) + 1; first < end; {
		length := monthLength(year, month)
		if c.months>>(month-1)&1 != 0 && (c.years == nil || c.years.has(year-firstYear)) {
			matching := c.days[length-28][weekdayOf(first)]
			if first < from {
				matching = matching >> (from - first) << (from - first)
			}
			if left := end - first; left < int64(length) {
				matching &= 1<<left - 1
			}
			n += int64(bits.OnesCount32(matching))
		}
		first += int64(length)
		if month++; month > 12 {
			year, month = year+1, 1
		}
	}
	return n
}

// Resolve replaces every H of a cron expression by a value that depends only on the
// id and the field, so that jobs that may run at any time do not all run at once. H
// is one value of the field, H/15 every fifteenth value from one of the first 15
// on, and H(0-29) and H(0-29)/10 keep to the range. Parse accepts the result. A text
// without an H is returned unchanged.
func Resolve(text string, id [16]byte) (resolved string, changed bool, err error) {
	defer catch(&err)
	if !strings.ContainsAny(text, "hH") {
		return text, false, nil
	}
	if n, _ := notationOf(text); n != &cronNotation || len(text) > n.maxText || checkCharacters(text) != nil {
		return text, false, nil
	}
	_, _, rest, _ := splitZone(text)
	words := splitWords(text, rest)
	if len(words) == 0 || words[0].text[0] == '@' {
		return text, false, nil
	}
	layout := cronLayouts[len(words)]
	var b strings.Builder
	copied := 0 // bytes of the text
	for i, w := range words {
		if !containsH(w.text) {
			continue
		}
		if layout == nil {
			panic(errorAt(w.pos, cronExample, "H is only allowed in a cron expression of 5, 6 or 7 fields"))
		}
		b.WriteString(text[copied:w.pos])
		b.WriteString(resolveField(layout[i], w, id))
		copied = w.pos + len(w.text)
	}
	b.WriteString(text[copied:])
	return b.String(), copied > 0, nil
}

// containsH reports whether a field contains an H that is not part of a name.
func containsH(field string) bool {
	letter := func(i int) bool {
		return i >= 0 && i < len(field) && (field[i]|0x20 >= 'a' && field[i]|0x20 <= 'z')
	}
	for i := range len(field) {
		if field[i]|0x20 == 'h' && !letter(i-1) && !letter(i+1) {
			return true
		}
	}
	return false
}

func resolveField(f *cronField, w word, id [16]byte) string {
	p := &fieldParser{field: f, itemAt: w.pos}
	var items []string
	for item := range strings.SplitSeq(w.text, ",") {
		p.scanner = scanner{text: item}
		resolved := item
		if p.accept('H') {
			resolved = p.parseHash(id)
		} else if containsH(item) {
			panic(p.errorAt(0, "H must begin a list item, as in H, H/2 or H(1-5)"))
		}
		items = append(items, resolved)
		p.itemAt += len(item) + 1
	}
	return strings.Join(items, ",")
}

// parseHash parses what follows an H and returns the item that replaces it.
func (p *fieldParser) parseHash(id [16]byte) string {
	f := p.field
	if f.hashHigh == 0 {
		panic(p.errorAt(0, "there is no H for years"))
	}
	low, high := f.low, f.hashHigh
	if p.accept('(') {
		low, high = p.parseHashRange()
	}
	step := p.parseStep(0)
	p.expectEnd()
	choices := high - low + 1
	if choices <= 0 {
		choices += f.size() // across the end of the range
	}
	if step > 0 {
		choices = min(step, choices)
	}
	value := low + int(scaleHash(fieldHash(id, f.number), uint64(choices)))
	if value > f.most {
		value -= f.size()
	}
	if step == 0 {
		return strconv.Itoa(value)
	}
	return fmt.Sprintf("%d-%d/%d", value, high, step)
}

func (p *fieldParser) parseHashRange() (low, high int) {
	start := p.pos
	low = p.parseValue()
	if !p.accept('-') {
		panic(p.errorAt(p.pos, "the range after H has the form (a-b)"))
	}
	high = p.parseValue()
	if !p.accept(')') {
		panic(p.errorAt(p.pos, "a parenthesis is missing after %q", p.text[start:p.pos]))
	}
	return low, high
}

// fieldHash is the FNV-1a hash of an id and a number.
func fieldHash(id [16]byte, number byte) uint64 {
	h := uint64(fnvOffset)
	for _, b := range id {
		h = (h ^ uint64(b)) * fnvPrime
	}
	return (h ^ uint64(number)) * fnvPrime
}

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// scaleHash turns a hash into a number from 0 to n-1. The hashes of one id and two
// fields differ in few bits; without mixing them, as MurmurHash3 does, hours would
// follow minutes.
func scaleHash(h, n uint64) int64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	scaled, _ := bits.Mul64(h^h>>33, n)
	return int64(scaled)
}

// Jitter returns how much later than its occurrence a job runs, so that jobs that are
// due at the same time do not start at once. It depends only on its arguments: the
// job, the occurrence, the most that the job allows, and the gap to the occurrence
// after it, 0 if there is none. Over jobs and occurrences it is uniform from 0 to
// most, in microseconds; it ends a second before the next occurrence.
func Jitter(id [16]byte, at time.Time, most, gap time.Duration) time.Duration {
	if gap > 0 {
		most = min(most, gap-time.Second)
	}
	if most < time.Microsecond {
		return 0
	}
	h, micros := fieldHash(id, 'j'), uint64(at.UnixMicro())
	for shift := 56; shift >= 0; shift -= 8 {
		h = (h ^ micros>>shift&0xff) * fnvPrime
	}
	return time.Duration(scaleHash(h, uint64(most.Microseconds())+1)) * time.Microsecond
}
