package schedule

import "strings"

var cronMacros = map[string]string{
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
	"@monthly":  "0 0 1 * *",
	"@weekly":   "0 0 * * 0",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@hourly":   "0 * * * *",
}

var cronFields = []*cronField{secondField, minuteField, hourField, dayField, monthField, weekdayField, yearField}

// cronLayouts has the fields of an expression by their number.
var cronLayouts = map[int][]*cronField{
	5: cronFields[1:6], 6: cronFields[:6], 7: cronFields,
}

func parseCron(text string, o Options) Rule {
	z, start := cronZone(text, o.Timezone)
	words := splitWords(text, start)
	switch {
	case len(words) == 0:
		panic(errorf(cronExample, "the fields are missing after the time zone"))
	case strings.EqualFold(words[0].text, "@every"):
		return parseEvery(words, z, o)
	case words[0].text[0] == '@':
		words = expandMacro(words)
	}
	return buildCron(words, z, o)
}

// cronZone returns the zone of an expression, which may name it itself, and where
// its fields begin.
func cronZone(text, timezone string) (*zone, int) {
	name, nameAt, restAt, prefixed := splitZone(text)
	if timezone == "" && prefixed {
		z, err := loadZone(name)
		if e, ok := err.(*Error); ok {
			panic(&Error{Field: "schedule", Column: nameAt + 1, Message: e.Message, Example: "CRON_TZ=" + e.Example + " " + cronExample})
		}
		return z, restAt
	}
	z := zoneOrUTC(timezone)
	if prefixed && name != timezone {
		panic(errorAt(nameAt, cronExample, "the schedule names the time zone %q itself, but its timezone is %q", name, timezone))
	}
	return z, restAt
}

func expandMacro(words []word) []word {
	macro := strings.ToLower(words[0].text)
	expression, ok := cronMacros[macro]
	switch {
	case ok && len(words) == 1:
		return splitWords(expression, 0)
	case ok:
		panic(errorAt(words[1].pos, macro, "unexpected %q after %s", words[1].text, macro))
	case macro == "@reboot":
		panic(errorAt(words[0].pos, "@daily", "@reboot names no time"))
	}
	panic(errorAt(words[0].pos, "@daily", "unknown macro %q; use @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually or @every 90s", words[0].text))
}

func buildCron(words []word, z *zone, o Options) Rule {
	layout, ok := cronLayouts[len(words)]
	if !ok {
		panic(errorf(cronExample, "%s instead of 5 (minute, hour, day of month, month, weekday), 6 (second first) or 7 (second first, year last)", plural(int64(len(words)), "field")))
	}
	days := &dayFields{eitherField: true}
	c := &cron{dayFields: days}
	intervalLike := false
	sets := [7]bitset{{1}} // by cronField.number; without a second field, second 0
	texts := make([]string, len(words))
	for i, f := range layout {
		text := words[i].text
		set := parseField(f, words[i], days)
		sets[f.number] = set
		everyValue := set.len() == f.size()
		switch f {
		case dayField, weekdayField:
			days.eitherField = days.eitherField && text[0] != '*' && text[0] != '?'
		case secondField, minuteField, hourField:
			intervalLike = intervalLike || everyValue || strings.ContainsAny(text, "*/")
		case yearField:
			if !everyValue {
				c.years = &set
			}
		}
		texts[i] = text
	}
	days.days, days.weekdays, c.months = sets[dayField.number][0], sets[weekdayField.number][0], sets[monthField.number][0]
	c.times = newTimeSet(sets[hourField.number][0], sets[minuteField.number][0], sets[secondField.number][0])
	c.interval, c.everyDay = 1, days.everyDay() && c.months == allBits(12) && c.years == nil
	if !c.everyDay {
		c.dates = days.yearTable(c.months)
	}
	c.text = strings.Join(texts, " ")
	c.wallClock = newWallClock(c, z, intervalLike, o)
	return c
}

