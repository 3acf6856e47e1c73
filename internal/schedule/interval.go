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

const microsPerSecond = 1_000_000

func microInstant(t int64) time.Time {
	if t >= horizon*microsPerSecond {
		return time.Time{}
	}
	return time.UnixMicro(t).UTC()
}

// durationInterval is an interval of a fixed duration. Clock changes do not affect it.
// If days or months precede the duration, as in P1DT12H, the calendar leads to a wall
// time, and the duration passes from there.
type durationInterval struct {
	anchor
	zone     *zone
	step     int64         // the duration, in microseconds
	calendar *wallSequence // the days and months, or nil
}

func (d *durationInterval) Next(after time.Time) time.Time {
	n := d.numberAfter(d.micros(after))
	if d.exceedsCount(n) {
		return time.Time{}
	}
	return microInstant(d.instantOf(n))
}

func (d *durationInterval) countBetween(from, end time.Time) (int64, bool) {
	until := func(t time.Time) int64 {
		return d.clampCount(d.numberAfter(min(d.micros(t), horizon*microsPerSecond-1)))
	}
	return until(end.Add(-1)) - until(from), true
}

// micros returns the last whole microsecond that is not after an instant. An instant
// that 64 bits may not hold becomes one before the start or beyond the horizon.
func (d *durationInterval) micros(t time.Time) int64 {
	switch sec := t.Unix(); {
	case sec < firstInstant:
		return d.start - 1
	case sec >= horizon:
		return horizon * microsPerSecond
	}
	return t.UnixMicro()
}

// numberAfter returns the number of the first firing after an instant.
func (d *durationInterval) numberAfter(t int64) int64 {
	switch {
	case t < d.start:
		return 0
	case d.calendar == nil:
		return (t-d.start)/d.step + 1
	}
	n := max((t-d.start)/(d.calendar.averageLength()*microsPerSecond+d.step), 1)
	for n > 1 && d.instantOf(n-1) > t {
		n--
	}
	for d.instantOf(n) <= t {
		n++
	}
	return n
}

// instantOf returns the n-th firing, counted from 0.
func (d *durationInterval) instantOf(n int64) int64 {
	if d.calendar == nil || n == 0 {
		return d.start + n*d.step
	}
	t, _ := d.zone.resolve(d.calendar.wall(n))
	return t*microsPerSecond + n*d.step
}

// calendarInterval is an interval of days and months on the calendar of a zone.
type calendarInterval struct {
	wallClock
	anchor
	wallSequence
}

func (c *calendarInterval) nextWall(from, _ int64) int64 {
	n := c.firstFrom(from)
	if c.exceedsCount(n) {
		return never
	}
	return c.wall(n)
}

func (c *calendarInterval) hasWall(wall int64) bool { return c.nextWall(wall, wall) == wall }

func (c *calendarInterval) countWalls(from, end int64) int64 {
	return c.clampCount(c.firstFrom(end)) - c.clampCount(c.firstFrom(from))
}

// wallSequence is a sequence of wall times at a distance of months and days. Each is
// counted from the first, so that 31 January leads to 28 February and on to 31 March.
type wallSequence struct {
	year, month, day int // the date of the first
	second           int64
	months, days     int64
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
