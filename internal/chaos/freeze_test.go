//go:build unix

package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/pgtest"
)

// TestFrozenNodeChangesNothingAfterwards freezes two of three nodes in the
// middle of callbacks. The first comes back after the deadline of its attempts, the
// second after it was reaped altogether; by then the third node has their shards
// and has run their runs again.
func TestFrozenNodeChangesNothingAfterwards(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, nil)
	proxy := pgtest.NewProxy(t, url)
	var nodes []*process
	for _, url := range []string{url, proxy.URL(), url} {
		nodes = append(nodes, onPostgres(t, url, "--concurrency", "32")) // no two of them can take all runs
	}
	sleeper, dead, healthy := nodes[0], nodes[1], nodes[2]
	awaitShardOwners(t, url, nodes...)
	workers := workersOf(t, url, len(nodes))
	d := newDriver(t, healthy.address)
	every := d.every(1, "/ok", quick(nil))

	// The deadline of the short ones comes thirteen seconds after they start; silence
	// is noticed after twenty. They start half a second after a heartbeat, so that
	// the one surely comes before the other, and still they count as lost, which costs
	// no retry: their worker was not heard after the deadline.
	var short, patient []requestedJob
	at := query[time.Time](t, url, `SELECT last_seen FROM belfry.workers WHERE id = $1::uuid`, workers[0]).Add(time.Second / 2)
	for time.Until(at) < 3*time.Second {
		at = at.Add(5 * time.Second)
	}
	for range 40 {
		short = append(short, d.mustOnce(at, "/gate/answer", quick(spec{"timeout_seconds": 3, "retry_base_seconds": 0})))
		patient = append(patient, d.mustOnce(at, "/gate/answer/again", quick(spec{"timeout_seconds": 90})))
	}
	d.receiver.awaitDelivery(t, time.Minute, append(short, patient...)...)
	sleeper.freeze()
	dead.freeze()
	frozen := time.Now()
	d.receiver.open("answer") // it reaches callers that cannot hear it
	bySleeper, byDead := d.heldBy(short, workers[0]), d.heldBy(patient, workers[1])
	takeover := d.takeover()

	// The attempts of the first end, and it wakes up too late.
	overdue := d.awaitOutcome(bySleeper, "lost", time.Minute)
	replaced := time.Since(frozen)
	sleeper.thaw()
	awaitHeartbeats(t, url, 2)

	// The attempts of the second end with the node itself. When it wakes up it finds
	// their answers, before it can find out what became of it, and hands them in
	// while the next attempts run.
	d.awaitNextAttempt(byDead, 90*time.Second)
	given := time.Since(frozen)
	proxy.Stall()
	dead.thaw()
	eventually(t, "the node misses the database", time.Minute, func() bool { return dead.output.count("the source fails") > 0 })
	proxy.Heal()
	awaitHeartbeats(t, url, len(nodes))
	eventually(t, "the late results are reported", time.Minute, func() bool { return dead.output.count(tooLate) >= len(byDead) })
	d.awaitNextAttempt(byDead, 0)
	d.receiver.open("again")
	lost := d.awaitOutcome(byDead, "lost", time.Minute)

	awaitShardOwners(t, url, nodes...)
	d.stop(every)
	h := d.awaitClean(2*time.Minute, true)
	d.wantUnchanged(overdue)
	d.wantUnchanged(lost)
	late := sleeper.output.count(tooLate) + dead.output.count(tooLate)
	if evidence := h.lateResults(); evidence != late {
		t.Errorf("%d late results were reported, of %d there is evidence", late, evidence)
	}
	if stuck := sleeper.output.count("a handler is stuck") + dead.output.count("a handler is stuck"); stuck > 0 {
		t.Errorf("%d handlers count as stuck because their process was frozen", stuck)
	}
	t.Logf("takeover after %v; %d overdue attempts replaced after %v, %d of a silent worker after %v; evidence of %d late results",
		takeover, len(overdue), replaced, len(lost), given, late)
	report(t, h, 2)
}

// takeover creates jobs whose shards belong to frozen nodes, among others, and
// says when the last of them was fired.
func (d *driver) takeover() time.Duration {
	d.tb.Helper()
	var orphans []requestedJob
	for range 60 {
		orphans = append(orphans, d.onceIn(100*time.Millisecond, "/ok", quick(nil)))
	}
	d.receiver.awaitDelivery(d.tb, time.Minute, orphans...)
	lag := d.receiver.maxLateness(orphans)
	if promised := 5 * time.Second; lag > 5*promised {
		d.tb.Errorf("the shards of a frozen node were taken over after %v", lag)
	}
	return lag
}

