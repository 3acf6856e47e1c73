package schedule

import "slices"

// settle prepares a rule of a set for Next.
func (r *recurrence) settle(set *calendarRule, o Options) error {
	if set.dated {
		if err := r.checkDated(); err != nil {
			return err
		}
	}
	r.interval = r.freq >= hourly
	r.follow(set.zone, o)
	r.pattern = newPattern(r, set.start)
	r.begin, r.floor, r.lost = set.begin, set.start, set.lost
	r.last, r.ceiling = horizon, horizon+2*secondsPerDay
	if periods := r.zone.periods; r.repeat {
		// If the clock goes back behind DTSTART before long, the times it shows again
		// are after DTSTART.
		if i := r.zone.at(r.begin) + 1; i < len(periods) {
			r.floor = min(r.floor, periods[i].start+periods[i].offset)
		}
	}
	if u := r.until; u != nil {
		switch {
		case u.exact:
			r.last = min(r.last, u.at)
		case u.dated:
			r.ceiling = min(r.ceiling, u.at+secondsPerDay-1)
		default:
			r.ceiling = min(r.ceiling, u.at)
		}
	}
	if r.count > 0 {
		r.last = r.countOut()
	}
	// No clock is two days away from UTC.
	r.ceiling = min(r.ceiling, r.last+2*secondsPerDay)
	return nil
}

// nextWall returns the first wall time of the rule that is not before the given
// one, or never.
func (r *recurrence) nextWall(from int64) int64 {
	return r.pattern.next(max(from, r.floor), r.ceiling)
}

// next returns the first instant after the given one at which the rule fires, or
// never. It walks the periods of the zone as civil.next does.
func (r *recurrence) next(t int64) int64 {
	t = max(t, r.begin-1)
	if t >= r.last {
		return never
	}
	periods := r.zone.periods
	i := r.zone.at(t)
	from := r.enter(i, t+1+periods[i].offset)
	wall := r.nextWall(from) // always the first match that is not before from
	for ; i+1 < len(periods) && periods[i+1].start <= r.last; i++ {
		next := &periods[i+1]
		end := next.start + periods[i].offset // of the wall times of this period
		if wall < end {
			break
		}
		first := next.start + next.offset // of the wall times of the next one
		if wall < first && r.nextLost(wall, first, first-end) < first {
			return next.start
		}
		if wall < first || first < from && r.again(i+1) {
			from, wall = first, r.nextWall(first)
		}
	}
	if wall == never || wall-periods[i].offset > r.last {
		return never
	}
	return wall - periods[i].offset
}

// again says whether the wall times fire that the clock shows for the second time
// when a period begins: both times are wanted, or the first was before DTSTART.
func (r *recurrence) again(i int) bool {
	return r.repeat || r.begin >= r.zone.periods[i].start
}

// enter returns the first wall time of a period that fires, from the given one on.
func (r *recurrence) enter(i int, from int64) int64 {
	if periods := r.zone.periods; i > 0 && !r.again(i) {
		return max(from, periods[i].start+periods[i-1].offset)
	}
	return from
}

// nextLost returns the first wall time from a matching one on that fires at the
// end of a skipped stretch, or something not before that end. Shift is how far the
// clock jumps. A skipped time of an interval-like rule is covered, and not lost,
// if the pattern also has the time that lies as much later.
func (r *recurrence) nextLost(wall, end, shift int64) int64 {
	if r.skipGap {
		return never
	}
	for wall < end {
		_, removed := slices.BinarySearch(r.lost, wall)
		switch {
		case r.interval && r.has(wall+shift):
			grain := r.grain(shift)
			wall = r.nextWall(wall - floorMod(wall, grain) + grain)
		case removed:
			wall = r.nextWall(wall + 1)
		default:
			return wall
		}
	}
	return wall
}

// grain returns the length of stretches of which all wall times are covered by
// those that lie a shift later or none is. Where the jump is one of whole
// minutes it leaves the seconds alone, and so on; and all units are alike.
func (r *recurrence) grain(shift int64) int64 {
	grain := int64(1)
	if r.setPos != nil {
		if shift%r.unit == 0 {
			grain = r.unit
		}
		return grain
	}
	for _, g := range [...]int64{60, 60 * 60, secondsPerDay} {
		if shift%g == 0 {
			grain = g
		}
	}
	return grain
}
