package importer

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/belfry-sh/belfry"
)

// nicknames are what cron and FreeBSD accept in place of the fields.
var nicknames = map[string]string{
	"@yearly": "@yearly", "@annually": "@yearly", "@monthly": "@monthly", "@weekly": "@weekly", "@daily": "@daily", "@midnight": "@daily",
	"@hourly": "@hourly", "@every_minute": "* * * * *", "@every_second": "* * * * * *",
}

// cronField is a position of a crontab line.
type cronField struct {
	name      string
	low, high int
	names     []string
}

var cronFields = []cronField{
	{"minute", 0, 59, nil},
	{"hour", 0, 23, nil},
	{"day of month", 1, 31, nil},
	{"month", 1, 12, strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")},
	{"weekday", 0, 7, strings.Fields("sun mon tue wed thu fri sat")},
}

// parseTimes sets the schedule of a line and returns what follows it, or says why cron
// does not run the line.
func (c *crontab) parseTimes(line string, e *Entry) (rest, problem string) {
	if strings.HasPrefix(line, "@") {
		return parseNickname(line, e)
	}
	var values [5]cronValues
	for i, f := range cronFields {
		var text string
		if text, line = cutWord(line); text == "" {
			return "", fmt.Sprintf("cron refuses the line: it has no %s", f.name)
		}
		if values[i], problem = f.parse(text, e); problem != "" {
			return "", problem
		}
	}
	// Cron has two rules for clock changes: one for lines whose minute or hour begins with
	// *, and one for others. The defaults of Belfry are the first rule.
	fixed := !values[0].isStar && !values[1].isStar
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = v.text(fixed && i < 2) // A step would make it the first rule.
	}
	e.Job.Schedule = strings.Join(texts, " ")
	if fixed && c.zone != "UTC" {
		e.Job.DSTGap = belfry.GapRun
		everyHour := values[1].isFull(0, 23)
		if everyHour || values[0].isFull(0, 59) {
			e.Job.DSTOverlap = belfry.DSTFirst
		}
		if everyHour && !values[0].set[0] {
			e.warn("when the clock skips one of its times, cron runs it right afterwards; Belfry does not, since it runs within the hour")
		}
		c.warnOfGaps(e)
	}
	return line, ""
}

func parseNickname(line string, e *Entry) (rest, problem string) {
	name, rest := cutWord(line)
	seconds, err := strconv.Atoi(name[1:])
	switch {
	case nicknames[name] != "":
		e.Job.Schedule = nicknames[name]
		if e.Job.Schedule[0] == '@' && name != "@hourly" && e.Job.Timezone != "UTC" {
			e.Job.DSTGap = belfry.GapRun
		}
	case name == "@reboot":
		return "", "@reboot has no meaning for a scheduler of many machines; start the command with the machine, for example as a unit of systemd"
	case err == nil && seconds > 0 && seconds <= 366*86400:
		e.Job.Schedule, e.Job.Overlap = fmt.Sprintf("@every %ds", seconds), belfry.OverlapSkip
		e.warn("%s counts from the end of the last run; here it counts from its start, and a run that takes longer skips the next", name)
	default:
		return "", fmt.Sprintf("cron does not know %q", cutText(name))
	}
	return rest, ""
}

// cronValues are the values of a field.
type cronValues struct {
	items  []cronRange
	isStar bool     // begins with *, which matters for days and clock changes
	set    [60]bool // by value; that of random ranges is empty
}

// cronRange is an item of the list of a field.
type cronRange struct {
	low, high, step int
	lowName         string // as written, if it is a name
	highName        string
	isStar          bool // *
	isRandom        bool // low~high
}

