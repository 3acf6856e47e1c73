package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
)

// functions are what templates may call.
var functions = template.FuncMap{
	"asset": assetPath, "ago": ago, "exactly": exactly, "wall": wallTime, "duration": durationText, "state": stateMark, "plain": plain, "number": number, "bytes": bytesText, "words": words,
	"doc": docHTML, "sentence": sentence, "json": jsonText, "name": jobTitle, "short": shortID, "spark": spark, "join": strings.Join, "took": took, "milli": func(seconds float64) float64 { return 1000 * seconds }, "lasted": func(from, to time.Time) string { return took(&from, &to) }, "cut": cut,
	"table": func(runs []belfry.Run, jobs bool) runTable { return runTable{runs, jobs} },
}

// runTable is a table of runs, with their jobs or without.
type runTable struct {
	Runs []belfry.Run
	Jobs bool
}

// visible makes characters visible that are not printed, or that change the order of
// others, wherever they come from.
func visible(html []byte) []byte {
	clean := func(r rune) bool {
		return r == '\n' || r == '\t' || r == ' ' || unicode.IsPrint(r) && r != utf8.RuneError
	}
	if bytes.IndexFunc(html, func(r rune) bool { return !clean(r) }) < 0 {
		return html
	}
	var out bytes.Buffer
	for text := string(html); text != ""; {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case clean(r) || r == utf8.RuneError && size > 1 || r == '\u00a0':
			out.WriteRune(r)
		case r == '\r':
		default:
			quoted := strconv.QuoteToASCII(text[:size])
			out.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[size:]
	}
	return out.Bytes()
}

var ansi = regexp.MustCompile(`\x1b(\[[0-9;:?<=>]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\^_])`)

// plain is text without what colours it on a terminal.
func plain(text string) string { return ansi.ReplaceAllString(text, "") }

// cut shortens a text for a table.
func cut(limit int, text string) string {
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	return string([]rune(text)[:limit-1]) + "…"
}

// sentence begins with a capital and ends in a full stop.
func sentence(text string) string {
	r, size := utf8.DecodeRuneInString(text)
	if text == "" {
		return ""
	}
	text = string(unicode.ToUpper(r)) + text[size:]
	if !strings.HasSuffix(text, ".") && !strings.HasSuffix(text, "…") {
		text += "."
	}
	return text
}

const noTime = template.HTML(`<span class="none">–</span>`)

// instant is a time, or what a pointer to one points to.
func instant(value any) time.Time {
	if at, ok := value.(*time.Time); ok && at != nil {
		return *at
	}
	at, _ := value.(time.Time)
	return at
}

