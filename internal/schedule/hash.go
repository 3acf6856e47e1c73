package schedule

import (
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Resolve replaces every H of a cron expression by a value that depends only on the
// id and the field, so that jobs that may run at any time do not all run at once. H
// is one value of the field, H/15 every fifteenth value from one of the first 15
// on, and H(0-29) and H(0-29)/10 keep to the range. Parse accepts the result. A text
// without an H is returned unchanged.
func Resolve(text string, id [16]byte) (resolved string, changed bool, err error) {
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
			return "", false, errorAt(w.pos, cronExample, "H is only allowed in a cron expression of 5, 6 or 7 fields")
		}
		field, err := resolveField(layout[i], w, id)
		if err != nil {
			return "", false, err
		}
		b.WriteString(text[copied:w.pos])
		b.WriteString(field)
		copied = w.pos + len(w.text)
		changed = true
	}
	b.WriteString(text[copied:])
	return b.String(), changed, nil
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

func resolveField(f *cronField, w word, id [16]byte) (string, error) {
	p := &fieldParser{field: f, itemAt: w.pos}
	var items []string
	for item := range strings.SplitSeq(w.text, ",") {
		p.scanner = scanner{text: item}
		resolved := item
		if p.accept('H') {
			var err error
			if resolved, err = p.parseHash(id); err != nil {
				return "", err
			}
		} else if containsH(item) {
			return "", p.errorAt(0, "H must begin a list item, as in H, H/2 or H(1-5)")
		}
		items = append(items, resolved)
		p.itemAt += len(item) + 1
	}
	return strings.Join(items, ","), nil
}

// parseHash parses what follows an H and returns the item that replaces it.
func (p *fieldParser) parseHash(id [16]byte) (string, error) {
	f := p.field
	if f.hashHigh == 0 {
		return "", p.errorAt(0, "there is no H for years")
	}
	low, high := f.low, f.hashHigh
	if p.accept('(') {
		var err error
		if low, high, err = p.parseHashRange(); err != nil {
			return "", err
		}
	}
	step, err := p.parseStep(0)
	if err == nil {
		err = p.expectEnd()
	}
	if err != nil {
		return "", err
	}
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
		return strconv.Itoa(value), nil
	}
	return strconv.Itoa(value) + "-" + strconv.Itoa(high) + "/" + strconv.Itoa(step), nil
}

func (p *fieldParser) parseHashRange() (low, high int, err error) {
	start := p.pos
	if low, err = p.parseValue(); err != nil {
		return 0, 0, err
	}
	if !p.accept('-') {
		return 0, 0, p.errorAt(p.pos, "the range after H has the form (a-b)")
	}
	if high, err = p.parseValue(); err != nil {
		return 0, 0, err
	}
	if !p.accept(')') {
		return 0, 0, p.errorAt(p.pos, "a parenthesis is missing after %q", p.text[start:p.pos])
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
