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
	c, intervalLike, err := buildCron(words)
	if err != nil {
		return nil, err
	}
	c.wallClock = newWallClock(c, z, intervalLike, o)
	return c, nil
}

// cronZone returns the zone of an expression, which may name it itself, and where
// its fields begin.
func cronZone(text, timezone string) (*zone, int, error) {
	name, nameAt, restAt, prefixed := splitZone(text)
	if timezone == "" && prefixed {
		z, err := loadZone(name)
		if e, ok := err.(*Error); ok {
			err = errorAt(nameAt, "CRON_TZ="+e.Example+" "+cronExample, "%s", e.Message)
		}
		return z, restAt, err
	}
	z, err := loadZoneOrUTC(timezone)
	if err == nil && prefixed && name != timezone {
		err = errorAt(nameAt, cronExample, "the schedule names the time zone %q itself, but its timezone is %q", truncate(name), timezone)
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
		return nil, errorAt(words[1].pos, macro, "unexpected %q after %s", truncate(words[1].text), macro)
	case macro == "@reboot":
		return nil, errorAt(words[0].pos, "@daily", "@reboot names no time")
	}
	return nil, errorAt(words[0].pos, "@daily", "unknown macro %q; use @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually or @every 90s", truncate(words[0].text))
}

// buildCron returns a rule without a clock, and whether it is interval-like.
func buildCron(words []word) (c *cron, intervalLike bool, err error) {
	layout, ok := cronLayouts[len(words)]
	if !ok {
		return nil, false, errorf(cronExample, "%s instead of 5 (minute, hour, day of month, month, weekday), 6 (second first) or 7 (second first, year last)", plural(int64(len(words)), "field"))
	}
	c = &cron{dayFields: &dayFields{eitherField: true}}
	days := c.dayFields
	sets := [7]bitset{{1}} // by cronField.number; without a second field, second 0
	texts := make([]string, len(words))
	for i, f := range layout {
		text := words[i].text
		set, err := parseField(f, words[i], days)
		if err != nil {
			return nil, false, err
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
	return c, intervalLike, nil
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
