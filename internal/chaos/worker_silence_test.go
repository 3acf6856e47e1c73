//go:build unix

package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/worker"
)

const (
	promisedReturn = 30 * time.Second // for the runs of a lost worker to be offered to another
	allowedReturn  = promisedReturn + 15*time.Second
)

// TestTheRunsOfASilentWorkerGoToAnother has workers fall silent while they hold
// runs: a Go worker and a Python worker are killed, and another Go worker is cut off
// from the server, for longer than it takes to give it up.
func TestTheRunsOfASilentWorkerGoToAnother(t *testing.T) {
	t.Run("sqlite, and what was under way arrives later", func(t *testing.T) {
		t.Parallel()
		silence(t, onSQLite(t, t.TempDir()), (*wire).heal)
	})
	t.Run("postgres, and the connections of before stay dead", func(t *testing.T) {
		t.Parallel()
		silence(t, onPostgres(t, pgtest.Database(t, nil)), (*wire).forget)
	})
}

// silence has each worker in turn be the only one with room for the runs that are
// asked for, so that it is known who holds what.
func silence(t *testing.T, server *process, mend func(*wire)) {
	const held = 20
	span := 27 * time.Second // a worker is given up after 20 s of silence, and looked for every 5 s
	if long {
		span = time.Minute
	}
	d := newWorkDriver(t, server.at)
	between := newWire(t, server.at())

	killed := goWorker(t, workerOptions{Server: server.at(), Name: "killed", Slots: held})
	lost := d.hold(held, "/gate/never", nil)
	dying := []*process{killed}
	if havePython(t) {
		dying = append(dying, pythonWorker(t, server.at(), "snake"))
		lost = append(lost, d.hold(pythonSlots, "/gate/never", bySnakes)...)
	}
	cut := goWorker(t, workerOptions{Server: between.base(), Name: "cut", Slots: 2*held + 1})
	late, stuck := d.hold(held, "/gate/meanwhile", nil), d.hold(held, "/gate/never", nil)

	for _, p := range dying {
		p.kill()
	}
	between.stall()
	silent := time.Now()
	void := d.vanish() // claimed over the wire, by a worker that never hears of it
	d.sink.open("meanwhile")
	d.ended(late, 1, "succeeded") // the handlers are done and cannot say so

	spares := []*process{goWorker(t, workerOptions{Server: server.at(), Name: "spare", Slots: 100})}
	if len(dying) > 1 {
		spares = append(spares, pythonWorker(t, server.at(), "spare snake"))
	}
	runs := d.again(append(append(lost, late...), stuck...))
	returned := d.sink.last(runs, 2).Sub(silent)
	if returned > allowedReturn {
		t.Errorf("the runs of silent workers were offered again after %v, %v are promised", returned, promisedReturn)
	}
	before := d.outlive(runs, "lost", time.Minute)
	if r := d.run(void); r.Status != "succeeded" || r.Attempt != 2 {
		t.Errorf("a run that was handed out into the void is %+v", r)
	}

	// Nobody else is there any more when the worker can be reached again.
	for _, spare := range spares {
		spare.drain(time.Minute)
	}
	time.Sleep(time.Until(silent.Add(span)))
	probes := d.start(held, "/ok", 60)
	mended := time.Now()
	mend(between)
	d.sink.reached(t, healLimit, probes...)
	recovered := time.Since(mended)
	d.ended(stuck, 1, worker.ErrLeaseLost.Error())
	eventually(t, "the late results are handed in", healLimit, func() bool { return cut.said.count(tooLate) >= len(late) })

	h := d.settles(healLimit, true)
	d.unchanged(before)
	if evidence := h.late(); evidence != len(late) || cut.said.count(tooLate) != len(late) {
		t.Errorf("%d results came too late, %d were told so, of %d there is evidence", len(late), cut.said.count(tooLate), evidence)
	}
	told(t, h)
	cut.drain(time.Minute)
	t.Logf("%d runs of killed workers and %d of one that was cut off for %v began again within %v; the latter worked again %v after the wire was mended",
		len(lost), len(late)+len(stuck), time.Since(silent)-time.Since(mended), returned, recovered)
	report(t, h, 3)
}

// hold has n handlers begin, each the only attempt that may fail.
func (d *driver) hold(n int, path string, by spec) (jobs []askedJob) {
	d.tb.Helper()
	s := quick(spec{"timeout_seconds": 300, "max_retries": 0})
	for name, value := range by {
		s[name] = value
	}
	for range n {
		jobs = append(jobs, d.soon(0, path, s))
	}
	d.sink.reached(d.tb, time.Minute, jobs...)
	return jobs
}

// vanish asks for a run and waits until a worker has claimed it, as the server
// sees it.
func (d *driver) vanish() (run string) {
	d.tb.Helper()
	j := d.soon(0, "/ok", quick(spec{"timeout_seconds": 300, "max_retries": 0}))
	eventually(d.tb, "a run is handed out into the void", time.Minute, func() bool {
		runs, err := runsOf(d.at(), j.ID)
		if err != nil || len(runs) != 1 || runs[0].Status != "running" {
			return false
		}
		run = runs[0].ID
		return true
	})
	if d.sink.sent(run) > 0 {
		d.tb.Error("the void answered")
	}
	return run
}

// ended waits until the handlers of an attempt have told how they ended, and wants
// them all to have ended so.
func (d *driver) ended(jobs []askedJob, attempt int, how string) {
	d.tb.Helper()
	eventually(d.tb, fmt.Sprintf("%d handlers end with %q", len(jobs), how), time.Minute, func() bool {
		for _, j := range jobs {
			for _, delivered := range d.sink.of(j.ID) {
				if delivered.Attempt == attempt && delivered.Ended == "" {
					return false
				}
			}
		}
		return true
	})
	for _, j := range jobs {
		for _, delivered := range d.sink.of(j.ID) {
			if delivered.Attempt == attempt && delivered.Ended != how {
				d.tb.Errorf("attempt %d of run %s ended with %q", attempt, delivered.Run, delivered.Ended)
			}
		}
	}
}

// again waits until every one of the jobs was delivered a second time, and gives
// their runs.
func (d *driver) again(jobs []askedJob) (runs []string) {
	d.tb.Helper()
	for _, j := range jobs {
		var seen []delivery
		eventually(d.tb, "the run of a silent worker begins again", 2*time.Minute, func() bool {
			seen = d.sink.of(j.ID)
			return len(seen) >= 2
		})
		runs = append(runs, seen[0].Run)
	}
	return runs
}

// run reads a run when it is settled.
func (d *driver) run(id string) (r toldRun) {
	d.tb.Helper()
	eventually(d.tb, "a run is settled", 2*time.Minute, func() bool {
		var err error
		r, err = getRun(d.at(), id)
		return err == nil && r.settled()
	})
	return r
}

// last is when the latest delivery of an attempt of the runs arrived.
func (l *ledger) last(runs []string, attempt int) (latest time.Time) {
	mine := map[string]bool{}
	for _, id := range runs {
		mine[id] = true
	}
	for _, d := range l.all() {
		if mine[d.Run] && d.Attempt == attempt && d.Arrived.After(latest) {
			latest = d.Arrived
		}
	}
	return latest
}

// told wants the output of every run to be that of the attempt that counted.
func told(t *testing.T, h history) {
	t.Helper()
	for _, r := range h.Runs {
		if r.Status == "succeeded" && r.Output != fmt.Sprint(r.Attempt) {
			t.Errorf("run %s succeeded at attempt %d and has the output %q", r.ID, r.Attempt, r.Output)
		}
	}
}
