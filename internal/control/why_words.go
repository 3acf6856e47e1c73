package control

import (
	"fmt"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
)

// words write instants in the zone of a job for somebody who asks about one of
// them.
type words struct {
	zone *time.Location
	at   time.Time
}

// full writes an instant with its day and offset.
func (w words) full(t time.Time) string {
	t = t.In(w.zone)
	offset := t.Format("-07:00")
	if w.zone == time.UTC {
		offset = "UTC"
	}
	return t.Format(time.DateOnly) + " " + timeOfDay(t) + " " + offset
}

// short writes an instant without what it shares with the one that is asked about:
// the day and the offset.
func (w words) short(t time.Time) string {
	t, at := t.In(w.zone), w.at.In(w.zone)
	_, offset := t.Zone()
	_, other := at.Zone()
	if offset != other || t.Format(time.DateOnly) != at.Format(time.DateOnly) {
		return w.full(t)
	}
	return timeOfDay(t)
}

// moment is short for an instant that no rule names: seconds are enough.
func (w words) moment(t time.Time) string { return w.short(t.Truncate(time.Second)) }

// timeOfDay is a time of day with as many places as it needs.
func timeOfDay(t time.Time) string {
	switch {
	case t.Nanosecond() != 0:
		return t.Format("15:04:05.999999")
	case t.Second() != 0:
		return t.Format("15:04:05")
	}
	return t.Format("15:04")
}

// number is a number of things.
func number[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// quoted is the beginning of what a target or handler said, on one line.
func quoted(text string) string {
	line := strings.Join(strings.Fields(sanitize.Text(text, 400)), " ")
	if short := sanitize.Text(line, 200); short != line {
		return short + "…"
	}
	return line
}

// runOf names a run by its instant.
func (w words) runOf(run belfry.Run) string {
	switch run.Kind {
	case belfry.KindManual:
		return "the manual run of " + w.moment(run.ScheduledAt)
	case belfry.KindBackfill:
		return "the backfill of " + w.short(run.ScheduledAt)
	}
	return "the run of " + w.short(run.ScheduledAt)
}

// duration is a length of time with its two largest units.
func duration(d time.Duration) string {
	units := []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}}
	for i, u := range units {
		if d < u.length {
			continue
		}
		text := number(int64(d/u.length), u.name)
		if rest := d % u.length; i+1 < len(units) && rest >= units[i+1].length {
			text += " " + number(int64(rest/units[i+1].length), units[i+1].name)
		}
		return text
	}
	return "less than a second"
}