// parse reads a field as Debian's cron does: what follows a complete value is ignored up to
// the next comma or blank. Random ranges are those of cronie and OpenBSD.
func (f cronField) parse(text string, e *Entry) (v cronValues, problem string) {
	p := fieldParser{field: f, rest: text}
	v.isStar = strings.HasPrefix(text, "*")
	dropped, toSunday := "", false
	for {
		before := p.rest
		r, ok := p.parseRange()
		if !ok && strings.Contains(text, "=") { // Its value may be a secret.
			return v, "cron refuses the line: neither a command nor a variable; nothing may follow a value in quotes"
		}
		if !ok {
			return v, fmt.Sprintf("cron refuses the %s %q", f.name, cutText(text))
		}
		if f.name == "weekday" && r.low > r.high && r.high == 0 {
			r.high, r.highName, toSunday = 7, "", true
		}
		if r.low > r.high {
			dropped = before[:len(before)-len(p.rest)]
		} else {
			v.add(r)
		}
		if !p.accept(',') {
			break
		}
	}
	if toSunday {
		e.warn("weekday %q: Debian's cron never runs on a range that ends with Sunday as its first day; it is imported as cronie reads it, up to 7", cutText(text))
	}
	switch {
	case len(v.items) == 0:
		return v, fmt.Sprintf("cron never runs the line: the %s %q ends before it begins", f.name, cutText(dropped))
	case dropped != "":
		e.warn("%s: cron ignores %q, which ends before it begins", f.name, cutText(dropped))
	}
	if p.rest != "" {
		e.warn("%s: cron ignores %q in %q", f.name, cutText(p.rest), cutText(text))
	}
	if p.isRandom {
		e.warn("%s: cron chooses a value each time it reads the file; Belfry chooses one for the job and keeps it", f.name)
	}
	return v, ""
}

func (v *cronValues) add(r cronRange) {
	v.items = append(v.items, r)
	for n := r.low; n <= r.high && !r.isRandom; n += r.step {
		v.set[n] = true
	}
}

func (v *cronValues) isFull(low, high int) bool {
	for n := low; n <= high; n++ {
		if !v.set[n] {
			return false
		}
	}
	return true
}

// text is the field in the notation of Belfry, on request without steps.
func (v *cronValues) text(expand bool) string {
	var items []string
	for i, r := range v.items {
		switch {
		case r.isRandom:
			items = append(items, fmt.Sprintf("H(%d-%d)", r.low, r.high))
			continue
		case expand && r.step > 1:
			for n := r.low; n <= r.high; n += r.step {
				items = append(items, strconv.Itoa(n))
			}
			continue
		}
		text := nameOr(r.lowName, r.low)
		if r.isStar && i == 0 {
			text = "*"
		} else if r.low != r.high {
			text += "-" + nameOr(r.highName, r.high)
		}
		if r.step > 1 && r.low != r.high {
			text += "/" + strconv.Itoa(r.step)
		}
		items = append(items, text)
	}
	return strings.Join(items, ",")
}

func nameOr(name string, n int) string {
	if name != "" {
		return strings.ToUpper(name)
	}
	return strconv.Itoa(n)
}

type fieldParser struct {
	field    cronField
	rest     string
	isRandom bool // a range was random
}

func (p *fieldParser) accept(ch byte) bool {
	if p.rest == "" || p.rest[0] != ch {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// parseRange parses *, n, a-b, with /step after * and a-b, and a~b, where a and b may be
// missing.
func (p *fieldParser) parseRange() (r cronRange, ok bool) {
	r = cronRange{low: p.field.low, high: p.field.high, step: 1}
	r.isStar = p.accept('*')
	if !r.isStar && !strings.HasPrefix(p.rest, "~") {
		if r.low, r.lowName, ok = p.parseValue(); !ok {
			return r, false
		}
		r.high, r.highName = r.low, r.lowName
		if p.accept('-') {
			if r.high, r.highName, ok = p.parseValue(); !ok {
				return r, false
			}
		} else if !strings.HasPrefix(p.rest, "~") {
			return r, !strings.HasPrefix(p.rest, "/")
		}
	}
	if !r.isStar && p.accept('~') {
		r.isRandom, p.isRandom, r.high = true, true, p.field.high
		if p.rest != "" && p.rest[0] != ',' {
			r.high, _, ok = p.parseValue()
			return r, ok && r.low <= r.high
		}
		return r, true
	}
	if p.accept('/') {
		digits := p.word()
		n, err := strconv.Atoi(digits)
		if err != nil || n <= 0 {
			return r, false
		}
		r.step = min(n, 100) // more than any field has
	}
	return r, true
}

func (p *fieldParser) word() string {
	end := strings.IndexFunc(p.rest, func(r rune) bool { return (r < '0' || r > '9') && (r|0x20 < 'a' || r|0x20 > 'z') })
	if end < 0 {
		end = len(p.rest)
	}
	word := p.rest[:end]
	p.rest = p.rest[end:]
	return word
}

func (p *fieldParser) parseValue() (n int, name string, ok bool) {
	word := p.word()
	if n, err := strconv.Atoi(word); err == nil {
		return n, "", p.field.low <= n && n <= p.field.high
	}
	for i, name := range p.field.names {
		if strings.EqualFold(name, word) {
			return p.field.low + i, name, true
		}
	}
	return 0, "", false
}
