package schedule

import "time"

// anchor is the start of an interval and its number of firings.
type anchor struct {
	start   int64 // the first firing, in microseconds since 1970
	count   int64 // of firings; 0 means no end
	written bool  // the text gives the start
}

// exceedsCount reports whether the n-th firing, counted from 0, is one too many.
func (a *anchor) exceedsCount(n int64) bool { return a.count > 0 && n >= a.count }

func (a *anchor) clampCount(n int64) int64 {
	if a.count > 0 {
		return min(n, a.count)
	}
	return n
}

// countBy counts the firings after an instant and before another. numberAfter
// returns the number of the first firing after an instant from the start on.
func (a *anchor) countBy(numberAfter func(t int64) int64, from, end time.Time) int64 {
	until := func(t int64) int64 {
		if t = min(t, horizon*microsPerSecond-1); t < a.start {
			return 0
		}
		return a.clampCount(numberAfter(t))
	}
	return until(a.micros(end.Add(-1))) - until(a.micros(from))
}

// micros returns the last whole microsecond that is not after an instant. An instant
// that 64 bits may not hold becomes one before the start or beyond the horizon.
func (a *anchor) micros(t time.Time) int64 {
	switch sec := t.Unix(); {
	case sec < firstInstant:
		return a.start - 1
	case sec >= horizon:
		return horizon * microsPerSecond
	}
	return t.UnixMicro()
}

const microsPerSecond = 1_000_000

func microInstant(t int64) time.Time {
	if t >= horizon*microsPerSecond {
		return time.Time{}
	}
	return time.UnixMicro(t).UTC()
}

// durationInterval is an interval of a fixed duration. Clock changes do not affect
// it.
type durationInterval struct {
	anchor
	zone *zone // of the description
	step int64 // in microseconds
}

func (d *durationInterval) Next(after time.Time) time.Time {
	t := d.micros(after)
	if t < d.start {
		return microInstant(d.start)
	}
	n := d.numberAfter(t)
	if d.exceedsCount(n) {
		return time.Time{}
	}
	return microInstant(d.start + n*d.step)
}

func (d *durationInterval) countBetween(from, end time.Time) (int64, bool) {
	return d.countBy(d.numberAfter, from, end), true
}

func (d *durationInterval) numberAfter(t int64) int64 { return (t-d.start)/d.step + 1 }

// calendarInterval is an interval of days and months on the calendar of a zone.
type calendarInterval struct {
	wallClock
	anchor
	wallSequence
}

func (c *calendarInterval) nextWall(from int64) int64 {
	n := c.firstFrom(from)
	if c.exceedsCount(n) {
		return never
	}
	return c.wall(n)
}

func (c *calendarInterval) hasWall(wall int64) bool { return c.nextWall(wall) == wall }

func (c *calendarInterval) countWalls(from, end int64) int64 {
	return c.clampCount(c.firstFrom(end)) - c.clampCount(c.firstFrom(from))
}

// mixedInterval is an interval of days or months and a duration, such as P1DT12H:
// the calendar leads to a wall time, and the duration passes from there.
type mixedInterval struct {
	anchor
	wallSequence
	zone *zone
	step int64 // the duration, in microseconds
}

func (m *mixedInterval) Next(after time.Time) time.Time {
	t := m.micros(after)
	if t < m.start {
		return microInstant(m.start)
	}
	n := m.numberAfter(t)
	if m.exceedsCount(n) {
		return time.Time{}
	}
	return microInstant(m.instantOf(n))
}

func (m *mixedInterval) countBetween(from, end time.Time) (int64, bool) {
	return m.countBy(m.numberAfter, from, end), true
}

func (m *mixedInterval) numberAfter(t int64) int64 {
	n := max((t-m.start)/(m.averageLength()*microsPerSecond+m.step), 1)
	for n > 1 && m.instantOf(n-1) > t {
		n--
	}
	for m.instantOf(n) <= t {
		n++
	}
	return n
}

// instantOf returns the n-th firing for an n over 0.
func (m *mixedInterval) instantOf(n int64) int64 {
	t, _ := m.zone.resolve(m.wall(n))
	return t*microsPerSecond + n*m.step
}

// wallSequence is a sequence of wall times at a distance of months and days. Each is
// counted from the first, so that 31 January leads to 28 February and on to 31 March.
type wallSequence struct {
	year, month, day int // the date of the first
	second           int64
	months, days     int64
}

func newWallSequence(wall, months, days int64) wallSequence {
	s := wallSequence{months: months, days: days}
	date := floorDiv(wall, secondsPerDay)
	s.year, s.month, s.day = dateOf(date)
	s.second = wall - date*secondsPerDay
	return s
}

// wall returns the n-th wall time, counted from 0.
func (s *wallSequence) wall(n int64) int64 {
	month := int64(s.year)*12 + int64(s.month) - 1 + n*s.months
	y, m := int(floorDiv(month, 12)), int(floorMod(month, 12))+1
	date := dayNumber(y, m, min(s.day, monthLength(y, m))) + n*s.days
	return date*secondsPerDay + s.second
}

// averageLength is the average length of a step, in seconds.
func (s *wallSequence) averageLength() int64 {
	const month = daysPer400Years * secondsPerDay / (400 * 12)
	return s.months*month + s.days*secondsPerDay
}

// firstFrom returns the number of the first wall time that is not before the given
// one. The average length leads to it within a step or two.
func (s *wallSequence) firstFrom(from int64) int64 {
	start := s.wall(0)
	if from <= start {
		return 0
	}
	n := max((from-start)/s.averageLength(), 1)
	for n > 1 && s.wall(n-1) >= from {
		n--
	}
	for s.wall(n) < from {
		n++
	}
	return n
}
