package main

import (
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

func TestJobCreateWithTiming(t *testing.T) {
	p := withServer(t)
	p.ok("job", "create", "--name", "report", "--schedule", "0 9 * * MON-FRI", "--timezone", "Europe/Paris", "--handler", "h",
		"--starts-at", "2030-01-01T00:00:00+01:00", "--ends-at", "2031-01-01T00:00:00Z", "--max-runs", "5", "--jitter", "5m", "--dst-gap", "skip", "--dst-overlap", "First")
	job := p.job("report")
	if !job.StartsAt.Equal(time.Date(2029, 12, 31, 23, 0, 0, 0, time.UTC)) || !job.EndsAt.Equal(time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)) || job.MaxRuns != 5 ||
		job.JitterSeconds != 300 || job.DSTGap != belfry.GapSkip || job.DSTOverlap != belfry.DSTFirst {
		t.Errorf("the flags made %+v", job.Spec)
	}
	shown := p.ok("job", "show", "report").out
	for _, words := range []string{
		"Schedule      0 9 * * MON-FRI  (At 09:00, Monday through Friday, in Europe/Paris)\n", "Starts        2030-01-01T00:00:00+01:00\n",
		"Ends          2031-01-01T01:00:00+01:00\n", "Max runs      5\n", "Jitter        up to 5m\n", "DST gap       skip\n",
		"DST overlap   first\n",
	} {
		if !strings.Contains(shown, words) {
			t.Errorf("show does not have %q:\n%s", words, shown)
		}
	}
	if r := p.ok("job", "edit", "report", "--set", "ends_at=null", "--set", "max_runs=7", "--set", "dst_overlap=auto", "--set", "starts_at=2030-02-01T00:00:00Z"); !strings.HasPrefix(r.out, "updated    report   dst_overlap, starts_at, ends_at, max_runs   next 2030-02-01T09:0") {
		t.Errorf("edit printed %q", r.out)
	}
	if job := p.job("report"); !job.EndsAt.IsZero() || job.MaxRuns != 7 || job.DSTOverlap != "" || job.JitterSeconds != 300 {
		t.Errorf("after the edit it is %+v", job.Spec)
	}
	p.ok("job", "create", "--name", "plain", "--schedule", "0 9 * * MON-FRI", "--handler", "h")
	if shown := p.ok("job", "show", "plain").out; !strings.Contains(shown, "Schedule    0 9 * * MON-FRI  (At 09:00, Monday through Friday)\n") || strings.Contains(shown, "Starts") || strings.Contains(shown, "Jitter") {
		t.Errorf("show is\n%s", shown)
	}
	p.ok("job", "create", "--name", "spread", "--schedule", "H 3 * * *", "--handler", "h")
	if shown := p.ok("job", "show", "spread").out; !strings.Contains(shown, "Schedule    H 3 * * *  (At 03:") || !strings.Contains(shown, " 3 * * *\nTime zone") {
		t.Errorf("show is\n%s", shown)
	}
	if list := p.ok("job", "list").out; strings.Contains(list, "At 09:00") {
		t.Errorf("the list has sentences:\n%s", list)
	}
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--jitter", "1500ms"}, exitUsage, `--jitter: "1500ms" is not a whole number of seconds`},
		{[]string{"--starts-at", "2030-01-01T00:00:00"}, exitRefused, "starts_at: must be an instant with an offset or Z"},
		{[]string{"--max-runs", "-1"}, exitRefused, "max_runs: "},
		{[]string{"--dst-gap", "both"}, exitRefused, "dst_gap: "},
	} {
		r := p.run(append([]string{"job", "create", "--schedule", "@daily", "--handler", "h"}, tt.args...)...)
		if r.code != tt.code || !strings.Contains(r.err, tt.want) {
			t.Errorf("%q: got %+v, want %d and %q", tt.args, r, tt.code, tt.want)
		}
	}
}

func TestJobApplyWithTiming(t *testing.T) {
	p := withServer(t)
	const jobs = `
- name: cron
  schedule: 0 9 * * *
  starts_at: 2030-01-01T00:00:00+01:00
  ends_at: 2031-01-01T00:00:00.0000001Z
  max_runs: 5
  jitter_seconds: 60
  dst_gap: Skip
  dst_overlap: AUTO
  resolved_schedule: ignored
  handler: h
- name: interval
  schedule: PT15M
  max_runs: 0
  jitter_seconds: 0
  handler: h
- name: rule
  schedule: |
    RRULE:FREQ=WEEKLY;BYDAY=MO;BYHOUR=9
    EXDATE:20300107T090000
  handler: h
- name: spread
  schedule: H H * * *
  handler: h
`
	file := p.file("jobs.yaml", jobs)
	if r := p.ok("job", "apply", "-f", file); strings.Count(r.out, "created") < 4 {
		t.Fatalf("apply printed %q", r.out)
	}
	started := p.job("interval").StartsAt
	for _, args := range [][]string{{"job", "apply", "-f", file, "--dry-run"}, {"job", "apply", "-f", file}, {"job", "apply", "-f", file, "--dry-run"}} {
		if r := p.ok(args...); strings.Count(r.out, "unchanged") < 4 || strings.Contains(r.out, "update ") || strings.Contains(r.out, "updated ") {
			t.Errorf("%q: what is there already is printed as %q", args, r.out)
		}
	}
	if now := p.job("interval").StartsAt; started.IsZero() || !now.Equal(started) {
		t.Errorf("the interval started at %v, and now at %v", started, now)
	}
	changed := p.file("jobs.yaml", strings.NewReplacer("2030-01-01T00:00:00+01:00", "2030-01-02T00:00:00+01:00", "PT15M", "PT20M", "jitter_seconds: 60", "jitter_seconds: 0").Replace(jobs))
	r := p.ok("job", "apply", "-f", changed, "--dry-run")
	for _, words := range []string{`~ starts_at: "2029-12-31T23:00:00Z" -> "2030-01-01T23:00:00Z"`, `~ schedule: "PT15M" -> "PT20M"`, "- jitter_seconds: 60"} {
		if !strings.Contains(r.out, words) {
			t.Errorf("the difference does not have %q:\n%s", words, r.out)
		}
	}
}
