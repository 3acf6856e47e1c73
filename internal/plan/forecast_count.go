package plan

import (
	"math"
	"time"

	"github.com/belfry-sh/belfry/internal/schedule"
)

const (
	maxDaySingles  = dayMinutes // occurrences of a day that are visited one by one
	maxWeekSingles = 500        // of the rest of the week
	maxVisited     = 20_000     // of a rule that cannot count; then its pace is assumed to stay
	lateInterval   = 64         // occurrences that are visited between two looks at the time
	never          = math.MaxInt64
)

// stretch is occurrences of a rule: one at an instant if it has no length, or many.
type stretch struct {
	from, to int64
	n        float64
}

// timeline is the occurrences of a rule in order.
type timeline []stretch

// timeline returns the occurrences from now on, those of an interval after the planned one;
// false if it became late.
func (f *Forecaster) timeline(item forecastItem, late func() bool) (line timeline, ok bool) {
	if item.units[0].once {
		return nil, true
	}
	if late() {
		return nil, false
	}
	start := f.now
	if item.step > 0 {
		start = item.units[0].start
	}
	for _, part := range []struct{ from, end, width, singles int64 }{
		{max(start, f.now), f.dayEnd, minute, maxDaySingles},
		{max(start, f.dayEnd-1), f.weekEnd, hour, maxWeekSingles},
	} {
		if n, can := item.count(start, part.from, part.end); can && n > part.singles {
			line = item.countEach(line, start, part.from, part.end, part.width)
		} else if line, ok = item.visitEach(line, start, part.from, part.end, late); !ok {
			return nil, false
		}
	}
	return line, true
}

// countEach adds the occurrences after an instant and before another, by minute or hour.
func (r *forecastRule) countEach(line timeline, start, from, end, width int64) timeline {
	for low := from + 1; low < end; {
		high := min(low-low%width+width, end)
		if n, _ := r.count(start, low-1, high); n > 0 {
			line = append(line, stretch{low, high, float64(n)})
		}
		low = high
	}
	return line
}

// visitEach adds them one by one.
func (r *forecastRule) visitEach(line timeline, start, from, end int64, late func() bool) (timeline, bool) {
	next := r.inOrder(start)
	visited := 0
	for at := next(from); at < end; at = next(at) {
		line = append(line, stretch{at, at, 1})
		if visited++; visited%lateInterval == 0 && late() {
			return nil, false
		}
		if visited == maxVisited {
			pace := float64(visited) / float64(at-from)
			return append(line, stretch{at + 1, end, pace * float64(end-at)}), true
		}
	}
	return line, true
}

// inOrder returns what finds one occurrence after another; never: there is none.
func (r *forecastRule) inOrder(start int64) func(after int64) int64 {
	next := schedule.InOrder(r.rule)
	return func(after int64) int64 {
		at := int64(never)
		if r.step > 0 {
			at = start + (floorDiv(after-start, r.step)+1)*r.step
		} else if t := next(time.UnixMicro(after)); !t.IsZero() {
			at = t.UnixMicro()
		}
		if at > r.ends {
			return never
		}
		return at
	}
}

// count counts the occurrences after an instant and before another; false: they have to be
// visited.
func (r *forecastRule) count(start, from, end int64) (int64, bool) {
	if r.ends < never {
		end = min(end, r.ends+1)
	}
	switch {
	case from >= end-1:
		return 0, true
	case r.step > 0:
		return floorDiv(end-1-start, r.step) - floorDiv(from-start, r.step), true
	}
	return schedule.Count(r.rule, time.UnixMicro(from), time.UnixMicro(end))
}

func floorDiv(a, b int64) int64 {
	if a < 0 {
		return -((-a + b - 1) / b)
	}
	return a / b
}

// maxJitter is the most jitter that an occurrence has whose next one is so far away.
func maxJitter(jitter, gap int64) int64 {
	return max(min(jitter, gap-second), 0)
}

// countFirst counts the planned runs of jobs, whose time is known.
func (f *Forecaster) countFirst(c *forecastCounts, u *forecastUnit, line timeline) {
	for _, j := range u.jobs {
		c.day.add(j.next, j.weight)
		c.week.add(j.next, j.weight)
	}
	if f.jitter == 0 {
		return
	}
	if u.once || u.jitter >= f.jitter || u.start <= f.now {
		for _, j := range u.jobs {
			c.jittered.add(j.next, j.weight)
		}
		return
	}
	gap := int64(never)
	for _, s := range line {
		if s.from > u.start || s.to > u.start {
			gap = int64(max(float64(s.from-u.start), float64(s.to-s.from)/s.n))
			break
		}
	}
	c.jittered.spread(u.start, u.start+maxJitter(f.jitter, gap), u.weight)
}

