package schedule

// COUNT counts what the rule names on the clock: a wall time that the clock skips
// counts if it is made up, also if several are made up at once, and one that the
// clock shows twice counts as often as it fires. What an EXDATE takes away has
// been counted.

// countOut returns the instant at which the rule has fired COUNT times, or the
// horizon.
func (r *recurrence) countOut() int64 {
	periods := r.zone.periods
	i := r.zone.at(r.begin - 1)
	from := r.enter(i, r.begin+periods[i].offset)
	left := r.count
	for ; ; i++ {
		end := horizon + secondsPerDay
		if i+1 < len(periods) {
			end = periods[i+1].start + periods[i].offset
		}
		var wall int64
		if wall, left = r.skip(max(from, r.floor), end, left); left == 0 {
			return min(wall-periods[i].offset, horizon)
		}
		if i+1 == len(periods) || periods[i+1].start >= horizon {
			return horizon
		}
		first := periods[i+1].start + periods[i+1].offset
		if left -= r.countLost(end, first, left); left == 0 {
			return periods[i+1].start
		}
		from = r.enter(i+1, first)
	}
}

// skip passes over so many matches from one wall time to another. It returns the
// last of them, or how many are left. Whole days are taken at once.
func (r *recurrence) skip(from, to, left int64) (int64, int64) {
	whole := floorMod(from, secondsPerDay) == 0 // from is the beginning of a day
	wall := r.pattern.next(from, to-1)
	for wall != never {
		day := floorDiv(wall, secondsPerDay)
		tomorrow := (day + 1) * secondsPerDay
		if whole && tomorrow <= to {
			if n := r.timesOn(day); n > 0 && n < left {
				left -= n
				wall = r.pattern.next(tomorrow, to-1)
				continue
			}
		}
		if left--; left == 0 {
			return wall, 0
		}
		wall = r.pattern.next(wall+1, to-1)
		whole = wall >= tomorrow
	}
	return never, left
}

// timesOn returns how many wall times the pattern has on a day on which it has
// some, or -1 if that takes a look at each.
func (p *pattern) timesOn(day int64) int64 {
	switch {
	case p.unit > 0:
		return p.unitsOn(day) * int64(p.setPos.len(p.times.len))
	case p.setPos == nil:
		return int64(p.times.len)
	}
	return -1
}

// countLost counts the wall times that are made up at the end of a skipped stretch,
// up to a limit. An EXDATE does not matter here.
func (r *recurrence) countLost(begin, end, limit int64) (n int64) {
	if r.skipGap {
		return 0
	}
	wall := r.pattern.next(max(begin, r.floor), end-1)
	for ; wall != never && n < limit; wall = r.pattern.next(wall+1, end-1) {
		if !r.interval || !r.has(wall+end-begin) {
			n++
		}
	}
	return n
}
