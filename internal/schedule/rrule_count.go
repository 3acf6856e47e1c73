package schedule

// COUNT counts what the rule names on the clock: a wall time that the clock skips
// counts if it is made up, also if several are made up at once, and one that the
// clock shows twice counts as often as it fires. What an EXDATE takes away has
// been counted.

// countOut returns the instant at which the rule has fired COUNT times, or the
// horizon.
func (r *recurrence) countOut() int64 {
	r.pattern.count()
	defer func() { r.pattern.counts = nil }()
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
// last of them, or how many are left.
func (r *recurrence) skip(from, to, left int64) (int64, int64) {
	whole := floorMod(from, secondsPerDay) == 0 // from is the beginning of a day
	wall := r.pattern.next(from, to-1)
	for wall != never {
		tomorrow := (floorDiv(wall, secondsPerDay) + 1) * secondsPerDay
		if n, resume := r.leap(wall, to, left-1, whole); n > 0 {
			left -= n
			wall = r.pattern.next(resume, to-1)
			whole = floorMod(resume, secondsPerDay) == 0
			continue
		}
		if left--; left == 0 {
			return wall, 0
		}
		wall = r.pattern.next(wall+1, to-1)
		whole = wall >= tomorrow
	}
	return never, left
}

// leap counts the matches from one on that need no look at each, before a wall
// time and up to a limit, and returns where to go on. Whole says that the match is
// the first of its day.
func (p *pattern) leap(wall, to, limit int64, whole bool) (n, resume int64) {
	day := floorDiv(wall, secondsPerDay)
	tomorrow := (day + 1) * secondsPerDay
	switch {
	case p.unit > 0 && p.within == nil:
		begin := wall - floorMod(wall, p.unit)
		if wall-begin != int64(p.nextTime(0)) {
			return 0, 0
		}
		if !p.everyDay {
			to = min(to, tomorrow)
		}
		times := int64(p.setPos.len(p.times.len))
		n = min((to-p.unit-begin+p.step)/p.step, limit/times)
		return n * times, begin + n*p.step
	case !whole || tomorrow > to || p.unit == 0 && p.setPos != nil:
		return 0, 0
	case p.unit > 0:
		n = p.unitsOn(day) * int64(p.setPos.len(p.times.len))
	case p.every == 1:
		last, times := floorDiv(to, secondsPerDay), int64(p.times.len)
		dates := int64(p.countDates(day, last))
		if n = min(dates, limit/times); n < dates {
			last = p.nthDate(day, int(n))
		}
		return n * times, last * secondsPerDay
	default:
		n = int64(p.times.len)
	}
	if n > limit {
		return 0, 0
	}
	return n, tomorrow
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
