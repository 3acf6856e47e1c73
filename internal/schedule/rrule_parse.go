package schedule

import (
	"slices"
	"strings"
)

// rruleProperties are the properties of a calendar rule. A blank may separate them
// where a line break cannot be typed.
var rruleProperties = []string{"DTSTART", "RRULE", "RDATE", "EXDATE", "EXRULE"}

// contentLine is a property, unfolded.
type contentLine struct {
	text string
	from []int // position of each character in the whole text
}

func (l *contentLine) errorAt(i int, format string, args ...any) error {
	return errorAt(l.pos(i), rruleExample, format, args...)
}

// pos is where a character of the line is in the whole text.
func (l *contentLine) pos(i int) int {
	if len(l.from) == 0 {
		return 0
	}
	return l.from[min(i, len(l.from)-1)] + max(0, i-len(l.from)+1)
}

// propertyName returns the name before a text's first other character, in upper case,
// and that character, or 0.
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

// isRule reports whether a line is a recurrence rule, with or without its name.
func (l *contentLine) isRule() bool {
	name, end := propertyName(l.text)
	return end == '=' || name == "RRULE"
}

// splitContentLines splits a text into properties, which line breaks or blanks
// separate. A line that begins with a blank continues the one before; blanks after a
// mark such as ";" are dropped.
func splitContentLines(text string) []*contentLine {
	var lines []*contentLine
	var last *contentLine
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
			panic(errorAt(pos+i, rruleExample, "unexpected character %q", []rune(word[i:])[0]))
		}
		if startsContentLine(last, blanks, word, pos) {
			last = &contentLine{}
			lines = append(lines, last)
		}
		last.text += word
		for i := range len(word) {
			last.from = append(last.from, pos+i)
		}
		pos += len(word)
		blanks = ""
	}
	return lines
}

// startsContentLine decides whether a word is the beginning of a property or belongs to
// the line before it, which may be nil.
func startsContentLine(last *contentLine, blanks, word string, pos int) bool {
	const marks = ";:,="
	name, end := propertyName(word)
	property := name != "" && (end == ':' || end == ';')
	broken := strings.ContainsAny(blanks, "\r\n")
	folded := broken && (blanks[len(blanks)-1] == ' ' || blanks[len(blanks)-1] == '\t')
	switch {
	case last == nil, broken && !folded, property && (!folded || slices.Contains(rruleProperties, name)),
		name != "" && end == '=' && !last.isRule(): // a rule without its name
		return true
	case folded, strings.IndexByte(marks, word[0]) >= 0, strings.IndexByte(marks, last.text[len(last.text)-1]) >= 0:
		return false
	case last.isRule():
		panic(errorAt(pos, rruleExample, "a %q is missing before %q", ";", word))
	}
	panic(errorAt(pos, rruleExample, "unexpected %q after %q", word, last.text))
}

type rruleParser struct {
	options Options
	start   *dateProperty // DTSTART
	dates   []*dateProperty
	rules   []*rrule
}

type dateProperty struct {
	line   *contentLine
	name   string
	zone   *zone // TZID, or nil
	zoneAt int
	value  string // VALUE, DATE or DATE-TIME; "" if it is not said
	from   int    // where the dates begin
}

func (c *rruleParser) parseProperty(l *contentLine) {
	name, end := propertyName(l.text)
	switch {
	case end == '=':
		c.addRule(l, 0)
		return
	case name == "RRULE" && end == ':':
		c.addRule(l, len("RRULE:"))
		return
	case name == "RRULE":
		panic(l.errorAt(len(name), "RRULE has no parameters: a %q follows it", ":"))
	case name == "EXRULE":
		panic(l.errorAt(0, "EXRULE is not supported, as in RFC 5545: name the dates in an EXDATE"))
	case name != "DTSTART" && name != "RDATE" && name != "EXDATE" || end == 0:
		panic(l.errorAt(0, "%q is not a DTSTART, RRULE, RDATE or EXDATE line", l.text))
	}
	p := &dateProperty{line: l, name: name}
	p.parseParameters()
	switch {
	case name != "DTSTART":
		c.dates = append(c.dates, p)
	case c.start != nil:
		panic(l.errorAt(0, "there are two DTSTART lines"))
	default:
		c.start = p
	}
}

func (c *rruleParser) addRule(l *contentLine, from int) {
	if len(c.rules) == maxRRules {
		panic(l.errorAt(0, "there are more than %d RRULE lines", maxRRules))
	}
	c.rules = append(c.rules, parseRRule(l, from))
}

// parseParameters parses what is between the name of a property and its colon.
func (p *dateProperty) parseParameters() {
	l, pos := p.line, len(p.name)
	for l.text[pos] == ';' {
		pos++
		end := parameterEnd(l.text, pos)
		if end == len(l.text) {
			panic(l.errorAt(end, "%s: a %q and a date are missing", p.name, ":"))
		}
		key, value, _ := strings.Cut(l.text[pos:end], "=")
		valueAt := pos + len(key) + 1
		if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
			value, valueAt = value[1:n-1], valueAt+1
		}
		switch upper := strings.ToUpper(value); strings.ToUpper(key) {
		case "TZID":
			z, err := loadZone(value)
			if e, ok := err.(*Error); ok {
				panic(&Error{Field: "schedule", Column: l.pos(valueAt) + 1, Message: e.Message, Example: rruleExample})
			}
			p.zone, p.zoneAt = z, valueAt
		case "VALUE":
			if upper != "DATE" && upper != "DATE-TIME" {
				panic(l.errorAt(valueAt, "%s: the VALUE is DATE or DATE-TIME, not %q", p.name, value))
			}
			p.value = upper
		default:
			panic(l.errorAt(pos, "%s: unknown parameter %q; use TZID or VALUE", p.name, key))
		}
		pos = end
	}
	p.from = pos + 1
}

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

