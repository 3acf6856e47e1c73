package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

// until repeats a command until it prints what is wanted.
func (p *testCLI) until(what string, printed func(out string) bool, args ...string) {
	p.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		r := p.ok(args...)
		if printed(r.out) {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: %+v", what, r)
		}
	}
}

// has reports whether a list of jobs has rows with this name and last result, alone.
func has(rows ...[2]string) func(out string) bool {
	return func(out string) bool {
		var got [][2]string
		for i, row := range columns(out) {
			if i > 0 && len(row) >= 7 {
				got = append(got, [2]string{row[0], row[6]})
			}
		}
		return slices.Equal(got, rows)
	}
}

// A job whose target fails says so in lists, and no more once the target has recovered.
func TestJobLastResult(t *testing.T) {
	p := withServer(t)
	target := newReceiver(t)
	target.answer(503)
	p.ok("job", "create", "--name", "idle", "--schedule", "@yearly", "--url", target.URL)
	p.ok("job", "create", "--name", "sync", "--schedule", "@yearly", "--url", target.URL, "--max-retries", "2", "--retry-base", "100ms", "--retry-jitter", "0")
	if r := p.run("job", "trigger", "sync", "--wait"); r.code != exitNoSuccess {
		t.Fatalf("trigger: %+v", r)
	}
	p.until("the job that is dead", has([2]string{"sync", "dead"}, [2]string{"idle", "-"}), "job", "list")
	p.until("the failing job", has([2]string{"sync", "dead"}), "job", "list", "--status", "failing")
	shown := p.ok("job", "show", "sync").out
	if !strings.Contains(shown, "Last result   dead  20") || !strings.Contains(shown, "Last error    the target answered 503") {
		t.Errorf("job show:\n%s", shown)
	}
	if strings.Contains(p.ok("job", "show", "idle").out, "Last result") {
		t.Error("a job without a run has a last result")
	}
	if wide := p.ok("job", "list", "--status", "failing", "-o", "wide").out; !strings.Contains(wide, "RESULT AT") || !strings.Contains(wide, "the target answered 503") {
		t.Errorf("the wide list:\n%s", wide)
	}
	if r := p.ok("job", "pause", "--status", "failing", "--dry-run"); !strings.Contains(r.out+r.err, "1 job would be paused") {
		t.Errorf("a bulk action on failing jobs: %+v", r)
	}

	// The next run fails and waits: the attempts of both runs are in a row.
	p.ok("job", "edit", "sync", "--set", "retry_base_seconds=2", "--set", "retry_backoff=fixed")
	p.ok("job", "trigger", "sync")
	p.until("the job that is tried again", func(out string) bool {
		return has([2]string{"sync", "failed 4 times"})(out) || has([2]string{"sync", "failed 5 times"})(out)
	}, "job", "list", "--search", "sync")
	target.answer(200)
	p.until("the job that recovered", has([2]string{"sync", "succeeded"}), "job", "list", "--search", "sync")
	if r := p.ok("job", "list", "--status", "failing"); r.out != "" || !strings.Contains(r.err, "No matching jobs.") {
		t.Errorf("after the recovery: %+v", r)
	}
	if job := p.job("sync"); job.LastResult == nil || job.LastResult.Status != belfry.ResultSucceeded || job.LastResult.Failures != 0 {
		t.Errorf("the last result is %+v", job.LastResult)
	}
}

func TestResultCell(t *testing.T) {
	for want, r := range map[cell]*belfry.LastResult{
		{}:                       nil,
		{"succeeded", green}:     {Status: belfry.ResultSucceeded},
		{"failed 1 time", red}:   {Status: belfry.ResultFailed, Failures: 1},
		{"failed 12 times", red}: {Status: belfry.ResultFailed, Failures: 12},
		{"dead", red}:            {Status: belfry.ResultDead, Failures: 3},
		{"skipped", grey}:        {Status: belfry.ResultSkipped},
		{"cancelled", grey}:      {Status: belfry.ResultCancelled},
	} {
		if got := resultCell(r); got != want {
			t.Errorf("%+v is %+v, want %+v", r, got, want)
		}
	}
}
