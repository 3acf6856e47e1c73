package schedule

import (
	"strings"
)

// cronMacros stand for whole expressions.
var cronMacros = map[string]string{
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
	"@monthly":  "0 0 1 * *",
	"@weekly":   "0 0 * * 0",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@hourly":   "0 * * * *",
}

// cronLayouts names the fields of an expression by how many it has.
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
	c, intervalLike, err := buildCron(words)
	if err != nil {
		return nil, err
	}
	c.text = joinWords(words)
	c.wallClock = newWallClock(c, z, intervalLike, o)
	return c, nil
}

// cronZone returns the zone of an expression, which may name it itself, and where
// its fields begin.
func cronZone(text, timezone string) (*zone, int, error) {
	name, nameAt, restAt, prefixed := splitZone(text)
	if timezone == "" && !prefixed {
		timezone = "UTC"
	}
	if timezone != "" {
		z, err := loadZone(timezone)
		if err != nil {
			return nil, 0, err
		}
		if prefixed && name != timezone {
			return nil, 0, errorAt(nameAt, cronExample, "the schedule names the time zone %q itself, but its timezone is %q", truncate(name), timezone)
		}
		return z, restAt, nil
	}
	z, err := loadZone(name)
	if err != nil {
		if e, ok := err.(*Error); ok {
			err = errorAt(nameAt, "CRON_TZ="+e.Example+" "+cronExample, "%s", e.Message)
		}
		return nil, 0, err
	}
	return z, restAt, nil
}

// expandMacro replaces a macro by the fields it stands for.
func expandMacro(words []word) ([]word, error) {
	macro := strings.ToLower(words[0].text)
	expression, ok := cronMacros[macro]
	switch {
	case ok && len(words) == 1:
		return splitWords(expression, 0), nil
	case ok:
		return nil, errorAt(words[1].pos, macro, "unexpected %q after %s", truncate(words[1].text), macro)
	case macro == "@reboot":
		return nil, errorAt(words[0].pos, "@daily", "@reboot names no time")
	}
	return nil, errorAt(words[0].pos, "@daily", "there is no %q; macros are @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually and @every 90s", truncate(words[0].text))
}

// joinWords writes words with one blank between them.
func joinWords(words []word) string {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = w.text
	}
	return strings.Join(texts, " ")
}

// buildCron turns fields into a rule without a clock, and reports whether it is
// interval-like.
func buildCron(words []word) (c *cron, intervalLike bool, err error) {
	layout, ok := cronLayouts[len(words)]
	if !ok {
		return nil, false, errorf(cronExample, "%s instead of 5 (minute, hour, day of month, month, weekday), 6 (second first) or 7 (second first, year last)", plural(int64(len(words)), "field"))
	}
	c = &cron{dayFields: &dayFields{eitherField: true}}
	days := c.dayFields
	hours, minutes, seconds := uint64(0), uint64(0), uint64(1)
	for i, f := range layout {
		text := words[i].text
		v, err := parseField(f, words[i])
		if err != nil {
			return nil, false, err
		}
		switch named := v.set[0]; f {
		case secondField:
			seconds = named
		case minuteField:
			minutes = named
		case hourField:
			hours = named
		case dayField:
			days.days, days.last, days.nearest, days.lastNearest = named, v.last, v.nearest, v.lastNearest
		case monthField:
			c.months = named
		case weekdayField:
			days.weekdays, days.nth, days.lastWeekday = named, v.nth, v.lastWeekday
		case yearField:
			if v.set.len() <= f.high-f.low {
				c.years = &v.set
			}
		}
		switch {
		case f.isDay():
			days.eitherField = days.eitherField && text[0] != '*' && text[0] != '?'
		case f == secondField || f == minuteField || f == hourField:
			whole := v.set.len() > f.high-f.low
			intervalLike = intervalLike || whole || strings.ContainsAny(text, "*/")
		}
	}
	c.times = newTimeSet(hours, minutes, seconds)
	c.days = days.monthTable()
	return c, intervalLike, nil
}

// cronField describes one position of a cron expression.
type cronField struct {
	name    string
	low     int
	high    int    // the last value of "*"
	most    int    // the largest number that may be written
	names   string // three letters for each value from low on
	example string // a correct expression that shows the field
}

var (
	secondField  = &cronField{name: "second", high: 59, most: 59, example: "*/10 * * * * *"}
	minuteField  = &cronField{name: "minute", high: 59, most: 59, example: "*/15 * * * *"}
	hourField    = &cronField{name: "hour", high: 23, most: 23, example: "0 9-17 * * *"}
	dayField     = &cronField{name: "day of month", low: 1, high: 31, most: 31, example: "0 9 1,15 * *"}
	monthField   = &cronField{name: "month", low: 1, high: 12, most: 12, names: "JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC", example: "0 9 1 JAN,JUL *"}
	weekdayField = &cronField{name: "weekday", high: 6, most: 7, names: "SUNMONTUEWEDTHUFRISAT", example: cronExample}
	yearField    = &cronField{name: "year", low: firstYear, high: lastYear, most: lastYear, example: "0 0 9 1 1 * 2030-2035"}
)

// isDay says whether the field is one of the two that name days.
func (f *cronField) isDay() bool { return f == dayField || f == weekdayField }

// fieldValues is what a field names. Bit n of its sets stands for low+n, except where
// dayFields says otherwise.
type fieldValues struct {
	set         bitset
	last        uint64
	nearest     uint64
	lastNearest uint64
	nth         [5]uint64
	lastWeekday uint64
}

// addRange adds every step-th value from a to b, across the end of the range if b
// lies before a. Weekday 7 falls on 0 that way.
func (v *fieldValues) addRange(f *cronField, a, b, step int) {
	span := f.high - f.low + 1
	if a > b {
		b += span
	}
	for x := a; x <= b; x += step {
		v.set.add((x - f.low) % span)
	}
}

// word is one field of an expression, or a part of it, and where it stands.
type word struct {
	text string
	pos  int
}

// splitWords cuts a text into the words between blanks.
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