func (c *rruleParser) build() Rule {
	if len(c.rules) == 0 {
		panic(errorf(rruleExample, "there is no RRULE"))
	}
	r := &rruleSet{rules: c.rules}
	if name := c.options.Timezone; c.start == nil || c.start.zone == nil {
		r.zone = zoneOrUTC(name)
	} else if own := c.start.zone.location.String(); name != "" && name != own {
		panic(c.start.line.errorAt(c.start.zoneAt, "DTSTART names the time zone %q itself, but the timezone is %q", own, name))
	} else {
		r.zone = c.start.zone
	}
	c.resolveStart(r)
	for _, p := range c.dates {
		list := p.parseDates(r.zone)
		if p.name == "RDATE" {
			r.rdates = append(r.rdates, list...)
		} else {
			r.exdates = append(r.exdates, list...)
		}
	}
	r.prepareWithin(c.options, storedShare*maxReadSteps, storedShare*maxNextSteps)
	return r
}

// resolveStart finds the start of the rule: its DTSTART or Options.Start.
func (c *rruleParser) resolveStart(r *rruleSet) {
	var m rruleDate
	switch begin := c.options.Start; {
	case c.start != nil:
		list := c.start.parseDates(r.zone)
		if len(list) > 1 {
			panic(c.start.line.errorAt(c.start.from, "DTSTART is a single date"))
		}
		m = list[0]
	case begin.IsZero():
		panic(errorf(rruleStartExample, "a calendar rule needs a start: give it a DTSTART line or starts_at"))
	case begin.Unix() < firstInstant || begin.Unix() >= horizon:
		panic(errorf(rruleExample, "the schedule begins outside the years 1 to %d", lastYear))
	default:
		m = rruleDate{at: begin.Unix(), isInstant: true}
	}
	r.start, r.dateOnly = m.at, m.dateOnly
	if m.isInstant {
		r.begin = m.at
		r.start = r.zone.wallAt(m.at)
	} else {
		r.begin, _ = r.zone.resolve(m.at)
	}
}

// parseDates parses the dates of a property. Those of another zone than the rule's
// become instants.
func (p *dateProperty) parseDates(z *zone) (list []rruleDate) {
	pos := p.from
	for item := range strings.SplitSeq(p.line.text[p.from:], ",") {
		m := p.line.parseDate(pos, item)
		switch {
		case p.value == "DATE" && !m.dateOnly:
			panic(p.line.errorAt(pos+len("20260301"), "%s: a VALUE=DATE has no time of day", p.name))
		case p.value == "DATE-TIME" && m.dateOnly:
			panic(p.line.errorAt(pos, "%s: a VALUE=DATE-TIME needs a time of day such as 20260301T090000", p.name))
		case m.isInstant && p.zone != nil:
			panic(p.line.errorAt(pos+len(item)-1, "%s: a time with a Z is in UTC and has no TZID", p.name))
		case p.zone != nil && p.zone != z:
			m.at, _ = p.zone.resolve(m.at)
			m.isInstant = true
		}
		list = append(list, m)
		pos += len(item) + 1
	}
	return list
}

// parseDate parses a date such as 20260301, 20260301T090000 or 20260301T090000Z.
func (l *contentLine) parseDate(pos int, text string) (m rruleDate) {
	// requireDigits refuses a text with less than n digits from a character on.
	requireDigits := func(from, n int) {
		rest := text[min(from, len(text)):]
		if digits := len(rest) - len(strings.TrimLeft(rest, "0123456789")); digits < n {
			panic(l.errorAt(pos+from+digits, "%q is not a date such as 20260301T090000, with or without a Z", text))
		}
	}
	number := func(name string, from, n, low, high int) int {
		v := int(parseDigits(text[from:from+n], 9999))
		if v < low || v > high {
			panic(l.errorAt(pos+from, "the %s %d is out of range, it goes from %d to %d", name, v, low, high))
		}
		return v
	}
	requireDigits(0, 8)
	year, month := number("year", 0, 4, 1, 9999), number("month", 4, 2, 1, 12)
	if m.dateOnly = len(text) == 8; !m.dateOnly && text[8]|0x20 != 't' {
		panic(l.errorAt(pos+8, "%q is not a date such as 20260301T090000, with or without a Z", text))
	}
	day := number("day", 6, 2, 1, monthLength(year, month))
	m.at = dayNumber(year, month, day) * secondsPerDay
	if m.dateOnly {
		return m
	}
	requireDigits(9, 6)
	hour, minute, second := number("hour", 9, 2, 0, 23), number("minute", 11, 2, 0, 59), number("second", 13, 2, 0, 59)
	m.at += int64((hour*60+minute)*60 + second)
	rest := text[15:]
	if m.isInstant = rest == "Z" || rest == "z"; rest != "" && !m.isInstant {
		panic(l.errorAt(pos+15, "unexpected %q after %q", rest, text[:15]))
	}
	return m
}
