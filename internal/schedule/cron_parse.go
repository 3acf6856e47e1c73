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

// cronLayouts has the fields of an expression by their number.
var cronLayouts = map[int][]*cronField{
	5: {minuteField, hourField, dayField, monthField, weekdayField},
	6: {secondField, minuteField, hourField, dayField, monthField, weekdayField},
	7: {secondField, minuteField, hourField, dayField, monthField, weekdayField, yearField},
}

func parseCron(text string, o Options) (Rule, error) {
	z, start, err := cronZone(text, o.Timezone)
	if err != nil {
		return nil, err
	}
	words := splitWords(text, start)
	if len(words) == 0 {
		return nil, errorf(cronExample, "the fields are missing after the time zone")
	}
	if strings.EqualFold(words[0].text, "@every") {
		return parseEvery(words, z, o)
	}
	if strings.HasPrefix(words[0].text, "@") {
		if words, err = expandMacro(words); err != nil {
			return nil, err
		}
	}
	return buildCron(words, z, o)
}

// cronZone returns the zone of an expression, which may name it itself, and where
// its fields begin.
func cronZone(text, timezone string) (*zone, int, error) {
	name, nameAt, restAt, prefixed := splitZone(text)
	if timezone == "" && prefixed {
		z, err := loadZone(name)
		if e, ok := err.(*Error); ok {
			err = &Error{Field: "schedule", Column: nameAt + 1, Message: e.Message, Example: "CRON_TZ=" + e.Example + " " + cronExample}
		}
		return z, restAt, err
	}
	z, err := loadZoneOrUTC(timezone)
	if err == nil && prefixed && name != timezone {
		err = errorAt(nameAt, cronExample, "the schedule names the time zone %q itself, but its timezone is %q", name, timezone)
	}
	return z, restAt, err
}

func expandMacro(words []word) ([]word, error) {
	macro := strings.ToLower(words[0].text)
	expression, ok := cronMacros[macro]
	switch {
	case ok && len(words) == 1:
		return splitWords(expression, 0), nil
	case ok:
		return nil, errorAt(words[1].pos, macro, "unexpected %q after %s", words[1].text, macro)
	case macro == "@reboot":
		return nil, errorAt(words[0].pos, "@daily", "@reboot names no time")
	}
	return nil, errorAt(words[0].pos, "@daily", "unknown macro %q; use @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually or @every 90s", words[0].text)
}

