package main

import (
	"fmt"
	"time"
)

// relative says how far an instant is away: "in 3m", "2h ago".
func relative(now, at time.Time) string {
	d := at.Sub(now)
	far := d.Abs()
	if far < time.Second {
		return "now"
	}
	text := distance(far)
	if d < 0 {
		return text + " ago"
	}
	return "in " + text
}

// relativeTo is relative for an instant that may be missing.
func relativeTo(now time.Time, at *time.Time) string {
	if at == nil {
		return "-"
	}
	return relative(now, *at)
}

// exact names an instant and how far it is away.
func exact(now, at time.Time) string {
	return fmt.Sprintf("%s (%s)", at.UTC().Format(time.RFC3339), relative(now, at))
}

// exactIn names an instant in a time zone, as far as this machine knows it, and
// how far it is away. A missing one is a dash.
func exactIn(zone string, now time.Time, at *time.Time) string {
	if at == nil {
		return "-"
	}
	local, err := time.LoadLocation(zone)
	if err != nil {
		return exact(now, *at)
	}
	return fmt.Sprintf("%s (%s)", at.In(local).Format(time.RFC3339), relative(now, *at))
}

// distance is a length of time in its largest unit, or its largest two where one
// would be coarse.
func distance(d time.Duration) string {
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

// took is how long something lasted, to be read and not to be computed with.
func took(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return distance(d)
}
