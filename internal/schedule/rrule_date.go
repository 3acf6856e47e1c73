package schedule

import "strings"

// moments reads the dates of a property. Those of another zone than the rule's
// become instants.
func (p *dateProperty) moments(z *zone) (list []moment, err error) {
	pos := p.from
	for item := range strings.SplitSeq(p.line.text[p.from:], ",") {
		m, err := p.line.moment(pos, item)
		switch {
		case err != nil:
			return nil, err
		case p.value == "DATE" && !m.dated:
			return nil, p.line.at(pos+len("20260301"), "%s: a VALUE=DATE has no time of day", p.name)
		case p.value == "DATE-TIME" && m.dated:
			return nil, p.line.at(pos, "%s: a VALUE=DATE-TIME needs a time of day such as 20260301T090000", p.name)
		case m.exact && p.zone != "":
			return nil, p.line.at(pos+len(item)-1, "%s: a time with a Z is in UTC and has no TZID", p.name)
		}
		if p.zone != "" && !m.exact {
			other, err := p.load()
			if err != nil {
				return nil, err
			}
			if other != z {
				m.at, _ = other.resolve(m.at)
				m.exact = true
			}
		}
		list = append(list, m)
		pos += len(item) + 1
	}
	return list, nil
}

// moment reads a date such as 20260301, 20260301T090000 or 20260301T090000Z.
func (l *calendarLine) moment(pos int, text string) (m moment, err error) {
	digits := func(from, n int) int {
		v := 0
		for i := from; i < from+n; i++ {
			if err == nil && (i >= len(text) || text[i] < '0' || text[i] > '9') {
				err = l.at(pos+i, "%q is not a date such as 20260301T090000, with or without a Z", clip(text))
			}
			if err == nil {
				v = v*10 + int(text[i]-'0')
			}
		}
		return v
	}
	limit := func(from int, name string, v, low, high int) {
		if err == nil && (v < low || v > high) {
			err = l.at(pos+from, "the %s %d is out of range, it goes from %d to %d", name, v, low, high)
		}
	}
	year, month, day := digits(0, 4), digits(4, 2), digits(6, 2)
	limit(0, "year", year, 1, 9999)
	limit(4, "month", month, 1, 12)
	if err != nil {
		return m, err
	}
	limit(6, "day", day, 1, monthLength(year, month))
	m.at = dayNumber(year, month, day) * secondsPerDay
	if len(text) == 8 {
		m.dated = true
		return m, err
	}
	if text[8]|0x20 != 't' {
		return m, l.at(pos+8, "%q is not a date such as 20260301T090000, with or without a Z", clip(text))
	}
	hour, minute, second := digits(9, 2), digits(11, 2), digits(13, 2)
	limit(9, "hour", hour, 0, 23)
	limit(11, "minute", minute, 0, 59)
	limit(13, "second", second, 0, 59)
	m.at += int64((hour*60+minute)*60 + second)
	if rest := text[min(15, len(text)):]; err == nil && rest != "" {
		if m.exact = rest == "Z" || rest == "z"; !m.exact {
			err = l.at(pos+15, "unexpected %q after %q", clip(rest), text[:15])
		}
	}
	return m, err
}
