package schedule

import (
	"encoding/binary"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// hashRanges is where the H of a field picks its value, unless it says itself. Not
// every month has the days after the 28th.
var hashRanges = map[*cronField][2]int{
	secondField:  {0, 59},
	minuteField:  {0, 59},
	hourField:    {0, 23},
	dayField:     {1, 28},
	monthField:   {1, 12},
	weekdayField: {0, 6},
}

// fieldNumbers numbers the fields, the same for expressions with and without
// seconds, so that adding them moves nothing.
var fieldNumbers = map[*cronField]byte{
	secondField: 0, minuteField: 1, hourField: 2, dayField: 3, monthField: 4, weekdayField: 5, yearField: 6,
}

// Resolve gives every H of a cron expression a value that depends on nothing but
// the id and the field, so that jobs that may run at any time do not all run at
// once. H is one value of the field, H/15 every fifteenth value from one of the
// first 15 on, and H(0-29) and H(0-29)/10 keep to the range. The answer is a plain
// expression that Parse reads; a text without an H comes back unchanged.
func Resolve(text string, id [16]byte) (resolved string, changed bool, err error) {
	upper := strings.ToUpper(strings.TrimSpace(text))
	if upper == "" || len(text) > maxText || isRRule(upper) || isInterval(upper) || isInstant(upper) || checkCharacters(text) != nil {
		return text, false, nil
	}
	_, _, rest, _ := splitZone(text)
	words := splitWords(text, rest)
	if len(words) == 0 || words[0].text[0] == '@' {
		return text, false, nil
	}
	layout := cronLayouts[len(words)]
	var b strings.Builder
	done := 0 // bytes of the text that are settled
	for i, w := range words {
		if !containsH(w.text) {
			continue
		}
		if layout == nil {
			return "", false, errorAt(w.pos, cronExample, "H stands only in the fields of a cron expression, of which there are 5, 6 or 7")
		}
		r := &fieldParser{field: layout[i], word: w}
		field, err := r.resolveHash(id)
		if err != nil {
			return "", false, err
		}
		b.WriteString(text[done:w.pos])
		b.WriteString(field)
		done = w.pos + len(w.text)
		changed = true
	}
	b.WriteString(text[done:])
	return b.String(), changed, nil
}

// containsH reports whether an H that is not part of a name stands in a field.
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

// resolveHash returns the field with a value for every H.
func (r *fieldParser) resolveHash(id [16]byte) (string, error) {
	var items []string
	for {
		start := r.next
		if r.accept('H') {
			item, err := r.parseHash(id)
			if err != nil {
				return "", err
			}
			items = append(items, item)
		} else {
			for r.peek() != 0 {
				r.next++
			}
			items = append(items, r.word.text[start:r.next])
			if containsH(items[len(items)-1]) {
				return "", r.errorAt(start, "H stands at the beginning of a list item, as in H, H/2 or H(1-5)")
			}
		}
		if r.next == len(r.word.text) {
			return strings.Join(items, ","), nil
		}
		r.next++ // the comma
	}
}

// parseHash reads what follows an H and returns the item that it stands for.
func (r *fieldParser) parseHash(id [16]byte) (string, error) {
	f, start := r.field, r.next-1
	limits, ok := hashRanges[f]
	if !ok {
		return "", r.errorAt(start, "there is no H for years")
	}
	low, high := limits[0], limits[1]
	if r.accept('(') {
		var err error
		if low, high, err = r.parseHashRange(); err != nil {
			return "", err
		}
	}
	size, step := high-low+1, 0
	if size <= 0 {
		size += f.high - f.low + 1 // across the end of the range
	}
	if r.accept('/') {
		var err error
		if step, err = r.parseNumber("the step", 1, maxNumber); err != nil {
			return "", err
		}
	}
	if r.peek() != 0 {
		rest, _, _ := strings.Cut(r.word.text[r.next:], ",")
		return "", r.errorAt(r.next, "unexpected %q after %q", truncate(rest), truncate(r.word.text[start:r.next]))
	}
	choices := size
	if step > 0 {
		choices = min(step, size)
	}
	value := low + scaleHash(fieldHash(id, fieldNumbers[f]), choices)
	if value > f.most {
		value -= f.high - f.low + 1
	}
	if step == 0 {
		return strconv.Itoa(value), nil
	}
	return strconv.Itoa(value) + "-" + strconv.Itoa(high) + "/" + strconv.Itoa(step), nil
}

// parseHashRange reads the rest of "(a-b)".
func (r *fieldParser) parseHashRange() (low, high int, err error) {
	start := r.next
	if low, err = r.parseValue(); err != nil {
		return 0, 0, err
	}
	if !r.accept('-') {
		return 0, 0, r.errorAt(r.next, "the range after H has the form (a-b)")
	}
	if high, err = r.parseValue(); err != nil {
		return 0, 0, err
	}
	if !r.accept(')') {
		return 0, 0, r.errorAt(r.next, "a parenthesis is missing after %q", truncate(r.word.text[start:r.next]))
	}
	return low, high, nil
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
// fields differ in few of their bits; stirring them first keeps hours from
// following minutes.
func scaleHash(h uint64, n int) int {
	hi, _ := bits.Mul64(mixHash(h), uint64(n))
	return int(hi)
}

// mixHash lets every bit of a number depend on all of them.
func mixHash(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// Jitter returns how much later than its occurrence a job runs, so that not all
// that is due at midnight runs in its first second. It depends on nothing but its
// arguments: the job, the occurrence, the most that the job allows, and the gap to
// the occurrence after it, 0 if there is none. Over the jobs and occurrences it is
// spread evenly from 0 to most, in microseconds, and ends a second before the next
// occurrence.
func Jitter(id [16]byte, at time.Time, most, gap time.Duration) time.Duration {
	if gap > 0 {
		most = min(most, gap-time.Second)
	}
	if most < time.Microsecond {
		return 0
	}
	var micros [8]byte
	binary.BigEndian.PutUint64(micros[:], uint64(at.UnixMicro()))
	h := fieldHash(id, 'j')
	for _, b := range micros {
		h = (h ^ uint64(b)) * fnvPrime
	}
	steps, _ := bits.Mul64(mixHash(h), uint64(most.Microseconds())+1)
	return time.Duration(steps) * time.Microsecond
}
