package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-sh/belfry/internal/schedule"
	"github.com/belfry-sh/belfry/internal/schema"
)

const day = 24 * time.Hour

// relativeTime is how far away an instant is: "in 3m", "2h ago".
func relativeTime(now, at time.Time) string {
	d := at.Sub(now)
	if d.Abs() < time.Second {
		return "now"
	}
	if d < 0 {
		return durationText(-d) + " ago"
	}
	return "in " + durationText(d)
}

// relativeTimeOrNone is relativeTime for an instant that may be missing.
func relativeTimeOrNone(now time.Time, at *time.Time) string {
	if at == nil {
		return "-"
	}
	return relativeTime(now, *at)
}

// absoluteTime is an instant in UTC with how far away it is.
func absoluteTime(now, at time.Time) string { return absoluteTimeIn("UTC", now, &at) }

// absoluteTimeIn is absoluteTime in a time zone. A missing instant is a dash.
func absoluteTimeIn(zone string, now time.Time, at *time.Time) string {
	if at == nil {
		return "-"
	}
	return fmt.Sprintf("%s (%s)", localTime(zone, at.Truncate(time.Second)), relativeTime(now, *at))
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
