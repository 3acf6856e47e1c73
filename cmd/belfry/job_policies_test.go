package main

import (
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

func TestJobCreateWithPolicies(t *testing.T) {
	p := withServer(t)
	p.ok("job", "create", "--name", "a", "--schedule", "@daily", "--handler", "h", "--missed-window", "RUN_ALL", "--max-missed", "7", "--catch-up-window", "2h",
		"--priority", "8", "--overlap", "queue", "--max-queued", "3", "--retry-on", "server_errors", "--retry-delays", "500ms, 10s,1m", "--retention-days", "5")
	s := p.job("a").Spec
	if s.MissedWindow != belfry.MissedRunAll || s.MaxMissed != 7 || s.CatchUpSeconds != 7200 || s.Priority != "8" || s.Overlap != belfry.OverlapQueue || s.MaxQueued != 3 ||
		s.RetryOn != belfry.RetryOnServerErrors || s.RetryBackoff != belfry.BackoffList || s.RetryDelays != "0.5,10,60" || s.MaxRetries.Value() != 3 || s.RetentionDays != 5 {
		t.Errorf("the flags made %+v", s)
	}
	shown := p.ok("job", "show", "a").out
	for _, words := range []string{
		"Priority    8\n", "Retries     3, after 500ms, 10s, 1m, ±25%, not after 4xx except 408, 425 and 429\n", "Overlap     queue, at most 3\n",
		"Missed      run_all, the newest 7, not older than 2h\n", "Retention   5 days\n",
	} {
		if !strings.Contains(shown, words) {
			t.Errorf("show does not have %q:\n%s", words, shown)
		}
	}
	if r := p.ok("job", "edit", "a", "--set", "priority=Low", "--set", "retry_delays=[1,2]", "--set", "max_queued=null", "--set", "retry_on=all"); !strings.HasPrefix(r.out, "updated    a   priority, max_queued, max_retries, retry_on, retry_delays   next") {
		t.Errorf("edit printed %q", r.out)
	}
	if s := p.job("a").Spec; s.Priority != belfry.PriorityLow || s.RetryDelays != "1,2" || s.MaxRetries.Value() != 2 || s.MaxQueued != 0 || s.RetryOn != "" {
		t.Errorf("the edit made %+v", s)
	}
	p.ok("job", "edit", "a", "--set", "retry_backoff=fixed", "--set", "retry_jitter=0", "--set", "retention_days=1")
	if r := p.ok("job", "edit", "a", "--set", "retry_delays=[3]"); !strings.HasPrefix(r.out, "updated    a   max_retries, retry_backoff, retry_delays ") {
		t.Errorf("edit printed %q", r.out)
	}
	p.ok("job", "edit", "a", "--set", "retry_delays=null", "--set", "max_retries=2")
	if s := p.job("a").Spec; s.RetryBackoff != belfry.BackoffExponential || s.RetryDelays != "" {
		t.Errorf("without the list it is %+v", s)
	}
	p.ok("job", "edit", "a", "--set", "retry_backoff=fixed")
	shown = p.ok("job", "show", "a").out
	for _, words := range []string{"Priority    low\n", "Retries     2, fixed 5s\n", "Overlap     queue, at most 100\n", "Retention   1 day\n"} {
		if !strings.Contains(shown, words) {
			t.Errorf("show does not have %q:\n%s", words, shown)
		}
	}
	p.ok("job", "create", "--name", "plain", "--schedule", "@daily", "--handler", "h", "--retry-backoff", "immediate")
	shown = p.ok("job", "show", "plain").out
	if strings.Contains(shown, "Priority") || strings.Contains(shown, "Retention") || strings.Contains(shown, "Cannot fire") ||
		!strings.Contains(shown, "Retries     3, immediate\n") || !strings.Contains(shown, "Overlap     skip\n") || !strings.Contains(shown, "Missed      run_once\n") {
		t.Errorf("show of a plain job is\n%s", shown)
	}
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--catch-up-window", "1500ms"}, exitUsage, `--catch-up-window: "1500ms" is not a whole number of seconds`},
		{[]string{"--retry-delays", "1s,soon"}, exitUsage, `--retry-delays: "1s,soon" is not a list of durations such as 1s,10s,1m`},
		{[]string{"--retry-delays", ""}, exitUsage, "--retry-delays"},
		{[]string{"--retry-delays", "1s", "--retry-backoff", "fixed"}, exitRefused, `retry_delays: needs backoff "list"`},
		{[]string{"--retry-backoff", "list"}, exitRefused, "retry_delays: is missing"},
		{[]string{"--missed-window", "run_al"}, exitRefused, `did you mean "run_all"?`},
		{[]string{"--priority", "10"}, exitRefused, `priority: must be "high", "normal" or "low"`},
		{[]string{"--max-missed", "-1"}, exitRefused, "max_missed: "},
		{[]string{"--max-queued", "100000"}, exitRefused, "max_queued: "},
		{[]string{"--overlap", "wait"}, exitRefused, "overlap: "},
		{[]string{"--retry-on", "never"}, exitRefused, "retry_on: "},
		{[]string{"--retention-days", "many"}, exitUsage, `--retention-days: "many" is not a whole number`},
		{[]string{"--catch-up-window", "30"}, exitUsage, `--catch-up-window: "30" is not a duration such as 30s, 10m or 2h`},
		{[]string{"--retry-jitter", "10%"}, exitUsage, `--retry-jitter: "10%" is not a number such as 0.5`},
	} {
		r := p.run(append([]string{"job", "create", "--schedule", "@daily", "--handler", "h"}, tt.args...)...)
		if r.code != tt.code || !strings.Contains(r.err, tt.want) || r.out != "" {
			t.Errorf("%q: got %+v, want %d and %q", tt.args, r, tt.code, tt.want)
		}
	}
}