// ago is an instant as a distance from now, with the exact time in a zone on hover. The
// script keeps it up to date, and adds the viewer's zone. It takes a time or a pointer to
// one, and optionally the name of a zone.
func ago(value any, zone ...string) template.HTML {
	at := instant(value)
	if at.IsZero() {
		return noTime
	}
	exact := at.UTC().Format("2006-01-02 15:04:05 UTC")
	if len(zone) > 0 && zone[0] != "" && zone[0] != "UTC" {
		if location, err := time.LoadLocation(zone[0]); err == nil {
			exact = at.In(location).Format("2006-01-02 15:04:05 ") + zone[0] + " · " + exact
		}
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s" tabindex="0">%s</time>`, at.UTC().Format(time.RFC3339Nano), template.HTMLEscapeString(exact), relative(time.Until(at), at)))
}

// exactly is an instant as a date and a time. With wall it is that of the viewer, which only
// script knows; until then, and otherwise, it is that of a zone.
func exactly(value any, zone string, viewer bool) template.HTML {
	at := instant(value)
	if at.IsZero() {
		return noTime
	}
	mark := "data-stamp"
	if viewer {
		mark = "data-viewer"
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s" %s tabindex="0">%s</time>`, at.UTC().Format(time.RFC3339Nano), at.UTC().Format("2006-01-02 15:04:05 UTC"), mark, at.In(zoneOf(zone)).Format("2006-01-02 15:04:05 MST")))
}

// wallTime is an occurrence in the zone of its schedule.
func wallTime(o belfry.Occurrence) string {
	at, err := time.Parse(time.RFC3339, o.Local)
	switch {
	case err != nil:
		return o.Local
	case at.Second() != 0:
		return at.Format("Mon 2 Jan 2006 15:04:05")
	}
	return at.Format("Mon 2 Jan 2006 15:04")
}

// relative is a distance in words; script does the same.
func relative(d time.Duration, at time.Time) string {
	form := "%d %s ago"
	if d > 0 {
		form = "in %d %s"
	}
	d = d.Abs()
	switch seconds := int(d.Round(time.Second).Seconds()); {
	case seconds < 1:
		return "now"
	case seconds < 60:
		return fmt.Sprintf(form, seconds, "s")
	case seconds < 3600:
		return fmt.Sprintf(form, seconds/60, "min")
	case seconds < 48*3600:
		return fmt.Sprintf(form, seconds/3600, "h")
	case seconds < 60*86400:
		return fmt.Sprintf(form, seconds/86400, "d")
	}
	return at.UTC().Format("2006-01-02")
}

// durationText is a duration with two or three digits that count.
func durationText(d time.Duration) string {
	switch {
	case d <= 0:
		return "0"
	case d < time.Second:
		return fmt.Sprintf("%d ms", max(1, d.Milliseconds()))
	case d < 10*time.Second:
		return strings.TrimSuffix(strconv.FormatFloat(d.Seconds(), 'f', 1, 64), ".0") + " s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d d", int(d.Hours()/24))
}

// took is how long something took, as far as both ends are known.
func took(from, to *time.Time) string {
	if from == nil || to == nil || to.Before(*from) {
		return "–"
	}
	return durationText(max(to.Sub(*from), time.Millisecond))
}

// number groups the digits of a number.
func number(value any) string {
	text := fmt.Sprint(value)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + " " + text[i:]
	}
	return text
}

// counted is a number of things.
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return number(n) + " " + what + "s"
}

// zoneOf is a time zone, or UTC if there is none of that name.
func zoneOf(name string) *time.Location {
	if zone, err := time.LoadLocation(name); err == nil {
		return zone
	}
	return time.UTC
}

// words is a name of the API as words: "Retry base" for retry_base_seconds.
func words(value any) string {
	text := strings.TrimSuffix(strings.TrimSuffix(fmt.Sprint(value), "_seconds"), "_at")
	first, rest, _ := strings.Cut(text, "_")
	switch first {
	case "":
		return ""
	case "dst", "http", "url":
		first = strings.ToUpper(first)
	case "timezone":
		first = "Time zone"
	}
	return strings.TrimSpace(strings.ToUpper(first[:1]) + first[1:] + " " + strings.ReplaceAll(rest, "_", " "))
}

var quotedCode = regexp.MustCompile(`'([^']+)'`)

// docHTML is the description of a field, in which code stands in single quotes.
func docHTML(doc string) template.HTML {
	return template.HTML(quotedCode.ReplaceAllString(strings.ReplaceAll(template.HTMLEscapeString(doc), "&#39;", "'"), "<code>$1</code>"))
}

// jsonText is JSON for people.
func jsonText(text json.RawMessage) string {
	var out bytes.Buffer
	if json.Indent(&out, text, "", "  ") != nil {
		return string(text)
	}
	return out.String()
}

// jobTitle is the name of a job, or the end of its id, which differs most.
func jobTitle(name string, id belfry.ID) string {
	if name != "" {
		return name
	}
	return shortID(id)
}

func shortID(id belfry.ID) string {
	text := id.String()
	return "…" + text[len(text)-8:]
}

