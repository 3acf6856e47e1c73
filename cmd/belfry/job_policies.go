package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
)

// retries says how failed attempts are repeated.
func retries(spec belfry.Spec) string {
	if spec.MaxRetries == 0 {
		return "none"
	}
	r := spec.Retry()
	text := fmt.Sprintf("%d, %s", r.Max, waits(r))
	if r.Backoff != belfry.BackoffImmediate && r.Jitter > 0 {
		text += fmt.Sprintf(", ±%.0f%%", r.Jitter*100)
	}
	if r.On == belfry.RetryOnServerErrors {
		text += ", not after 4xx but 408, 425 and 429"
	}
	return text
}

// waits says how long a run waits for its next attempt.
func waits(r belfry.Retry) string {
	switch r.Backoff {
	case belfry.BackoffImmediate:
		return string(r.Backoff)
	case belfry.BackoffFixed:
		return fmt.Sprintf("%s %s", r.Backoff, pause(min(r.Base, r.Cap)))
	case belfry.BackoffList:
		list := r.Delays.Seconds()
		parts := make([]string, len(list))
		for i, s := range list {
			parts[i] = pause(time.Duration(s * float64(time.Second)))
		}
		return "after " + strings.Join(parts, ", ")
	}
	return fmt.Sprintf("%s from %s to %s", r.Backoff, pause(r.Base), pause(r.Cap))
}

// pause is a length of time that may be a fraction of a second.
func pause(d time.Duration) string {
	if d < time.Minute {
		return d.String()
	}
	return distance(d)
}

// overlap says what becomes of a run while an earlier one is alive.
func overlap(spec belfry.Spec) string {
	if spec.Overlap == belfry.OverlapQueue {
		return fmt.Sprintf("%s, %d at most", spec.Overlap, spec.QueueLimit())
	}
	return string(spec.Overlap)
}

// missed says what is made up for.
func missed(spec belfry.Spec) string {
	text := string(spec.MissedWindow)
	if spec.MissedWindow == belfry.MissedRunAll {
		text += fmt.Sprintf(", the newest %d", spec.MissedLimit())
	}
	if spec.CatchUpSeconds > 0 && spec.MissedWindow != belfry.MissedSkip {
		text += ", not older than " + distance(time.Duration(spec.CatchUpSeconds)*time.Second)
	}
	return text
}

// howMany is a number of things: "1 job", "2 jobs".
func howMany(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