func TestJobApplyWithPolicies(t *testing.T) {
	p := withServer(t)
	const jobs = `
- name: a
  schedule: '@daily'
  handler: h
  missed_window: Run_All
  max_missed: 7
  catch_up_window_seconds: 7200
  priority: 9
  overlap: Queue
  max_queued: 3
  retry_on: ALL
  retry_delays: [1.0, 10, 6e1]
  retention_days: 5
  quarantined: ignored
- name: b
  schedule: '@daily'
  handler: h
  priority: NORMAL
  max_missed: 0
  max_queued: 0
  catch_up_window_seconds: 0
  retention_days: 0
  retry_delays: []
`
	file := p.file("jobs.yaml", jobs)
	p.ok("job", "apply", "-f", file)
	if s := p.job("a").Spec; s.Priority != belfry.PriorityHigh || s.RetryDelays != "1,10,60" || s.MaxRetries.Value() != 3 || s.RetryBackoff != belfry.BackoffList || s.MaxQueued != 3 || s.RetentionDays != 5 {
		t.Errorf("the file made %+v", s)
	}
	for _, args := range [][]string{{"job", "apply", "-f", file, "--dry-run"}, {"job", "apply", "-f", file}} {
		if r := p.ok(args...); r.out != "unchanged  a\nunchanged  b\n" {
			t.Errorf("%q: what is there already is printed as %q", args, r.out)
		}
	}
	changed := p.file("jobs.yaml", strings.NewReplacer("priority: 9", "priority: 8", "[1.0, 10, 6e1]", "[1]", "retry_on: ALL", "retry_on: Server_Errors", "max_queued: 3", "").Replace(jobs))
	want := "update     a\n    ~ priority: \"high\" -> \"8\"\n    - max_queued: 3\n    ~ max_retries: 3 -> 1\n    + retry_on: \"server_errors\"\n    ~ retry_delays: [1,10,60] -> [1]\nunchanged  b\n"
	if r := p.ok("job", "apply", "-f", changed, "--dry-run"); r.out != want {
		t.Errorf("the difference is\n%s, want\n%s", r.out, want)
	}
	if r := p.ok("job", "apply", "-f", changed); r.out != "updated    a   priority, max_queued, max_retries, retry_on, retry_delays\nunchanged  b\n" {
		t.Errorf("apply printed %q", r.out)
	}
	if r := p.run("job", "apply", "-f", p.file("x.yaml", "name: a\nschedule: '@daily'\nhandler: h\nmax_mised: 3\n")); r.code != exitRefused || !strings.Contains(r.err, "x.yaml:4: max_mised: is unknown; did you mean \"max_missed\"?") {
		t.Errorf("an unknown field: %+v", r)
	}
	if r := p.run("job", "apply", "-f", p.file("x.yaml", "name: a\nschedule: '@daily'\nhandler: h\nretry_delays: [1, soon]\n")); r.code != exitRefused || !strings.Contains(r.err, "x.yaml:4: retry_delays: must be an array of seconds") {
		t.Errorf("a bad delay: %+v", r)
	}
}
