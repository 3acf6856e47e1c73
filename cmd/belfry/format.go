package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/belfry-sh/belfry/internal/schedule"
	"github.com/belfry-sh/belfry/internal/schema"
)

const columnWidth = 60 // of long texts in tables

type cell struct {
	text   string
	colour string
}

// toCell is a value in a table or in details; instants are written as time does. What is not set is empty.
func toCell(value any, timeText func(time.Time) string) (c cell) {
	switch v := value.(type) {
	case cell:
		c = v
	case []string:
		c.text = strings.Join(v, ", ")
	case time.Time:
		if !v.IsZero() {
			c.text = timeText(v)
		}
	case *time.Time:
		if v != nil {
			c.text = timeText(*v)
		}
	default:
		c.text = fmt.Sprint(value)
	}
	c.text = escape(c.text)
	return c
}

func cells(texts ...string) []cell {
	return mapSlice(texts, func(text string) cell { return cell{text: escape(text)} })
}

// writeTable prints a row for each item; empty cells are dashes. A wide table has more
// columns. Values for columns that the table does not have are dropped.
func writeTable[T any](o *output, items []T, header, wide []string, values func(item T) []any) {
	if o.format == "wide" {
		header = slices.Concat(header, wide)
	}
	rows := [][]cell{cells(header...)}
	for _, item := range items {
		rows = append(rows, mapSlice(values(item)[:len(header)], func(value any) cell {
			c := toCell(value, o.tableTime)
			c.text = cmp.Or(c.text, "-")
			return c
		}))
	}
	o.writeRows(rows)
}

// clip shortens a long text for a table on a terminal.
func (o *output) clip(text string) string { return o.clipTo(text, columnWidth) }

func (o *output) clipTo(text string, width int) string {
	if !o.clips {
		return text
	}
	return shorten(escape(text), width)
}

// writeRows pads all columns but the last, so that no line ends in blanks.
func (o *output) writeRows(rows [][]cell) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		for i, c := range row {
			b.WriteString(o.palette.paint(c.colour, c.text))
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text)+3))
			}
		}
		b.WriteByte('\n')
	}
	fmt.Fprint(o.out, b.String())
}

// details is one thing: names and values of its fields, each in a line.
type details []any

// add adds fields. Those whose values are empty are not printed.
func (d *details) add(namesAndValues ...any) { *d = append(*d, namesAndValues...) }

func (d *details) addIf(condition bool, name string, value any) {
	if condition {
		d.add(name, value)
	}
}

// writeDetails prints the fields of one thing.
func (o *output) writeDetails(d details) {
	var rows [][]cell
	for field := range slices.Chunk(d, 2) {
		if value := toCell(field[1], o.absoluteTime); value.text != "" {
			rows = append(rows, []cell{toCell(field[0], nil), value})
		}
	}
	o.writeRows(rows)
}

// table is how a list is printed: columns, those of a wide table, and the values of an item for all of them.
func table[T any](header, wide []string, values func(c *cli, item T) []any) func(c *cli, items []T) {
	return func(c *cli, items []T) {
		writeTable(&c.output, items, header, wide, func(item T) []any { return values(c, item) })
	}
}

type palette struct{ on bool }

// The colours in use, as terminals know them.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	blue   = "36"
	grey   = "90"
)

