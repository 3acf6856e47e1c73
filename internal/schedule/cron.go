package schedule

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// cron is a parsed cron expression: wall times of every day on its dates.
type cron struct {
	wallClock
	wallPattern

	months    uint64     // bit 0 for January
	dayFields *dayFields // with the months, the source of the dates
	text      string     // the fields as they were written, macros expanded
}

func (c *cron) nextWall(from, limit int64) int64 { return c.nextMatch(from, limit) }

func (c *cron) countWalls(from, end int64) int64 { return c.countMatches(from, end) }

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

// monthTable holds the matching days of a month, bit 0 for the first. All a month's
// days depend on is how long it is and on which weekday it begins.
type monthTable [4][7]uint64

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

// yearTable lays the days of some months out in the year.
func (f *dayFields) yearTable(months uint64) (table yearTable) {
	days := f.monthTable()
	for row, leap := range [...]bool{true, false} {
		table[row] = new([7]daySet)
		for weekday := range table[row] {
			set, first := &table[row][weekday], 0
			for month := 1; month <= 12; month++ {
				length := yearMonthLength(leap, month)
				if months>>(month-1)&1 != 0 {
					set.addBits(first, days[length-28][(weekday+first)%7])
				}
				first += length
			}
		}
	}
	table[2], table[3] = table[1], table[1]
	return table
}

// everyDay reports whether the fields together are no restriction.
func (f *dayFields) everyDay() bool {
	anyDay, anyWeekday := f.days == allBits(31), f.weekdays == allBits(7)
	return anyDay && anyWeekday || f.eitherField && (anyDay || anyWeekday)
}

func (f *dayFields) byDay(length, first int) uint64 {
	fromEnd := func(set uint64) uint64 { return bits.Reverse64(set) >> (64 - length) }
	matching := f.days | fromEnd(f.last)
	for near := f.nearest | fromEnd(f.lastNearest); near != 0; near &= near - 1 {
		if day := bits.TrailingZeros64(near) + 1; day <= length {
			matching |= 1 << (workday(day, length, first) - 1)
		}
	}
	return matching & (1<<length - 1)
}

func (f *dayFields) byWeekday(length, first int) uint64 {
	// week lays a set of weekdays out from the first of the month on.
	week := func(set uint64) uint64 { return (set>>first | set<<(7-first)) & (1<<7 - 1) }
	var matching uint64
	for i, nth := range f.nth {
		seven := 7 * i
		matching |= week(f.weekdays|nth) << seven
		matching |= week(f.lastWeekday) << seven & ((1<<7 - 1) << (length - 7))
	}
	return matching & (1<<length - 1)
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
