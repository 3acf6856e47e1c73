package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// candidate is a calendar rule of the search for expensive ones.
type candidate struct {
	start   string
	options Options
	lines   [][]string // parts of RRULEs, FREQ first
	dates   string     // RDATE or EXDATE
}

func (c candidate) text() string {
	var b strings.Builder
	b.WriteString("DTSTART:" + c.start)
	for _, l := range c.lines {
		b.WriteString("\nRRULE:" + strings.Join(l, ";"))
	}
	return b.String() + c.dates
}

func (c candidate) clone() candidate {
	lines := c.lines
	c.lines = nil
	for _, l := range lines {
		c.lines = append(c.lines, slices.Clone(l))
	}
	return c
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func randomCandidate(r *rand.Rand) candidate {
	c := candidate{
		start:   pick(r, "20260302T090000", "20260308T023000", "20000101T000000", "19700101T000000", "00010101T000000", "20260302T000001"),
		options: Options{Timezone: pick(r, changingZones...), SkipGap: r.IntN(3) == 0, Overlap: DSTOverlap(r.IntN(3))},
	}
	for range 1 + r.IntN(2)*r.IntN(maxRRules) {
		line := []string{"FREQ=" + pick(r, frequencies...)}
		for range r.IntN(6) {
			line = setPart(line, randomPart(r, line[0]))
		}
		c.lines = append(c.lines, validParts(line))
	}
	return c.shortened()
}

// shortened drops lines until the text is not too long.
func (c candidate) shortened() candidate {
	for len(c.text()) > rruleNotation.maxText && len(c.lines) > 1 {
		c.lines = c.lines[1:]
	}
	return c
}

// mutated returns a candidate that differs a little.
func (c candidate) mutated(r *rand.Rand) candidate {
	c = c.clone()
	for range 1 + r.IntN(3) {
		i := r.IntN(len(c.lines))
		line := c.lines[i]
		switch r.IntN(12) {
		case 0:
			other := randomCandidate(r)
			c.start, c.options.Timezone = other.start, other.options.Timezone
		case 1:
			c.options.SkipGap, c.options.Overlap = !c.options.SkipGap, DSTOverlap(r.IntN(3))
		case 2:
			c.lines = append(c.lines, slices.Clone(line))
		case 3, 4:
			for len(c.lines) < maxRRules {
				c.lines = append(c.lines, slices.Clone(line))
			}
		case 5:
			c.lines = slices.Delete(c.lines, i, min(i+1, len(c.lines)-1))
		case 6:
			j := 1 + r.IntN(len(line))
			c.lines[i] = slices.Delete(line, min(j, len(line)), min(j+1, len(line)))
		case 7:
			line[0] = "FREQ=" + pick(r, frequencies...)
		case 8:
			c.dates = ""
			if r.IntN(2) == 0 {
				c.dates = "\n" + pick(r, "EXDATE:", "RDATE:") + "20260302T090000"
				for day := range r.IntN(100) {
					c.dates += time.Date(2026, 3, 3+day, 9, 0, 0, 0, time.UTC).Format(",20060102T150405")
				}
			}
		default:
			c.lines[i] = setPart(line, randomPart(r, line[0]))
		}
	}
	for i := range c.lines {
		c.lines[i] = validParts(c.lines[i])
	}
	c.lines = c.lines[:min(len(c.lines), maxRRules)]
	return c.shortened()
}

// randomPart writes a part other than FREQ.
func randomPart(r *rand.Rand, freq string) string {
	unit := map[string]int{"FREQ=SECONDLY": 86400, "FREQ=MINUTELY": 1440, "FREQ=HOURLY": 24, "FREQ=DAILY": 7, "FREQ=WEEKLY": 52, "FREQ=MONTHLY": 12, "FREQ=YEARLY": 4}[freq]
	switch r.IntN(14) {
	case 0, 1:
		return fmt.Sprint("COUNT=", pick(r, 1_000_000, 100_000, 1, 1+r.IntN(1_000_000), 1+r.IntN(100_000)))
	case 2, 3:
		return fmt.Sprint("INTERVAL=", pick(r, 2, 3, 5, 7, 11, 61, maxInterval, unit, unit+1, unit-1, 7*unit, 1+r.IntN(8*unit)))
	case 4:
		return "BYMONTH=" + randomNumbers(r, 1, 12, false)
	case 5:
		return "BYWEEKNO=" + randomNumbers(r, 1, 53, true)
	case 6:
		return "BYYEARDAY=" + randomNumbers(r, 1, 366, true)
	case 7:
		return "BYMONTHDAY=" + randomNumbers(r, 1, 31, true)
	case 8:
		days := []string{pick(r, "", "1", "2", "5", "-1", "-5") + "MO"}
		for i := range 7 {
			if r.IntN(3) > 0 {
				days = append(days, pick(r, "", "", "1", "2", "5", "-1", "-5")+weekdayNames[2*i:2*i+2])
			}
		}
		return "BYDAY=" + strings.Join(days[r.IntN(2)*(len(days)-1):], ",")
	case 9:
		return "BYHOUR=" + randomNumbers(r, 0, 23, false)
	case 10:
		return "BYMINUTE=" + randomNumbers(r, 0, 59, false)
	case 11:
		return "BYSECOND=" + randomNumbers(r, 0, 59, false)
	case 12:
		return "BYSETPOS=" + randomNumbers(r, 1, 366, true)
	}
	return "UNTIL=" + pick(r, "24991231T000000Z", "21000101", "20260401T000000Z")
}

// randomNumbers writes all numbers, a single one, a few neighbours or every n-th.
func randomNumbers(r *rand.Rand, low, high int, signed bool) string {
	first, last, step := low+r.IntN(high-low+1), high, 1
	switch r.IntN(6) {
	case 0:
		first = low
	case 1, 2:
		last = first
	case 3:
		first = high - r.IntN(3)
	case 4:
		last = min(high, first+r.IntN(12))
	default:
		step = 2 + r.IntN(6)
	}
	var list []string
	for n := first; n <= last; n += step {
		list = append(list, strconv.Itoa(n))
		if signed && r.IntN(3) == 0 {
			list = append(list, strconv.Itoa(-n))
		}
	}
	return strings.Join(list, ",")
}

func partName(part string) string { name, _, _ := strings.Cut(part, "="); return name }

func findPart(line []string, name string) int {
	return slices.IndexFunc(line, func(p string) bool { return partName(p) == name })
}

func setPart(line []string, part string) []string {
	if i := findPart(line, partName(part)); i >= 0 {
		line[i] = part
		return line
	}
	return append(line, part)
}

// validParts drops the parts that exclude each other.
func validParts(line []string) []string {
	freq := strings.TrimPrefix(line[0], "FREQ=")
	drop := func(name string, unless bool) {
		if i := findPart(line, name); i >= 0 && !unless {
			line = slices.Delete(line, i, i+1)
		}
	}
	drop("UNTIL", findPart(line, "COUNT") < 0)
	drop("BYWEEKNO", freq == "YEARLY")
	drop("BYYEARDAY", freq != "MONTHLY" && freq != "WEEKLY" && freq != "DAILY")
	drop("BYMONTHDAY", freq != "WEEKLY")
	if i := findPart(line, "BYDAY"); i >= 0 && (freq != "MONTHLY" && freq != "YEARLY" || findPart(line, "BYWEEKNO") >= 0) {
		line[i] = strings.NewReplacer("-", "", "1", "", "2", "", "5", "").Replace(line[i])
	}
	others := slices.ContainsFunc(line, func(p string) bool { return p[:2] == "BY" && partName(p) != "BYSETPOS" })
	drop("BYSETPOS", others)
	return line
}
