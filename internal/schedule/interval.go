package schedule

import (
	"time"
)

// anchor is where an interval begins and how often it fires.
type anchor struct {
	start   int64 // the first firing, in microseconds since 1970
	count   int64 // how many firings there are; 0 means no end
	written bool  // the start is part of the text
}

// exceedsCount reports whether the n-th firing, counted from 0, is one too many.
func (a *anchor) exceedsCount(n int64) bool { return a.count > 0 && n >= a.count }

// clampCount limits a number of firings to how many there are.
func (a *anchor) clampCount(n int64) int64 {
	if a.count > 0 {
		return min(n, a.count)
	}
	return n
}

// instantSequence numbers the firings of an interval from 0 on.
type instantSequence interface {
	// after returns the number of the first firing after an instant that is not before
	// the start.
	numberAfter(t int64) int64

	// instant returns the firing of a number over 0.
	instantOf(n int64) int64
}

func (a *anchor) nextOf(s instantSequence, after time.Time) time.Time {
	t := a.micros(after)
	if t < a.start {
		return microInstant(a.start)
	}
	n := s.numberAfter(t)
	if a.exceedsCount(n) {
		return time.Time{}
	}
	return microInstant(s.instantOf(n))
}

func (a *anchor) countOf(s instantSequence, from, end time.Time) int64 {
	until := func(t int64) int64 {
		if t = min(t, horizon*microsPerSecond-1); t < a.start {
			return 0
		}
		return a.clampCount(s.numberAfter(t))
	}
	return until(a.micros(end.Add(-1))) - until(a.micros(from))
}

// micros returns the last whole microsecond that is not after an instant, or one
// just before the start or beyond the horizon if it lies far from both.
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

// durationInterval is an interval of so many microseconds, whatever the clock shows.
type durationInterval struct {
	anchor
	zone *zone // in which the start is shown
	step int64
}

func (e *durationInterval) Next(after time.Time) time.Time { return e.nextOf(e, after) }

func (e *durationInterval) countBetween(from, end time.Time) (int64, bool) {
	return e.countOf(e, from, end), true
}

func (e *durationInterval) numberAfter(t int64) int64 { return (t-e.start)/e.step + 1 }
func (e *durationInterval) instantOf(n int64) int64   { return e.start + n*e.step }

// calendarInterval is an interval of days and months on the calendar of a zone.
type calendarInterval struct {
	wallClock
	anchor
	wallSequence
}

func (s *calendarInterval) nextWall(from int64) int64 {
	n := s.firstFrom(from)
	if s.exceedsCount(n) {
		return never
	}
	return s.wall(n)
}

func (s *calendarInterval) hasWall(wall int64) bool { return s.nextWall(wall) == wall }

// mixedInterval is an interval of days or months and a time: the days lead to a wall
// time, the time passes from there.
type mixedInterval struct {
	anchor
	wallSequence
	zone *zone
	step int64 // microseconds that pass for every step on the calendar
}

func (m *mixedInterval) Next(after time.Time) time.Time { return m.nextOf(m, after) }

func (m *mixedInterval) countBetween(from, end time.Time) (int64, bool) {
	return m.countOf(m, from, end), true
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

func (m *mixedInterval) instantOf(n int64) int64 {
	t, _ := m.zone.resolve(m.wall(n))
	return t*microsPerSecond + n*m.step
}

// wallSequence is a sequence of wall times so many months and days apart. Each is counted
// from the first, so that 31 January leads to 28 February and on to 31 March.
type wallSequence struct {
	year, month, day int // the date of the first
	second           int64
	months, days     int64
}

func newWallSequence(wall, months, days int64) wallSequence {
	p := wallSequence{months: months, days: days}
	date := floorDiv(wall, secondsPerDay)
	p.year, p.month, p.day = dateOf(date)
	p.second = wall - date*secondsPerDay
	return p
}

// wall returns the n-th wall time, counted from 0.
func (p *wallSequence) wall(n int64) int64 {
	month := int64(p.year)*12 + int64(p.month) - 1 + n*p.months
	y, m := int(floorDiv(month, 12)), int(floorMod(month, 12))+1
	date := dayNumber(y, m, min(p.day, monthLength(y, m))) + n*p.days
	return date*secondsPerDay + p.second
}

// averageLength is what a step takes on average, in seconds.
func (p *wallSequence) averageLength() int64 {
	const month = daysPer400Years * secondsPerDay / (400 * 12)
	return p.months*month + p.days*secondsPerDay
}

// firstFrom returns the number of the first wall time that is not before the given
// one. The average length leads to it within a step or two.
func (p *wallSequence) firstFrom(from int64) int64 {
	start := p.wall(0)
	if from <= start {
		return 0
	}
	n := max((from-start)/p.averageLength(), 1)
	for n > 1 && p.wall(n-1) >= from {
		n--
	}
	for p.wall(n) < from {
		n++
	}
	return n
}

func (s *calendarInterval) countWalls(from, end int64) int64 {
	return s.clampCount(s.firstFrom(end)) - s.clampCount(s.firstFrom(from))
}