type word struct {
	text string
	pos  int
}

func splitWords(text string, pos int) (words []word) {
	for {
		pos += len(text[pos:]) - len(strings.TrimLeft(text[pos:], " \t"))
		if pos == len(text) {
			return words
		}
		end := pos + strings.IndexAny(text[pos:]+" ", " \t")
		words = append(words, word{text[pos:end], pos})
		pos = end
	}
}

// cronField describes one position of a cron expression.
type cronField struct {
	name     string
	number   byte // of the position, with or without seconds and years
	low      int
	high     int    // the last value of "*"
	most     int    // the largest number that may be written
	hashHigh int    // the last value of H; 0 means that there is no H
	names    string // three letters for each value from low on
	example  string // a correct expression that shows the field
}

// Not every month has the days after the 28th, so H does not choose them.
var (
	secondField  = &cronField{number: 0, name: "second", high: 59, most: 59, hashHigh: 59, example: "*/10 * * * * *"}
	minuteField  = &cronField{number: 1, name: "minute", high: 59, most: 59, hashHigh: 59, example: "*/15 * * * *"}
	hourField    = &cronField{number: 2, name: "hour", high: 23, most: 23, hashHigh: 23, example: "0 9-17 * * *"}
	dayField     = &cronField{number: 3, name: "day of month", low: 1, high: 31, most: 31, hashHigh: 28, example: "0 9 1,15 * *"}
	monthField   = &cronField{number: 4, name: "month", low: 1, high: 12, most: 12, hashHigh: 12, names: "JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC", example: "0 9 1 JAN,JUL *"}
	weekdayField = &cronField{number: 5, name: "weekday", high: 6, most: 7, hashHigh: 6, names: "SUNMONTUEWEDTHUFRISAT", example: cronExample}
	yearField    = &cronField{number: 6, name: "year", low: firstYear, high: lastYear, most: lastYear, example: "0 0 9 1 1 * 2030-2035"}
)

func (f *cronField) size() int { return f.high - f.low + 1 }

type fieldParser struct {
	scanner     // over one item of the list
	itemAt  int // position of the item in the expression
	field   *cronField
	values  bitset     // bit n stands for low+n
	days    *dayFields // for the values of day fields that are no numbers
}

// parseField returns the values of a field. It stores what L, W and # name in days.
func parseField(f *cronField, w word, days *dayFields) bitset {
	if w.text == "?" {
		w.text = "*" // Meant for the day fields, harmless in others.
	}
	p := &fieldParser{field: f, itemAt: w.pos, days: days}
	for item := range strings.SplitSeq(w.text, ",") {
		p.scanner = scanner{text: item}
		if item == "" {
			panic(p.errorAt(0, "a list item is empty"))
		}
		p.parseItem()
		p.expectEnd()
		p.itemAt += len(item) + 1
	}
	return p.values
}

func (p *fieldParser) errorAt(pos int, format string, args ...any) error {
	return errorAt(p.itemAt+pos, p.field.example, p.field.name+": "+format, args...)
}

func (p *fieldParser) expectEnd() {
	if p.pos < len(p.text) {
		panic(p.errorAt(p.pos, "unexpected %q after %q", p.text[p.pos:], p.text[:p.pos]))
	}
}

