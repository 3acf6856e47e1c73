package schedule

// check refuses what RFC 5545 does not allow together.
func (r *recurrence) check(parts map[string]*recurrencePart) error {
	forbid := func(name, format string, args ...any) error {
		p := parts[name]
		return p.line.at(p.nameAt, name+" "+format, args...)
	}
	days := 5 // how many of a weekday there may be where an ordinal counts
	if r.freq == yearly && r.months == nil {
		days = 53
	}
	switch {
	case r.count > 0 && r.until != nil:
		return forbid("COUNT", "and UNTIL exclude each other")
	case r.weeks != nil && r.freq != yearly:
		return forbid("BYWEEKNO", "goes with FREQ=YEARLY only, not with %s", r.freq)
	case r.yearDays != nil && (r.freq == monthly || r.freq == weekly || r.freq == daily):
		return forbid("BYYEARDAY", "does not go with FREQ=%s", r.freq)
	case r.days != nil && r.freq == weekly:
		return forbid("BYMONTHDAY", "does not go with FREQ=WEEKLY")
	case r.setPos != nil && r.months == nil && r.weeks == nil && r.yearDays == nil && r.days == nil && r.weekdays == nil &&
		r.hours == nil && r.minutes == nil && r.seconds == nil:
		return forbid("BYSETPOS", "chooses from what another BY part names, and there is none")
	}
	for _, d := range r.weekdays {
		switch {
		case d.n == 0:
		case r.freq != yearly && r.freq != monthly:
			return forbid("BYDAY", "has numbers with FREQ=MONTHLY and FREQ=YEARLY only, not with %s", r.freq)
		case r.weeks != nil:
			return forbid("BYDAY", "has no numbers together with BYWEEKNO")
		case d.n > days || d.n < -days:
			return forbid("BYDAY", "%d is out of range: a month has at most %d of a weekday", d.n, days)
		}
	}
	return nil
}

// checkDated refuses times of day for a rule that begins on a date without one.
func (r *recurrence) checkDated() error {
	if r.hours != nil || r.minutes != nil || r.seconds != nil {
		return refuseRule("BYHOUR, BYMINUTE and BYSECOND need a DTSTART with a time of day, such as DTSTART:20260301T000000")
	}
	return nil
}

// countsSlowly says whether the occurrences of a day cannot be told without
// looking at each.
func (r *recurrence) countsSlowly() bool {
	if r.freq <= daily {
		return r.setPos != nil
	}
	return r.every > 1 && r.limits()
}

// limits says whether a rule of hours or less is limited to times of the day.
func (r *recurrence) limits() bool {
	return r.hours != nil || r.freq >= minutely && r.minutes != nil || r.freq == secondly && r.seconds != nil
}
