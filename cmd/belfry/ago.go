package main

import (
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// readAgo reads a length of time such as 90m, 24h or 7d.
func readAgo(text string) (time.Duration, bool) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.Atoi(days)
		return time.Duration(n) * day, err == nil && n >= 0 && n <= 36500
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d >= 0
}

// readSince reads a flag that is an instant, or how long ago; empty is none.
func readSince(flag, text string, now time.Time) (time.Time, error) {
	if ago, ok := readAgo(strings.TrimSpace(text)); ok {
		return now.Add(-ago).UTC(), nil
	}
	at, err := readInstant(flag, strings.TrimSpace(text))
	if err != nil {
		err = usagef("--%s: %q is neither an instant such as 2027-03-01T09:00:00+01:00 nor how long ago, such as 24h or 7d", flag, text)
	}
	return at, err
}