func (p *fieldParser) parseItem() {
	f := p.field
	switch c := p.peek(); {
	case p.accept('*'):
		p.addRange(f.low, f.high, p.parseStep(1))
		return
	case c == '?':
		panic(p.errorAt(p.pos, `"?" must be the whole field`))
	case c == '+' || c == '-':
		panic(p.errorAt(p.pos, "numbers cannot have a sign"))
	case f == dayField && p.accept('L'):
		p.parseLastDay()
		return
	}
	a := p.parseValue()
	switch {
	case f == dayField && p.accept('W'):
		p.days.nearest |= 1 << (a - f.low)
	case f == weekdayField && p.accept('L'):
		p.days.lastWeekday |= 1 << (a % 7)
	case f == weekdayField && p.accept('#'):
		p.days.nth[p.parseNumber("the number after #", 1, 5)-1] |= 1 << (a % 7)
	case p.accept('-'):
		b := p.parseValue()
		if a > b && f == yearField {
			panic(p.errorAt(0, "the range %d-%d ends before it begins", a, b))
		}
		p.addRange(a, b, p.parseStep(1))
	case p.peek() == '/':
		p.addRange(a, f.high, p.parseStep(1))
	default:
		p.addRange(a, a, 1)
	}
}

// parseLastDay parses what follows an L: nothing, W, -n or -nW.
func (p *fieldParser) parseLastDay() {
	n, set := 0, &p.days.last
	if p.accept('-') {
		n = p.parseNumber("the number after L-", 0, 30)
	}
	if p.accept('W') {
		set = &p.days.lastNearest
	}
	*set |= 1 << n
}

// parseStep parses "/n", and returns the given step if it is missing.
func (p *fieldParser) parseStep(missing int) int {
	if !p.accept('/') {
		return missing
	}
	return p.parseNumber("the step", 1, maxNumber-1)
}

// addRange adds every step-th value from a to b, across the end of the range if b
// lies before a. Weekday 7 becomes 0.
func (p *fieldParser) addRange(a, b, step int) {
	if a > b {
		b += p.field.size()
	}
	for x := a; x <= b; x += step {
		p.values.add((x - p.field.low) % p.field.size())
	}
}

func (p *fieldParser) parseValue() int {
	if c := p.peek(); c < 'A' || c > 'Z' {
		return p.parseNumber("a value", p.field.low, p.field.most)
	}
	f, start := p.field, p.pos
	for c := p.peek(); 'A' <= c && c <= 'Z'; c = p.peek() {
		p.pos++
	}
	written := p.text[start:p.pos]
	name := strings.ToUpper(written)
	if f == weekdayField && len(name) == 4 && name[3] == 'L' {
		name = name[:3]
		p.pos--
	}
	if i := strings.Index(f.names, name); len(name) == 3 && i >= 0 && i%3 == 0 {
		return f.low + i/3
	}
	switch {
	case name == "H":
		panic(p.errorAt(start, "H is not resolved: each job gets a value for it when it is created"))
	case name == "L" && f == weekdayField:
		panic(p.errorAt(start, "L needs a weekday before it, such as FRIL"))
	case name == "W" && f == dayField:
		panic(p.errorAt(start, "W needs a day before it, such as 15W"))
	case f.names == "":
		panic(p.errorAt(start, "%q is not a number", written))
	}
	panic(p.errorAt(start, "there is no %q; names have three letters, %s to %s", written, f.names[:3], f.names[len(f.names)-3:]))
}

const maxNumber = 1_000_000

// parseNumber parses digits; what names the number in errors.
func (p *fieldParser) parseNumber(what string, low, high int) int {
	start := p.pos
	written := p.digits()
	n := int(parseDigits(written, maxNumber-1))
	switch c := p.peek(); {
	case written != "" && low <= n && n <= high:
		return n
	case written != "" && what == "a value":
		panic(errorAt(p.itemAt+start, p.field.example, "%s %s is out of range, it goes from %d to %d", p.field.name, written, low, high))
	case written != "" && n < low && high == maxNumber-1:
		panic(p.errorAt(start, "%s must be at least %d", what, low))
	case written != "":
		panic(p.errorAt(start, "%s %s is out of range, it goes from %d to %d", what, written, low, high))
	case c == 0:
		panic(p.errorAt(start, "%s is missing", what))
	case c == '+' || c == '-':
		panic(p.errorAt(start, "numbers cannot have a sign"))
	default:
		panic(p.errorAt(start, "unexpected %q in place of %s", c, what))
	}
}
