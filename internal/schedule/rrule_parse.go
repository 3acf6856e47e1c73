package schedule

import (
	"slices"
	"strings"
)

// calendarProperties are the properties that a calendar rule may have. They may
// follow each other after a blank, when a line break cannot be typed.
var calendarProperties = []string{"DTSTART", "RRULE", "RDATE", "EXDATE", "EXRULE"}

// calendarLine is a property as it is written, without the breaks of a folded
// line.
type calendarLine struct {
	text string
	from []int // where each character stands in the whole text
}

// at returns an Error about the character i of a line.
func (l *calendarLine) at(i int, format string, args ...any) error {
	pos := 0
	if len(l.from) > 0 {
		pos = l.from[min(i, len(l.from)-1)] + max(0, i-len(l.from)+1)
	}
	return at(pos, calendarExample, format, args...)
}

// add appends a part of the text that begins at pos.
func (l *calendarLine) add(part string, pos int) {
	l.text += part
	for i := range len(part) {
		l.from = append(l.from, pos+i)
	}
}

// propertyName returns the letters at the beginning of a text and the character after
// them, or 0. The name is in upper case.
func propertyName(text string) (name string, end byte) {
	n := 0
	for n < len(text) && (text[n] == '-' || 'A' <= text[n]&^0x20 && text[n]&^0x20 <= 'Z') {
		n++
	}
	if n == len(text) {
		return strings.ToUpper(text), 0
	}
	return strings.ToUpper(text[:n]), text[n]
}

// isRule says whether a line is a recurrence rule, with or without its name.
func (l *calendarLine) isRule() bool {
	name, end := propertyName(l.text)
	return end == '=' || name == "RRULE"
}

// calendarLines takes a text apart into properties. They stand on lines of their
// own or have blanks between them. A line that begins with a blank continues the
// one before; blanks after a mark such as ";" are dropped.
func calendarLines(text string) ([]*calendarLine, error) {
	var lines []*calendarLine
	blanks := "" // before the word
	for pos := 0; pos < len(text); {
		word := text[pos:]
		if n := strings.IndexAny(word, " \t\r\n"); n >= 0 {
			word = word[:n]
		}
		if word == "" {
			blanks += text[pos : pos+1]
			pos++
			continue
		}
		if i := strings.IndexFunc(word, func(r rune) bool { return r <= ' ' || r > '~' }); i >= 0 {
			return nil, at(pos+i, calendarExample, "unexpected character %q", []rune(word[i:])[0])
		}
		begins := true
		if len(lines) > 0 {
			var err error
			if begins, err = beginsLine(lines[len(lines)-1], blanks, word, pos); err != nil {
				return nil, err
			}
		}
		if begins {
			lines = append(lines, &calendarLine{})
		}
		lines[len(lines)-1].add(word, pos)
		pos += len(word)
		blanks = ""
	}
	return lines, nil
}

// beginsLine decides whether a word is the beginning of a property or belongs to
// the line before it.
func beginsLine(last *calendarLine, blanks, word string, pos int) (bool, error) {
	const marks = ";:,="
	name, end := propertyName(word)
	property := name != "" && (end == ':' || end == ';')
	broken := strings.ContainsAny(blanks, "\r\n")
	folded := broken && (blanks[len(blanks)-1] == ' ' || blanks[len(blanks)-1] == '\t')
	switch {
	case broken && !folded:
		return true, nil
	case property && (!folded || slices.Contains(calendarProperties, name)):
		return true, nil
	case name != "" && end == '=' && !last.isRule():
		return true, nil // A rule without its name.
	case folded, strings.IndexByte(marks, word[0]) >= 0, strings.IndexByte(marks, last.text[len(last.text)-1]) >= 0:
		return false, nil
	case last.isRule():
		return false, at(pos, calendarExample, "a %q is missing before %q", ";", clip(word))
	}
	return false, at(pos, calendarExample, "unexpected %q after %q", clip(word), clip(last.text))
}

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
