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
	proxy := pgtest.NewProxy(t, url)
	nodes := []*process{onPostgres(t, url), onPostgres(t, proxy.URL()), onPostgres(t, url)}
	sleeper, dead, healthy := nodes[0], nodes[1], nodes[2]
	spread(t, url, nodes...)
	workers := workersOf(t, url, len(nodes))
	d := newDriver(t, healthy.at)
	every := d.every(1, "/ok", quick(nil))

	// The deadline of the short ones comes thirteen seconds after they start; silence
	// is noticed after twenty. They start half a second after a heartbeat, so that
	// the one surely comes before the other.
	var short, patient []askedJob
	at := query[time.Time](t, url, `SELECT last_seen FROM belfry.workers WHERE id = $1::uuid`, workers[0]).Add(time.Second / 2)
	for time.Until(at) < 3*time.Second {
		at = at.Add(5 * time.Second)
	}
	for range 40 {
		short = append(short, d.must(at, "/gate/answer", quick(spec{"timeout_seconds": 3, "retry_base_seconds": 0})))
		patient = append(patient, d.must(at, "/gate/answer/again", quick(spec{"timeout_seconds": 90})))
	}
	d.sink.reached(t, time.Minute, append(short, patient...)...)
	sleeper.freeze()
	dead.freeze()
	frozen := time.Now()
	d.sink.open("answer") // it reaches callers that cannot hear it
	bySleeper, byDead := d.heldBy(short, workers[0]), d.heldBy(patient, workers[1])
	takeover := d.takeover()

	// The attempts of the first end at their deadline, and it wakes up too late.
	overdue := d.outlive(bySleeper, "timed_out", time.Minute)
	replaced := time.Since(frozen)
	sleeper.thaw()
	heard(t, url, 2)

	// The attempts of the second end with the node itself. When it wakes up it finds
	// their answers, before it can find out what became of it, and hands them in
	// while the next attempts run.
	d.replaced(byDead, 90*time.Second)
	given := time.Since(frozen)
	proxy.Stall()
	dead.thaw()
	eventually(t, "the node misses the database", time.Minute, func() bool { return dead.said.count("the source fails") > 0 })
	proxy.Heal()
	heard(t, url, len(nodes))
	eventually(t, "the late results are handed in", time.Minute, func() bool { return dead.said.count(tooLate) >= len(byDead) })
	d.replaced(byDead, 0)
	d.sink.open("again")
	lost := d.outlive(byDead, "lost", time.Minute)

	spread(t, url, nodes...)
	d.stop(every)
	h := d.settles(2*time.Minute, true)
	d.unchanged(overdue)
	d.unchanged(lost)
	told := sleeper.said.count(tooLate) + dead.said.count(tooLate)
	if evidence := h.late(); evidence != told {
		t.Errorf("%d late results were handed in, of %d there is evidence", told, evidence)
	}
	if blamed := sleeper.said.count("a handler is stuck") + dead.said.count("a handler is stuck"); blamed > 0 {
		t.Errorf("%d handlers are blamed for the time that their process was frozen", blamed)
	}
	t.Logf("takeover after %v; %d overdue attempts replaced after %v, %d of a silent worker after %v; evidence of %d late results",
		takeover, len(overdue), replaced, len(lost), given, told)
	report(t, h, 2)
}

// takeover asks for jobs whose shards belong to frozen nodes, among others, and
// says when the last of them was fired.
func (d *driver) takeover() time.Duration {
	d.tb.Helper()
	var orphans []askedJob
	for range 60 {
		orphans = append(orphans, d.soon(100*time.Millisecond, "/ok", quick(nil)))
	}
	d.sink.reached(d.tb, time.Minute, orphans...)
	lag := d.sink.worst(orphans)
	if promised := 5 * time.Second; lag > 5*promised {
		d.tb.Errorf("the shards of a frozen node were taken over after %v", lag)
	}
	return lag
}

// heard waits until n workers have sent a heartbeat from now on.
func heard(tb testing.TB, url string, n int) {
	tb.Helper()
	now := time.Now()
	eventually(tb, "the nodes are heard again", time.Minute, func() bool {
		return query[bool](tb, url, `SELECT count(*) >= $2 FROM belfry.workers WHERE last_seen > $1`, now, n)
	})
}

// late counts the late results of which there is evidence.
func (h *history) late() (n int) {
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

// replaced wants the second attempt of the runs to be under way.
func (d *driver) replaced(ids []string, limit time.Duration) {
	d.tb.Helper()
	for _, id := range ids {
		eventually(d.tb, "a run of a frozen node is tried elsewhere", limit, func() bool {
			r, err := getRun(d.at(), id)
			return err == nil && r.Status == "running" && r.Attempt == 2 && d.sink.sent(id) == 2
		})
	}
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

// unchanged wants the runs to be as they were before, whatever was heard since.
func (d *driver) unchanged(before []toldRun) {
	d.tb.Helper()
	for _, was := range before {
		is, err := getRun(d.at(), was.ID)
		if err != nil {
			d.tb.Fatalf("read a run: %v", err)
		}
		if is.Status != was.Status || is.Attempt != was.Attempt || is.Worker != was.Worker || !is.FinishedAt.Equal(*was.FinishedAt) || len(is.Attempts) != len(was.Attempts) {
			d.tb.Errorf("a late result changed a run from %+v to %+v", was, is)
		}
	}
}