// countLater counts the runs of jobs after the planned ones.
func (f *Forecaster) countLater(c *forecastCounts, r *forecastRule, u *forecastUnit, line timeline) {
	left := math.Inf(1)
	if u.left > 0 {
		left = float64(u.left - 1)
	}
	for i, s := range line {
		n := s.n
		if s.to > s.from && s.from <= u.start { // what is left of it
			if counted, can := r.count(u.start, u.start, s.to); can {
				n = float64(counted)
			} else {
				n *= float64(max(s.to-u.start-1, 0)) / float64(s.to-s.from)
			}
			s.from = min(u.start+1, s.to)
		} else if s.from <= u.start {
			continue
		}
		if n = min(n, left); n <= 0 {
			if left <= 0 {
				return
			}
			continue
		}
		left -= n
		gap := int64(never)
		switch {
		case s.to > s.from:
			gap = 0 // many in a minute, or in an hour of the distant days: their jitter is short
		case i+1 < len(line):
			gap = line[i+1].from - s.from
		case i > 0:
			gap = s.from - line[i-1].from
		}
		spread := maxJitter(u.jitter, gap)
		c.day.spread(s.from, s.to+spread, n*u.weight)
		c.week.spread(s.from, s.to+spread, n*u.weight)
		if f.jitter > 0 {
			c.jittered.spread(s.from, s.to+maxJitter(max(u.jitter, f.jitter), gap), n*u.weight)
		}
	}
}

// laterWithin is how many runs after the planned one a job of a unit has within a minute.
func (r *forecastRule) laterWithin(u *forecastUnit, from, end int64) (n float64) {
	if u.once || u.left == 1 || end <= u.start+1 {
		return 0
	}
	if many, can := r.count(u.start, max(from-1, u.start), end); can && many > 1 {
		return float64(many)
	}
	after := max(from-1, u.start)
	for _, back := range []int64{2 * minute, hour, 24 * hour} { // Jitter ends before the next occurrence: one before the minute is enough.
		earlier := max(from-1-min(back, u.jitter), u.start)
		if earlier < after && r.inOrder(u.start)(earlier) < from {
			after = earlier
			break
		}
	}
	next := r.inOrder(u.start)
	for at := next(after); at < end; {
		follows := next(at)
		switch spread := maxJitter(u.jitter, follows-at); {
		case spread > 0:
			n += float64(max(min(at+spread, end)-max(at, from), 0)) / float64(spread)
		case at >= from:
			n++
		}
		at = follows
	}
	return n
}

// forecastCounts are the counts by minute and by hour, and by minute with more jitter.
type forecastCounts struct{ day, week, jittered *bins }

func (f *Forecaster) newCounts() *forecastCounts {
	return &forecastCounts{newBins(f.dayFrom, minute, dayMinutes), newBins(f.weekFrom, hour, weekHours), newBins(f.dayFrom, minute, dayMinutes)}
}

func (c *forecastCounts) all() []*bins { return []*bins{c.day, c.week, c.jittered} }

func (c *forecastCounts) scale(factor float64) {
	for _, b := range c.all() {
		for i := range b.counts {
			b.counts[i] *= factor
			b.rises[i] *= factor
		}
	}
}

func (c *forecastCounts) plus(other *forecastCounts) *forecastCounts {
	for k, b := range c.all() {
		for i := range b.counts {
			b.counts[i] += other.all()[k].counts[i]
			b.rises[i] += other.all()[k].rises[i]
		}
	}
	return c
}

// bins counts by time.
type bins struct {
	from, width int64
	counts      []float64
	rises       []float64 // by how much the count of a bin differs from the one before, beside counts
}

func newBins(from, width int64, n int) *bins {
	return &bins{from, width, make([]float64, n), make([]float64, n)}
}

func (b *bins) add(at int64, n float64) {
	if i := (at - b.from) / b.width; at >= b.from && i < int64(len(b.counts)) {
		b.counts[i] += n
	}
}

// spread distributes a number evenly over a time.
func (b *bins) spread(from, to int64, n float64) {
	if to <= from {
		b.add(from, n)
		return
	}
	density := n / float64(to-from)
	from, to = max(from, b.from), min(to, b.from+b.width*int64(len(b.counts)))
	if from >= to {
		return
	}
	first, last := (from-b.from)/b.width, (to-1-b.from)/b.width
	if first == last {
		b.counts[first] += density * float64(to-from)
		return
	}
	b.counts[first] += density * float64(b.from+(first+1)*b.width-from)
	b.counts[last] += density * float64(to-b.from-last*b.width)
	b.rises[first+1] += density * float64(b.width)
	b.rises[last] -= density * float64(b.width)
}

// rounded returns whole numbers whose sums differ from the counts by less than one.
func (b *bins) rounded() []int64 {
	list := make([]int64, len(b.counts))
	level, total, shown := 0.0, 0.0, int64(0)
	for i, n := range b.counts {
		level += b.rises[i]
		total += n + level
		list[i] = int64(math.Round(total+1e-6)) - shown
		list[i] = max(list[i], 0)
		shown += list[i]
	}
	return list
}
