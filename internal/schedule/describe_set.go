package schedule

import (
	"math/bits"
	"strconv"
	"strings"
)

// all returns a set of n members.
func all(n int) uint64 { return 1<<n - 1 }

// run reports whether a set of a circle of n values has no holes, and its ends. The
// whole circle is no run.
func run(set uint64, n int) (from, to int, ok bool) {
	if set == 0 || set == all(n) {
		return 0, 0, false
	}
	first := set &^ (set<<1 | set>>(n-1)) // members without one before them
	if first&(first-1) != 0 {
		return 0, 0, false
	}
	from = bits.TrailingZeros64(first)
	return from, (from + bits.OnesCount64(set) - 1) % n, true
}

// evenly returns n if a set holds every n-th value of a circle from the first on,
// all the way round, or 0.
func evenly(set uint64, size int) int {
	count := bits.OnesCount64(set)
	if count < 2 || size%count != 0 {
		return 0
	}
	step := size / count
	if from, _, by := progression(set); from != 0 || by != step {
		return 0
	}
	return step
}

// progression returns the ends of a set and the distance of its members if that is
// always the same, or else 0.
func progression(set uint64) (from, to, step int) {
	from, to = bits.TrailingZeros64(set), 63-bits.LeadingZeros64(set)
	for last, left := from, set&(set-1); left != 0; left &= left - 1 {
		next := bits.TrailingZeros64(left)
		if step != 0 && next-last != step {
			return from, to, 0
		}
		last, step = next, next-last
	}
	return from, to, step
}

// enoughSteps is how many members a set has that is called a progression.
const enoughSteps = 4

// values60 describes the minutes of an hour or the seconds of a minute.
func values60(set uint64, unit, whole string) string {
	if set == all(60) {
		return "Every " + unit
	}
	if n := evenly(set, 60); n > 0 {
		return "Every " + several(n, unit)
	}
	from, to, step := progression(set)
	if count := bits.OnesCount64(set); count >= enoughSteps && step > 1 {
		return "Every " + several(step, unit) + " from " + unit + " " + strconv.Itoa(from) + " to " + strconv.Itoa(to) + " of the " + whole
	}
	return "At " + numbers(set, 60, unit)
}

// numbers describes a set as "hour 9", "hours 9 and 17" or "every 2nd hour from 1
// to 23".
func numbers(set uint64, n int, unit string) string {
	from, to, step := progression(set)
	switch count := bits.OnesCount64(set); {
	case count == 1:
		return unit + " " + strconv.Itoa(from)
	case count >= enoughSteps && step > 1:
		return "every " + ordinal(step) + " " + unit + " from " + strconv.Itoa(from) + " to " + strconv.Itoa(to)
	}
	return unit + "s " + enumerate(runs(set, n, 0, strconv.Itoa))
}

// runs names the members of a set, three or more in a row as "a through b". Bit 0
// stands for low. Those at the end and at the beginning of a circle of n are a row
// as well if that is more than the set is asked for otherwise.
func runs(set uint64, n, low int, name func(int) string) (list []string) {
	if from, to, ok := run(set, n); ok && from > to && bits.OnesCount64(set) > 2 {
		return []string{name(low+from) + " through " + name(low+to)}
	}
	for set != 0 {
		from := bits.TrailingZeros64(set)
		length := bits.TrailingZeros64(^(set >> from))
		if length > 2 {
			list = append(list, name(low+from)+" through "+name(low+from+length-1))
		} else {
			for i := range length {
				list = append(list, name(low+from+i))
			}
		}
		set &^= all(length) << from
	}
	return list
}

// years describes years in order.
func years(list []int) string {
	first, last := list[0], list[len(list)-1]
	if len(list) == 1 {
		return strconv.Itoa(first)
	}
	step := list[1] - first
	var names []string
	for i, y := range list {
		if i > 0 && y-list[i-1] != step {
			step = 0
		}
		names = append(names, strconv.Itoa(y))
	}
	switch {
	case len(list) > 2 && step == 1:
		return strconv.Itoa(first) + " through " + strconv.Itoa(last)
	case len(list) >= enoughSteps && step > 1:
		return "every " + ordinal(step) + " year from " + strconv.Itoa(first) + " to " + strconv.Itoa(last)
	}
	return enumerate(names)
}

// enumerate writes "a, b and c".
func enumerate(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " and " + list[last]
}

// several writes "hour" or "2 hours".
func several(n int, unit string) string {
	if n == 1 {
		return unit
	}
	return strconv.Itoa(n) + " " + unit + "s"
}

// ordinal writes "2nd" or "11th".
func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(n) + suffix
}

// digits writes two digits.
func digits(n int) string {
	return string([]byte{'0' + byte(n/10%10), '0' + byte(n%10)})
}

// clock writes a time of day, with the seconds unless they are 0.
func clock(hour, minute, second int) string {
	text := digits(hour) + ":" + digits(minute)
	if second != 0 {
		text += ":" + digits(second)
	}
	return text
}
