package main

import (
	"fmt"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// withSentence shows a schedule and what it means, as far as this version of
// belfry knows that.
func withSentence(spec belfry.Spec) string {
	text := spec.Schedule
	if spec.Resolved != "" {
		text = spec.Resolved
	}
	overlap, _ := readOverlap(string(spec.DSTOverlap)) // A newer server may have others.
	rule, err := schedule.Parse(text, schedule.Options{Timezone: spec.Timezone, SkipGap: spec.SkipsGap(), Overlap: overlap, Start: spec.StartsAt})
	if err != nil {
		return spec.Schedule
	}
	return spec.Schedule + "  (" + schedule.Describe(rule) + ")"
}

// addTiming adds what stands beside the schedule of a job.
func addTiming(t *details, spec belfry.Spec) {
	local := func(at time.Time) string {
		if at.IsZero() {
			return ""
		}
		if place, err := schedule.LoadZone(spec.Timezone); err == nil {
			at = at.In(place)
		}
		return at.Format(time.RFC3339Nano)
	}
	t.add("Starts", local(spec.StartsAt))
	t.add("Ends", local(spec.EndsAt))
	if spec.MaxRuns > 0 {
		t.add("Max runs", spec.MaxRuns)
	}
	if spec.JitterSeconds > 0 {
		t.add("Jitter", "up to "+distance(time.Duration(spec.JitterSeconds)*time.Second))
	}
	if spec.DSTGap != "" {
		t.add("Clock gap", fmt.Sprintf("%s what the clock skips", spec.DSTGap))
	}
	if spec.DSTOverlap != "" {
		t.add("Clock overlap", fmt.Sprintf("run %s of what the clock repeats", spec.DSTOverlap))
	}
}

// unanchored tells whether a schedule is counted from somewhere and does not say
// from where.
func unanchored(text, zone string) bool {
	o := schedule.Options{Timezone: zone}
	if _, err := schedule.Parse(text, o); err == nil {
		return false
	}
	o.Start = time.Unix(0, 0)
	_, err := schedule.Parse(text, o)
	return err == nil
}