func buildCron(words []word, z *zone, o Options) (Rule, error) {
	layout, ok := cronLayouts[len(words)]
	if !ok {
		return nil, errorf(cronExample, "%s instead of 5 (minute, hour, day of month, month, weekday), 6 (second first) or 7 (second first, year last)", plural(int64(len(words)), "field"))
	}
	days := &dayFields{eitherField: true}
	c := &cron{dayFields: days}
	intervalLike := false
	sets := [7]bitset{{1}} // by cronField.number; without a second field, second 0
	texts := make([]string, len(words))
	for i, f := range layout {
		text := words[i].text
		set, err := parseField(f, words[i], days)
		if err != nil {
			return nil, err
		}
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
	c.days = days.monthTable()
	c.text = strings.Join(texts, " ")
	c.wallClock = newWallClock(c, z, intervalLike, o)
	return c, nil
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
func parseField(f *cronField, w word, days *dayFields) (bitset, error) {
	if w.text == "?" {
		w.text = "*" // Meant for the day fields, harmless in others.
	}
	p := &fieldParser{field: f, itemAt: w.pos, days: days}
	for item := range strings.SplitSeq(w.text, ",") {
		p.scanner = scanner{text: item}
		if item == "" {
			return bitset{}, p.errorAt(0, "a list item is empty")
		}
		err := p.parseItem()
		if err == nil {
			err = p.expectEnd()
		}
		if err != nil {
			return bitset{}, err
		}
		p.itemAt += len(item) + 1
	}
	return p.values, nil
}

func (p *fieldParser) errorAt(pos int, format string, args ...any) error {
	return errorAt(p.itemAt+pos, p.field.example, p.field.name+": "+format, args...)
}

func (p *fieldParser) expectEnd() error {
	if p.pos < len(p.text) {
		return p.errorAt(p.pos, "unexpected %q after %q", p.text[p.pos:], p.text[:p.pos])
	}
	return nil
}

func (p *fieldParser) parseItem() error {
	f := p.field
	switch c := p.peek(); {
	case c == '*':
		p.pos++
		return p.parseStepped(f.low, f.high)
	case c == '?':
		return p.errorAt(p.pos, `"?" must be the whole field`)
	case c == '+' || c == '-':
		return p.errorAt(p.pos, "numbers cannot have a sign")
	case c == 'L' && f == dayField:
		p.pos++
		return p.parseLastDay()
	}
	a, err := p.parseValue()
	if err != nil {
		return err
	}
	switch {
	case f == dayField && p.accept('W'):
		p.days.nearest |= 1 << (a - f.low)
		return nil
	case f == weekdayField && p.accept('L'):
		p.days.lastWeekday |= 1 << (a % 7)
		return nil
	case f == weekdayField && p.accept('#'):
		n, err := p.parseNumber("the number after #", 1, 5)
		if err == nil {
			p.days.nth[n-1] |= 1 << (a % 7)
		}
		return err
	case !p.accept('-'):
		if p.peek() == '/' {
			return p.parseStepped(a, f.high)
		}
		p.addRange(a, a, 1)
		return nil
	}
	b, err := p.parseValue()
	if err != nil {
		return err
	}
	if a > b && f == yearField {
		return p.errorAt(0, "the range %d-%d ends before it begins", a, b)
	}
	return p.parseStepped(a, b)
}

// parseLastDay parses what follows an L: nothing, W, -n or -nW.
func (p *fieldParser) parseLastDay() (err error) {
	n, set := 0, &p.days.last
	if p.accept('-') {
		if n, err = p.parseNumber("the number after L-", 0, 30); err != nil {
			return err
		}
	}
	if p.accept('W') {
		set = &p.days.lastNearest
	}
	*set |= 1 << n
	return nil
}

// parseStepped parses "/n", which may be missing, and adds the values from a to b.
func (p *fieldParser) parseStepped(a, b int) error {
	step, err := p.parseStep(1)
	if err == nil {
		p.addRange(a, b, step)
	}
	return err
}

// parseStep parses "/n", and returns the given step if it is missing.
func (p *fieldParser) parseStep(missing int) (int, error) {
	if !p.accept('/') {
		return missing, nil
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

func (p *fieldParser) parseValue() (int, error) {
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
		return f.low + i/3, nil
	}
	switch {
	case name == "H":
		return 0, p.errorAt(start, "H is not resolved: each job gets a value for it when it is created")
	case name == "L" && f == weekdayField:
		return 0, p.errorAt(start, "L needs a weekday before it, such as FRIL")
	case name == "W" && f == dayField:
		return 0, p.errorAt(start, "W needs a day before it, such as 15W")
	case f.names == "":
		return 0, p.errorAt(start, "%q is not a number", written)
	}
	return 0, p.errorAt(start, "there is no %q; names have three letters, %s to %s", written, f.names[:3], f.names[len(f.names)-3:])
}

const maxNumber = 1_000_000

// parseNumber parses digits; what names the number in errors.
func (p *fieldParser) parseNumber(what string, low, high int) (int, error) {
	start := p.pos
	written := p.digits()
	n := int(parseDigits(written, maxNumber-1))
	switch c := p.peek(); {
	case written != "" && low <= n && n <= high:
		return n, nil
	case written != "" && what == "a value":
		return 0, errorAt(p.itemAt+start, p.field.example, "%s %s is out of range, it goes from %d to %d", p.field.name, written, low, high)
	case written != "" && n < low && high == maxNumber-1:
		return 0, p.errorAt(start, "%s must be at least %d", what, low)
	case written != "":
		return 0, p.errorAt(start, "%s %s is out of range, it goes from %d to %d", what, written, low, high)
	case c == 0:
		return 0, p.errorAt(start, "%s is missing", what)
	case c == '+' || c == '-':
		return 0, p.errorAt(start, "numbers cannot have a sign")
	default:
		return 0, p.errorAt(start, "unexpected %q in place of %s", c, what)
	}
}
