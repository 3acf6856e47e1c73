package schedule

import (
	"math/bits"
	"time"
)

// wallCounter is a rule that counts its wall times from one to before another
// without visiting them.
type wallCounter interface {
	waller
	countWalls(from, end int64) int64
}

// between counts the occurrences of a rule as next would find them.
func (c *civil) between(w wallCounter, from, end time.Time) (n int64) {
	first := max(from.Unix(), firstInstant) + 1
	last := min(end.Add(-1).Unix(), horizon-1)
	periods := c.zone.periods
	for i := c.zone.at(first); i < len(periods) && periods[i].start <= last; i++ {
		p := periods[i]
		low, high := max(first, p.start)+p.offset, last+1+p.offset
		if i+1 < len(periods) {
			high = min(high, periods[i+1].start+p.offset)
		}
		if i > 0 {
			before := p.start + periods[i-1].offset // the end of the wall times until then
			if !c.repeat {
				low = max(low, before)
			}
			if start := p.start + p.offset; first <= p.start && before < start && w.nextWall(start) != start {
				if wall := w.nextWall(before); wall < start && c.makesUp(w, wall, start, start-before) {
					n++
				}
			}
		}
		if low < high {
			n += w.countWalls(low, high)
		}
	}
	return n
}

func (c *cron) between(from, end time.Time) int64 { return c.civil.between(c, from, end) }

func (c *cron) countWalls(from, end int64) int64 {
	firstDay, lastDay := floorDiv(from, secondsPerDay), floorDiv(end, secondsPerDay)
	n := c.countDays(firstDay, lastDay) * c.secondsBefore(secondsPerDay)
	if c.nextDay(lastDay) == lastDay {
		n += c.secondsBefore(int(end - lastDay*secondsPerDay))
	}
	if c.nextDay(firstDay) == firstDay {
		n -= c.secondsBefore(int(from - firstDay*secondsPerDay))
	}
	return n
}

// secondsBefore counts the matching seconds of a day before the given one.
func (c *cron) secondsBefore(s int) int64 {
	below := func(set uint64, n int) int { return bits.OnesCount64(set & (1<<n - 1)) }
	hour, minute, second := s/3600, s/60%60, s%60
	n := below(c.hours, hour) * bits.OnesCount64(c.minutes)
	if c.hours>>hour&1 != 0 {
		n += below(c.minutes, minute)
	}
	n *= bits.OnesCount64(c.seconds)
	if c.hours>>hour&1 != 0 && c.minutes>>minute&1 != 0 {
		n += below(c.seconds, second)
	}
	return int64(n)
}

// countDays counts the matching days from one to before another.
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

func (e *elapsed) between(from, end time.Time) int64 {
	return e.until(e.micros(end.Add(-1))) - e.until(e.micros(from))
}

// until counts the firings up to an instant.
func (e *elapsed) until(t int64) int64 {
	if t = min(t, horizon*microsPerSecond-1); t < e.start {
		return 0
	}
	return e.most((t-e.start)/e.step + 1)
}

// most keeps a number of firings to how many there are.
func (a *anchor) most(n int64) int64 {
	if a.count > 0 {
		return min(n, a.count)
	}
	return n
}

func (m *mixed) between(from, end time.Time) int64 {
	return m.until(m.micros(end.Add(-1))) - m.until(m.micros(from))
}

// until counts the firings up to an instant.
func (m *mixed) until(t int64) int64 {
	if t = min(t, horizon*microsPerSecond-1); t < m.start {
		return 0
	}
	return m.most(m.after(t))
}

func (s *stepped) between(from, end time.Time) (n int64) {
	// The start fires as it is, though the first wall time may name another instant.
	if start := microInstant(s.start); from.Before(start) && !s.skipped {
		if !start.Before(end) {
			return 0
		}
		n, from = 1, start
	}
	return n + s.civil.between(s, from, end)
}

func (s *stepped) countWalls(from, end int64) int64 {
	return s.most(s.first(end)) - s.most(s.first(from))
}
