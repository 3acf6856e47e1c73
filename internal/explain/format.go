package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
)

// timeFormat writes instants in the time zone of a job, beside the instant that is
// explained.
type timeFormat struct {
	zone *time.Location
	at   time.Time
}

func (f timeFormat) full(t time.Time) string {
	t = t.In(f.zone)
	offset := t.Format("-07:00")
	if f.zone == time.UTC {
		offset = "UTC"
	}
	return t.Format(time.DateOnly) + " " + timeOfDay(t) + " " + offset
}

// short writes an instant without day and offset if they are those of the instant that
// is explained.
func (f timeFormat) short(t time.Time) string {
	t, at := t.In(f.zone), f.at.In(f.zone)
	_, offset := t.Zone()
	_, other := at.Zone()
	if offset != other || t.Format(time.DateOnly) != at.Format(time.DateOnly) {
		return f.full(t)
	}
	return timeOfDay(t)
}

// seconds is short for an instant that no schedule names, which needs no fractions.
func (f timeFormat) seconds(t time.Time) string { return f.short(t.Truncate(time.Second)) }

// run names a run by its instant.
func (f timeFormat) run(run belfry.Run) string {
	switch run.Kind {
	case belfry.KindManual:
		return "the manual run of " + f.seconds(run.ScheduledAt)
	case belfry.KindBackfill:
		return "the backfill of " + f.short(run.ScheduledAt)
	}
	return "the run of " + f.short(run.ScheduledAt)
}

// timeOfDay writes a time of day with as many places as it needs.
func timeOfDay(t time.Time) string {
	switch {
	case t.Nanosecond() != 0:
		return t.Format("15:04:05.999999")
	case t.Second() != 0:
		return t.Format("15:04:05")
	}
	return t.Format("15:04")
}

func count[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// quote shortens what a target or handler said to one line.
func quote(text string) string {
	line := strings.Join(strings.Fields(sanitize.Text(text, 400)), " ")
	if short := sanitize.Text(line, 200); short != line {
		return short + "…"
	}
	return line
}

// duration writes a length of time with its two largest units.
func duration(d time.Duration) string {
	units := []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}}
	for i, u := range units {
		if d < u.length {
			continue
		}
		text := count(int64(d/u.length), u.name)
		if rest := d % u.length; i+1 < len(units) && rest >= units[i+1].length {
			text += " " + count(int64(rest/units[i+1].length), units[i+1].name)
		}
		return text
	}
	return "less than a second"
}

// pointer is nil for the zero time.
func pointer(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
