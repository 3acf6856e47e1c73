//go:build unix

package chaos

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/pgtest"
)

// TestLostRepliesChangeNothing loses the database's answers to what it has already
// committed, for every step on the path of a run, while jobs of every kind pass.
// The caller retries, and nothing may happen twice: not a job, not a run,
// not even a delivery.
func TestLostRepliesChangeNothing(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, nil)
	proxy := pgtest.NewProxy(t, url)
	d := newDriver(t, onPostgres(t, proxy.URL()).address)
	d.receiver.awaitDelivery(t, time.Minute, d.onceIn(0, "/ok", quick(nil)))
	times := 3
	if longRun {
		times = 20
	}
	wanted := 0
	for i := range times {
		n := 1 + i%2 // an answer, or the one to the repetition as well
		for _, step := range []string{"create", "fire", "trigger", "claim", "finish", "promote", "heartbeat", "hold"} {
			proxy.EatReplies("/* "+step+" */", n)
			wanted += n
			d.mixedLoad()
			eventually(t, "the answer to "+step+" is lost", time.Minute, func() bool { return proxy.Eaten() >= wanted })
		}
		proxy.EatCommits("/* edit */", n)
		wanted += n
		d.pauseAndResume()
	}
	start := time.Now()
	h := d.awaitClean(healLimit, true)
	outcomes := map[string]int{}
	for _, r := range h.Runs {
		for _, a := range r.Attempts {
			outcomes[a.Outcome]++
		}
		if good := d.receiver.successes(r.ID); good > 1 {
			t.Errorf("run %s was answered well %d times", r.ID, good)
		}
	}
	if outcomes["lost"] > 0 || outcomes["timed_out"] > 0 {
		t.Errorf("attempts were taken from a healthy worker: %v", outcomes)
	}
	if proxy.Eaten() != wanted {
		t.Errorf("%d replies were lost, not %d", proxy.Eaten(), wanted)
	}
	t.Logf("%d replies lost; everything settled %v after the last; attempts that did not succeed: %v", proxy.Eaten(), time.Since(start), outcomes)
	report(t, h, proxy.Eaten())
}

// mixedLoad creates jobs that take every step: on time, triggered, after a failure.
func (d *driver) mixedLoad() {
	d.tb.Helper()
	patient := quick(spec{"timeout_seconds": 60}) // a claim that got lost is noticed before its deadline
	for _, path := range []string{"/ok", "/fail/1", "/cut/1"} {
		d.onceIn(100*time.Millisecond, path, patient)
		if err := d.trigger(d.onceIn(time.Second, path, patient)); err != nil {
			d.tb.Errorf("trigger a job: %v", err)
		}
	}
}

// pauseAndResume edits a job twice while the answer to an edit is lost.
func (d *driver) pauseAndResume() {
	d.tb.Helper()
	j := d.onceIn(500*time.Millisecond, "/ok", quick(spec{"timeout_seconds": 60}))
	for _, status := range []string{"paused", "scheduled"} {
		var result apiJob
		if err := request(d.node(), "PATCH", "/api/v1/jobs/"+j.ID, spec{"status": status}, &result); err != nil {
			d.tb.Fatalf("change a job: %v", err)
		}
		if (result.Status == "paused") != (status == "paused") {
			d.tb.Errorf("a job that was %s is shown as %s", status, result.Status)
		}
	}
}
