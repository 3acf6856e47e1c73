package schedule

import "time"

// waller is a rule of wall times, which the clock of its zone turns into
// instants: cron expressions, calendar rules and intervals of whole days.
type waller interface {
	// nextWall returns the first wall time of the rule that is not before the given
	// one, or never. It knows nothing of zones.
	nextWall(from int64) int64

	// onClock returns how the rule meets the clock.
	onClock() *civil
}

// civil is how a rule of wall times meets the clock of a zone. Rules embed it.
type civil struct {
	zone     *zone
	interval bool // interval-like rather than fixed-time
	repeat   bool // fires at both instants of a wall time shown twice
	skipGap  bool // makes nothing up for skipped wall times
	fields   bool // each of second, minute, hour and day matches for itself, as in cron
}

func (c *civil) onClock() *civil { return c }

// follow sets what the options say about clock changes. It needs to know whether
// the rule is interval-like.
func (c *civil) follow(z *zone, o Options) {
	c.zone = z
	c.skipGap = o.SkipGap
	c.repeat = o.Overlap == OverlapBoth || o.Overlap == OverlapAuto && c.interval
}

// next returns the first occurrence of a rule strictly after an instant, or the
// zero time. It walks the periods of the zone. In each it looks for the next
// matching wall time; between two of them it settles what the change of the clock
// skips or repeats.
func (c *civil) next(w waller, after time.Time) time.Time {
	t := max(after.Unix(), firstInstant)
	if t >= horizon {
		return time.Time{}
	}
	periods := c.zone.periods
	i := c.zone.at(t)
	from := t + 1 + periods[i].offset
	if i > 0 && !c.repeat {
		from = max(from, periods[i].start+periods[i-1].offset)
	}
	wall := w.nextWall(from) // always the first match that is not before from
	for ; i+1 < len(periods); i++ {
		next := &periods[i+1]
		end := next.start + periods[i].offset // of the wall times of this period
		if wall < end {
			break
		}
		first := next.start + next.offset // of the wall times of the next one
		if wall < first && c.makesUp(w, wall, first, first-end) {
			return instant(next.start)
		}
		if wall < first || c.repeat && first < from {
			from, wall = first, w.nextWall(first)
		}
	}
	if wall == never {
		return time.Time{}
	}
	return instant(wall - periods[i].offset)
}

func instant(t int64) time.Time {
	if t >= horizon {
		return time.Time{}
	}
	return time.Unix(t, 0).UTC()
}

// makesUp reports whether the rule fires at the end of a skipped stretch of which
// wall is the first matching time and end the end. Shift is how far the clock
// jumps.
func (c *civil) makesUp(w waller, wall, end, shift int64) bool {
	if c.skipGap || !c.interval {
		return !c.skipGap
	}
	return c.nextLost(w, wall, end, shift) < end
}

// nextLost returns the first wall time from the given one on that is lost in a
// skipped stretch with that end, or something not before end. A skipped time of
// an interval-like rule is covered, and not lost, if the time that lies as much
// later as the clock jumps matches too.
func (c *civil) nextLost(w waller, from, end, shift int64) int64 {
	wall := w.nextWall(from)
	if !c.interval {
		return wall
	}
	// A jump of whole minutes leaves the seconds alone, so all times of one minute
	// are covered or none is. The same holds for hours and days.
	grain := int64(1)
	for _, g := range [...]int64{60, 60 * 60, secondsPerDay} {
		if c.fields && shift%g == 0 {
			grain = g
		}
	}
	for wall < end && matches(w, wall+shift) {
		wall = w.nextWall(wall - floorMod(wall, grain) + grain)
	}
	return wall
}

// matches reports whether a rule names a wall time, or would if it went on.
func matches(w waller, wall int64) bool {
	if w, ok := w.(interface{ has(wall int64) bool }); ok {
		return w.has(wall)
	}
	return w.nextWall(wall) == wall
}