// states are the words and shapes of what jobs, runs, alerts and nodes are. A state has a
// class for its colour, and a shape so that nobody needs to see the colour.
var states = map[string]struct{ class, shape string }{
	"succeeded": {"ok", "dot"}, "completed": {"ok", "dot"}, "up": {"ok", "dot"}, "resolved": {"ok", "dot"}, "ran": {"ok", "dot"},
	"running": {"run", "half"}, "queued": {"run", "ring"}, "ready": {"run", "ring"}, "waiting": {"run", "ring"}, "scheduled": {"idle", "ring"},
	"retry": {"retry", "triangle"}, "retrying": {"retry", "triangle"}, "failing": {"retry", "triangle"}, "acknowledged": {"retry", "triangle"}, "late": {"retry", "triangle"},
	"dead": {"bad", "cross"}, "failed": {"bad", "cross"}, "firing": {"bad", "cross"}, "lost": {"bad", "cross"}, "timed_out": {"bad", "cross"},
	"skipped": {"idle", "bar"}, "cancelled": {"idle", "bar"}, "discarded": {"idle", "bar"}, "deleted": {"idle", "bar"}, "interrupted": {"idle", "bar"},
	"paused": {"pause", "bars"},
}

var shapes = map[string]string{
	"dot": `<circle cx="5" cy="5" r="4"/>`, "ring": `<circle cx="5" cy="5" r="3.25" class="hollow"/>`,
	"half":     `<circle cx="5" cy="5" r="3.25" class="hollow"/><path d="M5 1.75a3.25 3.25 0 0 1 0 6.5z"/>`,
	"triangle": `<path d="M5 .8 9.6 9H.4z"/>`, "cross": `<path d="m1.6.4 3.4 3.4L8.4.4l1.2 1.2L6.2 5l3.4 3.4-1.2 1.2L5 6.2 1.6 9.6.4 8.4 3.8 5 .4 1.6z"/>`,
	"bar": `<path d="M1 4h8v2H1z"/>`, "bars": `<path d="M2 1h2.2v8H2zM5.8 1H8v8H5.8z"/>`,
}

// stateMark is a state as a shape and a word.
func stateMark(value any) template.HTML {
	text := fmt.Sprint(value)
	s, ok := states[text]
	if !ok {
		s.class, s.shape = "idle", "ring"
	}
	return template.HTML(fmt.Sprintf(`<span class="state s-%s"><svg viewBox="0 0 10 10" aria-hidden="true">%s</svg>%s</span>`, s.class, shapes[s.shape], template.HTMLEscapeString(strings.ReplaceAll(text, "_", " "))))
}

// fact is a field of something, to show.
type fact struct {
	Label, Doc string
	Value      template.HTML
}

// facts are the fields of a struct that are set, as its tags describe them, except some.
func facts(v any, zone string, without ...string) (list []fact) {
	value := reflect.ValueOf(v)
	for _, f := range schema.Of(value.Type()).Fields {
		if field := f.Value(value); !field.IsZero() && !slices.Contains(without, f.Name) {
			list = append(list, fact{words(f.Name), strings.ReplaceAll(f.Doc, "'", ""), factValue(f, field, zone)})
		}
	}
	return list
}

func factValue(f *schema.Field, v reflect.Value, zone string) template.HTML {
	text := func(format string, args ...any) template.HTML {
		return template.HTML(template.HTMLEscapeString(fmt.Sprintf(format, args...)))
	}
	switch value := v.Interface().(type) {
	case time.Time, *time.Time:
		return exactly(value, zone, false)
	case belfry.ID:
		return `<code>` + text("%s", value) + `</code>`
	case json.RawMessage:
		return `<pre>` + text("%s", jsonText(value)) + `</pre>`
	case []string:
		return text("%s", strings.Join(value, ", "))
	case fmt.Stringer:
		return text("%s", value)
	case int, int64:
		if strings.HasSuffix(f.Name, "_seconds") {
			return text("%s", durationText(time.Duration(v.Int())*time.Second))
		}
		return text("%s", number(value))
	case string:
		return text("%s", value)
	}
	if v.Kind() == reflect.String {
		return text("%s", strings.ReplaceAll(v.String(), "_", " "))
	}
	plainJSON, _ := json.Marshal(v.Interface())
	if number, err := strconv.ParseFloat(string(plainJSON), 64); err == nil && strings.HasSuffix(f.Name, "_seconds") {
		return text("%s", durationText(time.Duration(number*float64(time.Second))))
	}
	return text("%s", plainJSON)
}