// awaitHeartbeats waits until n workers have sent a heartbeat from now on.
func awaitHeartbeats(tb testing.TB, url string, n int) {
	tb.Helper()
	now := time.Now()
	eventually(tb, "the nodes send heartbeats again", time.Minute, func() bool {
		return query[bool](tb, url, `SELECT count(*) >= $2 FROM belfry.workers WHERE last_seen > $1`, now, n)
	})
}

// lateResults counts the late results that are recorded.
func (h *history) lateResults() (n int) {
	for _, r := range h.Runs {
		for _, a := range r.Attempts {
			if a.LateOutcome != "" {
				n++
			}
		}
	}
	return n
}

// tooLate is what a worker says whose result came when its attempt was over.
const tooLate = "a result came too late and changed nothing"

// workersOf lists the workers, oldest first, once there are at least n.
func workersOf(tb testing.TB, url string, n int) (workers []string) {
	tb.Helper()
	eventually(tb, "workers are registered", time.Minute, func() bool {
		workers = queryAll[string](tb, url, `SELECT id::text FROM belfry.workers ORDER BY id`)
		return len(workers) >= n
	})
	return workers
}

// mustOnce is once for a job that must be acknowledged.
func (d *driver) mustOnce(at time.Time, path string, s spec) requestedJob {
	d.tb.Helper()
	j, err := d.once(at, path, s)
	if err != nil {
		d.tb.Fatalf("create a job: %v", err)
	}
	return j
}

// heldBy gives the runs of the jobs whose first attempt a worker holds. There
// must be some.
func (d *driver) heldBy(jobs []requestedJob, worker string) (runs []string) {
	d.tb.Helper()
	found := map[string]int{}
	for _, j := range jobs {
		list, err := runsOf(d.node(), j.ID)
		if err != nil {
			d.tb.Fatalf("read runs: %v", err)
		}
		for _, r := range list {
			found[fmt.Sprintf("%s by %s, attempt %d", r.Status, r.Worker, r.Attempt)]++
			if r.Worker == worker && r.Attempt == 1 && r.Status == "running" {
				runs = append(runs, r.ID)
			}
		}
	}
	if len(runs) == 0 {
		d.tb.Fatalf("worker %s of the frozen node holds none of the runs: %v", worker, found)
	}
	return runs
}

// awaitNextAttempt waits until the second attempt of the runs is running.
func (d *driver) awaitNextAttempt(ids []string, limit time.Duration) {
	d.tb.Helper()
	for _, id := range ids {
		eventually(d.tb, "a run of a frozen node is tried elsewhere", limit, func() bool {
			r, err := getRun(d.node(), id)
			return err == nil && r.Status == "running" && r.Attempt == 2 && d.receiver.attemptsOf(id) == 2
		})
	}
}

// awaitOutcome waits until the runs have succeeded at their second attempt, after a
// first one with the given outcome.
func (d *driver) awaitOutcome(ids []string, outcome string, limit time.Duration) []apiRun {
	d.tb.Helper()
	runs := make([]apiRun, len(ids))
	for i, id := range ids {
		eventually(d.tb, "a run of a frozen node succeeds elsewhere", limit, func() bool {
			var err error
			runs[i], err = getRun(d.node(), id)
			return err == nil && runs[i].settled()
		})
		if r := runs[i]; r.Status != "succeeded" || r.Attempt != 2 || len(r.Attempts) != 1 || r.Attempts[0].Outcome != outcome {
			d.tb.Errorf("a run whose first attempt had to end as %s is %+v", outcome, r)
		}
	}
	return runs
}

// wantUnchanged expects the runs to be as they were before.
func (d *driver) wantUnchanged(before []apiRun) {
	d.tb.Helper()
	for _, was := range before {
		is, err := getRun(d.node(), was.ID)
		if err != nil {
			d.tb.Fatalf("read a run: %v", err)
		}
		if is.Status != was.Status || is.Attempt != was.Attempt || is.Worker != was.Worker || !is.FinishedAt.Equal(*was.FinishedAt) || len(is.Attempts) != len(was.Attempts) {
			d.tb.Errorf("a late result changed a run from %+v to %+v", was, is)
		}
	}
}
