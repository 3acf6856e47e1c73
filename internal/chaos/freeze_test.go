//go:build unix

package chaos

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/pgtest"
)

// TestAFrozenNodeChangesNothingWhenItComesBack freezes two of three nodes in the
// middle of callbacks. The first comes back after the deadline of its attempts, the
// second after it was given up altogether; by then the third node has their shards
// and has run their runs again.
func TestAFrozenNodeChangesNothingWhenItComesBack(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, nil)
	nodes := []*process{onPostgres(t, url), onPostgres(t, url), onPostgres(t, url)}
	sleeper, dead, healthy := nodes[0], nodes[1], nodes[2]
	spread(t, url, nodes...)
	workers := workersOf(t, url, len(nodes))
	d := newDriver(t, healthy.at)
	every := d.every(1, "/ok", quick(nil))

	// The first deadline is twelve seconds after the start; silence is noticed after
	// twenty, counted from a heartbeat that was just sent.
	eventually(t, "the first node has sent a heartbeat just now", time.Minute, func() bool {
		return query[bool](t, url, `SELECT last_seen > clock_timestamp() - interval '300 milliseconds' FROM belfry.workers WHERE id = $1::uuid`, workers[0])
	})
	var short, patient []askedJob
	at := time.Now().Add(time.Second)
	for range 30 {
		short = append(short, d.must(at, "/gate/answer", quick(spec{"timeout_seconds": 2, "retry_base_seconds": 0})))
		patient = append(patient, d.must(at, "/gate/answer", quick(spec{"timeout_seconds": 90})))
	}
	d.sink.reached(t, time.Minute, append(short, patient...)...)
	sleeper.freeze()
	dead.freeze()
	frozen := time.Now()
	d.sink.open("answer") // it reaches callers that cannot hear it

	// Another node fires the shards of the frozen ones.
	var orphans []askedJob
	for range 60 {
		orphans = append(orphans, d.soon(100*time.Millisecond, "/ok", quick(nil)))
	}
	d.sink.reached(t, time.Minute, orphans...)
	takeover := d.sink.worst(orphans)
	if takeover > 5*5*time.Second {
		t.Errorf("the shards of a frozen node were taken over after %v", takeover)
	}

	// The attempts of the first end at their deadline, and it wakes up too late.
	late := d.heldBy(short, workers[0])
	before := d.outlive(late, "timed_out", time.Minute)
	overdue := time.Since(frozen)
	sleeper.thaw()
	evidence := 0
	eventually(t, "the late results are kept as evidence", time.Minute, func() bool {
		evidence = d.unchanged(before)
		return evidence == len(before)
	})

	// The attempts of the second end with the node itself.
	before = d.outlive(d.heldBy(patient, workers[1]), "lost", 90*time.Second)
	lost := time.Since(frozen)
	dead.thaw()
	eventually(t, "a node that was given up is there again", time.Minute, func() bool { return len(workersOf(t, url, 1)) == len(nodes) })
	evidenceOfDead := d.unchanged(before)

	spread(t, url, nodes...)
	d.stop(every)
	h := d.settles(2*time.Minute, true)
	t.Logf("takeover after %v; %d overdue attempts replaced after %v, %d late results kept; %d attempts of a silent worker replaced after %v, %d late results kept",
		takeover, len(late), overdue, evidence, len(before), lost, evidenceOfDead)
	report(t, h, 2)
}

// workersOf lists the workers, oldest first, once there are at least n.
func workersOf(tb testing.TB, url string, n int) (workers []string) {
	tb.Helper()
	eventually(tb, "workers are registered", time.Minute, func() bool {
		workers = queryAll[string](tb, url, `SELECT id::text FROM belfry.workers ORDER BY id`)
		return len(workers) >= n
	})
	return workers
}

// must is once for a job that must be acknowledged.
func (d *driver) must(at time.Time, path string, s spec) askedJob {
	d.tb.Helper()
	j, err := d.once(at, path, s)
	if err != nil {
		d.tb.Fatalf("create a job: %v", err)
	}
	return j
}

// heldBy gives the runs of the jobs whose first attempt a worker holds. There
// must be some.
func (d *driver) heldBy(jobs []askedJob, worker string) (runs []string) {
	d.tb.Helper()
	for _, j := range jobs {
		list, err := runsOf(d.at(), j.ID)
		if err != nil {
			d.tb.Fatalf("read runs: %v", err)
		}
		for _, r := range list {
			if r.Worker == worker && r.Attempt == 1 && r.Status == "running" {
				runs = append(runs, r.ID)
			}
		}
	}
	if len(runs) == 0 {
		d.tb.Fatal("the frozen node holds none of the runs")
	}
	return runs
}

// outlive waits until the runs have succeeded at their second attempt, after a
// first one of the given outcome.
func (d *driver) outlive(ids []string, outcome string, limit time.Duration) []toldRun {
	d.tb.Helper()
	runs := make([]toldRun, len(ids))
	for i, id := range ids {
		eventually(d.tb, "a run of a frozen node succeeds elsewhere", limit, func() bool {
			var err error
			runs[i], err = getRun(d.at(), id)
			return err == nil && runs[i].settled()
		})
		if r := runs[i]; r.Status != "succeeded" || r.Attempt != 2 || len(r.Attempts) != 1 || r.Attempts[0].Outcome != outcome {
			d.tb.Errorf("a run whose first attempt had to end as %s is %+v", outcome, r)
		}
	}
	return runs
}

// unchanged wants the runs to be as they were before, but for evidence of late
// results, and counts that.
func (d *driver) unchanged(before []toldRun) (evidence int) {
	d.tb.Helper()
	for _, was := range before {
		is, err := getRun(d.at(), was.ID)
		if err != nil {
			d.tb.Fatalf("read a run: %v", err)
		}
		if is.Status != was.Status || is.Attempt != was.Attempt || is.Worker != was.Worker || !is.FinishedAt.Equal(*was.FinishedAt) || len(is.Attempts) != len(was.Attempts) {
			d.tb.Errorf("a late result changed a run from %+v to %+v", was, is)
		}
		if len(is.Attempts) > 0 && is.Attempts[0].LateOutcome != "" {
			evidence++
		}
	}
	return evidence
}