func (p palette) paint(colour, text string) string {
	if !p.on || colour == "" || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// statusCell colours a status, or a decision about an occurrence.
func statusCell[S ~string](status S) cell {
	return cell{string(status), statusColours[string(status)]}
}

var statusColours = map[string]string{
	"scheduled": green, "succeeded": green, "ran": green, "planned": green,
	"queued": blue, "running": blue, "ready": blue, "due": blue,
	"paused": yellow, "retry": yellow, "retrying": yellow, "waiting": yellow,
	"failed": red, "dead": red, "quarantined": red,
	"firing": red, "acknowledged": yellow, "resolved": green, // alerts
	"active": green, "expired": grey, "revoked": grey, // keys
	"up": green, "lost": red, "left": grey, // nodes
	"completed": grey, "cancelled": grey, "skipped": grey, "discarded": grey, "none": grey, "unknown": grey,
}

const day = 24 * time.Hour

// relativeTime is how far away an instant is: "in 3m", "2h ago".
func (o *output) relativeTime(at time.Time) string {
	d := at.Sub(o.now())
	if d.Abs() < time.Second {
		return "now"
	}
	if d < 0 {
		return durationText(-d) + " ago"
	}
	return "in " + durationText(d)
}

// tableTime is an instant in a table: how far away it is, or the instant itself.
func (o *output) tableTime(at time.Time) string {
	if o.zone == nil {
		return o.relativeTime(at)
	}
	return at.In(o.zone).Format(time.RFC3339)
}

// absoluteTime is an instant in UTC with how far away it is.
func (o *output) absoluteTime(at time.Time) string { return o.absoluteTimeIn("UTC", &at) }

// absoluteTimeIn is absoluteTime in a time zone, unless the user asked for another. A
// missing instant is a dash.
func (o *output) absoluteTimeIn(zone string, at *time.Time) string {
	switch {
	case at == nil:
		return "-"
	case o.zone != nil:
		return fmt.Sprintf("%s (%s)", o.tableTime(*at), o.relativeTime(*at))
	}
	return fmt.Sprintf("%s (%s)", localTime(zone, at.Truncate(time.Second)), o.relativeTime(*at))
}

// localTime is an instant in a time zone, or in UTC if the zone is unknown here.
func localTime(zone string, at time.Time) string {
	at = at.UTC()
	if location, err := schedule.LoadZone(zone); err == nil {
		at = at.In(location)
	}
	return at.Format(time.RFC3339Nano)
}

// durationText uses the largest unit, or the two largest where one would be coarse.
func durationText(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 10*time.Minute:
		return twoUnits(d, time.Minute, "m", time.Second, "s")
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 10*time.Hour:
		return twoUnits(d, time.Hour, "h", time.Minute, "m")
	case d < 2*day:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d < 365*day:
		return fmt.Sprintf("%dd", d/day)
	}
	return twoUnits(d, 365*day, "y", day, "d")
}

func twoUnits(d, large time.Duration, l string, small time.Duration, s string) string {
	if rest := d % large / small; rest > 0 {
		return fmt.Sprintf("%d%s%d%s", d/large, l, rest, s)
	}
	return fmt.Sprintf("%d%s", d/large, l)
}

func elapsedText(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return durationText(d)
}

// delayText is a duration that may be a fraction of a second.
func delayText(d time.Duration) string {
	if d < time.Minute {
		return d.String()
	}
	return durationText(d)
}

func secondsText(seconds float64) string {
	return delayText(time.Duration(seconds * float64(time.Second)))
}

// parseAge parses a duration such as 90m, 24h or 7d.
func parseAge(text string) (time.Duration, bool) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.Atoi(days)
		return time.Duration(n) * day, err == nil && n >= 0 && n <= 36500
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d >= 0
}

func parseTimeOrAge(text string, now time.Time) (time.Time, error) {
	text = strings.TrimSpace(text)
	if age, ok := parseAge(text); ok {
		return now.Add(-age).UTC(), nil
	}
	return schema.ParseTime(text)
}

const aboutMoments = `T is an instant such as 2026-03-02T09:00:00+01:00, a wall time in the time zone of
the job such as '2026-03-02 09:00', or an age such as 10m, 24h or 7d.`

// parseMoment parses what aboutMoments describes.
func parseMoment(text, zone string, now time.Time) (at time.Time, err error) {
	text = strings.TrimSpace(text)
	for _, layout := range [...]string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04"} {
		wall, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		rule, err := schedule.Parse(wall.Format("2006-01-02T15:04:05"), schedule.Options{Timezone: zone})
		if err != nil {
			return at, fmt.Errorf("the time zone %s is unknown here; add an offset or Z", escape(zone))
		}
		at, _ = schedule.Once(rule)
		return at, nil
	}
	if at, err = parseTimeOrAge(text, now); err != nil {
		err = fmt.Errorf("%q is not an instant such as 2027-03-01T09:00:00+01:00, a wall time in the time zone of the job such as '2027-03-01 09:00', or an age such as 24h or 7d", text)
	}
	return at, err
}
