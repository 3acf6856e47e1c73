package schedule

import "strings"

// calendarReader gathers the properties of a calendar rule.
type calendarReader struct {
	options Options
	start   *dateProperty // DTSTART
	dates   []*dateProperty
	rules   []*recurrence
	slow    int64 // what has to be counted one by one
}

// dateProperty is a property that holds dates.
type dateProperty struct {
	line   *calendarLine
	name   string
	zone   string // TZID
	zoneAt int
	value  string // VALUE, DATE or DATE-TIME; "" if it is not said
	from   int    // where the dates begin
}

// property reads one line.
func (c *calendarReader) property(l *calendarLine) error {
	name, end := propertyName(l.text)
	switch {
	case end == '=':
		return c.recurrence(l, 0)
	case name == "RRULE" && end == ':':
		return c.recurrence(l, len("RRULE:"))
	case name == "RRULE":
		return l.at(len(name), "RRULE has no parameters: a %q follows it", ":")
	case name == "EXRULE":
		return l.at(0, "EXRULE is not supported, as in RFC 5545: name the dates in an EXDATE")
	case name != "DTSTART" && name != "RDATE" && name != "EXDATE" || end == 0:
		return l.at(0, "%q is none of the lines DTSTART, RRULE, RDATE and EXDATE", clip(l.text))
	}
	p := &dateProperty{line: l, name: name}
	if err := p.parameters(); err != nil {
		return err
	}
	if name != "DTSTART" {
		c.dates = append(c.dates, p)
		return nil
	}
	if c.start != nil {
		return l.at(0, "there are two DTSTART lines")
	}
	c.start = p
	return nil
}

func (c *calendarReader) recurrence(l *calendarLine, from int) error {
	if len(c.rules) == maxRecurrences {
		return l.at(0, "there are more than %d RRULE lines", maxRecurrences)
	}
	r, err := readRecurrence(l, from)
	if err != nil {
		return err
	}
	if r.countsSlowly() {
		if c.slow += r.count; c.slow > maxSlowTimes {
			return l.at(from, "COUNT goes up to %d in rules like this, all together; say UNTIL instead", maxSlowTimes)
		}
	}
	c.rules = append(c.rules, r)
	return nil
}

// parameters reads what stands between the name of a property and its colon.
func (p *dateProperty) parameters() error {
	l, pos := p.line, len(p.name)
	for l.text[pos] == ';' {
		pos++
		end := parameterEnd(l.text, pos)
		if end == len(l.text) {
			return l.at(end, "%s: a %q and a date are missing", p.name, ":")
		}
		key, value, _ := strings.Cut(l.text[pos:end], "=")
		valueAt := pos + len(key) + 1
		if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
			value, valueAt = value[1:n-1], valueAt+1
		}
		switch upper := strings.ToUpper(value); strings.ToUpper(key) {
		case "TZID":
			p.zone, p.zoneAt = value, valueAt
			if _, err := p.load(); err != nil {
				return err
			}
		case "VALUE":
			if upper != "DATE" && upper != "DATE-TIME" {
				return l.at(valueAt, "%s: the VALUE is DATE or DATE-TIME, not %q", p.name, clip(value))
			}
			p.value = upper
		default:
			return l.at(pos, "%s: there is no parameter %q; accepted are TZID and VALUE", p.name, clip(key))
		}
		pos = end
	}
	p.from = pos + 1
	return nil
}

// parameterEnd returns where a parameter ends that begins at pos.
func parameterEnd(text string, pos int) int {
	quoted := false
	for ; pos < len(text); pos++ {
		switch c := text[pos]; {
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ';' || c == ':'):
			return pos
		}
	}
	return pos
}

// load returns the zone of the property.
func (p *dateProperty) load() (*zone, error) {
	z, err := loadZone(p.zone)
	if e, ok := err.(*Error); ok {
		return nil, p.line.at(p.zoneAt, "%s", e.Message)
	}
	return z, err
}

// rule puts the properties together.
func (c *calendarReader) rule() (*calendarRule, error) {
	if len(c.rules) == 0 {
		return nil, refuseRule("there is no RRULE")
	}
	r := &calendarRule{rules: c.rules, anchored: c.start != nil}
	if err := c.locate(r); err != nil {
		return nil, err
	}
	if err := c.anchor(r); err != nil {
		return nil, err
	}
	for _, p := range c.dates {
		list, err := p.moments(r.zone)
		if err != nil {
			return nil, err
		}
		if p.name == "RDATE" {
			r.rdates = append(r.rdates, list...)
		} else {
			r.exdates = append(r.exdates, list...)
		}
	}
	return r, r.settle(c.options)
}

// locate finds the zone of the rule: the given one, that of DTSTART, or UTC.
func (c *calendarReader) locate(r *calendarRule) (err error) {
	name := c.options.Timezone
	if c.start != nil && c.start.zone != "" {
		if name != "" && name != c.start.zone {
			return c.start.line.at(c.start.zoneAt, "DTSTART names the time zone %q itself, but the timezone is %q", clip(c.start.zone), name)
		}
		name = c.start.zone
	}
	if name == "" {
		name = "UTC"
	}
	r.zone, err = loadZone(name)
	return err
}

// anchor finds where the rule begins: at its DTSTART or at Options.Start.
func (c *calendarReader) anchor(r *calendarRule) error {
	var m moment
	switch begin := c.options.Start; {
	case c.start != nil:
		list, err := c.start.moments(r.zone)
		if err != nil {
			return err
		}
		if len(list) > 1 {
			return c.start.line.at(c.start.from, "DTSTART is a single date")
		}
		m = list[0]
	case begin.IsZero():
		e := refuseRule("a calendar rule counts from somewhere: give it a DTSTART line or starts_at").(*Error)
		e.Example = anchoredExample
		return e
	case begin.Unix() < firstInstant || begin.Unix() >= horizon:
		return refuseRule("the schedule begins outside the years 1 to %d", lastYear)
	default:
		m = moment{at: begin.Unix(), exact: true}
	}
	r.start, r.dated = m.at, m.dated
	if m.exact {
		r.begin = m.at
		r.start += r.zone.periods[r.zone.at(m.at)].offset
	} else {
		r.begin, _ = r.zone.resolve(m.at)
	}
	return nil
}
