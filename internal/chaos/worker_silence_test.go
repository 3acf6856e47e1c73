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

// TestRunsOfASilentWorkerGoToAnother has workers fall silent while they hold
// runs: a Go worker and a Python worker are killed, and another Go worker is cut off
// from the server, for longer than it takes to give it up.
func TestRunsOfASilentWorkerGoToAnother(t *testing.T) {
	t.Run("sqlite, and what was under way arrives later", func(t *testing.T) {
		t.Parallel()
		testSilence(t, onSQLite(t, t.TempDir()), (*tcpProxy).resume)
	})
	t.Run("postgres, and the connections of before stay dead", func(t *testing.T) {
		t.Parallel()
		testSilence(t, onPostgres(t, pgtest.Database(t, nil)), (*tcpProxy).dropConnections)
	})
}

// testSilence makes each worker in turn the only one with free slots, so that it is
// known which one holds which runs.
func testSilence(t *testing.T, server *process, restore func(*tcpProxy)) {
	const held = 20
	span := 27 * time.Second // a worker is reaped after 20 s of silence, checked every 5 s
	if longRun {
		span = time.Minute
	}
	d := newWorkDriver(t, server.address)
	between := newTCPProxy(t, server.address())

	killed := goWorker(t, workerOptions{Server: server.address(), Name: "killed", Slots: held})
	lost := d.createHeld(held, "/gate/never", nil)
	dying := []*process{killed}
	if havePython(t) {
		dying = append(dying, pythonWorker(t, server.address(), "snake"))
		lost = append(lost, d.createHeld(pythonSlots, "/gate/never", bySnakes)...)
	}
	cut := goWorker(t, workerOptions{Server: between.base(), Name: "cut", Slots: 2*held + 1})
	late, stuck := d.createHeld(held, "/gate/meanwhile", nil), d.createHeld(held, "/gate/never", nil)

	for _, p := range dying {
		p.kill()
	}
	between.stall()
	silent := time.Now()
	void := d.claimAndVanish() // claimed over the wire, by a worker that never hears of it
	d.receiver.open("meanwhile")
	d.wantEndedAs(late, 1, "succeeded") // the handlers are done and cannot say so

	spares := []*process{goWorker(t, workerOptions{Server: server.address(), Name: "spare", Slots: 100})}
	if len(dying) > 1 {
		spares = append(spares, pythonWorker(t, server.address(), "spare snake"))
	}
	runs := d.awaitRetries(append(append(lost, late...), stuck...))
	returned := d.receiver.lastArrival(runs, 2).Sub(silent)
	if returned > allowedReturn {
		t.Errorf("the runs of silent workers were offered again after %v, %v are promised", returned, promisedReturn)
	}
	before := d.awaitOutcome(runs, "lost", time.Minute)
	if r := d.run(void); r.Status != "succeeded" || r.Attempt != 2 {
		t.Errorf("a claimed run that never arrived is %+v", r)
	}

	// Nobody else is there any more when the worker can be reached again.
	for _, spare := range spares {
		spare.drain(time.Minute)
	}
	time.Sleep(time.Until(silent.Add(span)))
	probes := d.start(held, "/ok", 60)
	restored := time.Now()
	restore(between)
	d.receiver.awaitDelivery(t, healLimit, probes...)
	recovered := time.Since(restored)
	d.wantEndedAs(stuck, 1, worker.ErrLeaseLost.Error())
	eventually(t, "the late results are reported", healLimit, func() bool { return cut.output.count(tooLate) >= len(late) })

	h := d.awaitClean(healLimit, true)
	d.wantUnchanged(before)
	if evidence := h.lateResults(); evidence != len(late) || cut.output.count(tooLate) != len(late) {
		t.Errorf("%d results came too late, %d were logged, of %d there is evidence", len(late), cut.output.count(tooLate), evidence)
	}
	wantCauses(t, h)
	cut.drain(time.Minute)
	t.Logf("%d runs of killed workers and %d of one that was cut off for %v began again within %v; the latter worked again %v after the connection was restored",
		len(lost), len(late)+len(stuck), time.Since(silent)-time.Since(restored), returned, recovered)
	report(t, h, 3)
}

// createHeld creates n jobs whose handlers start and hold, each with only one attempt
// that may fail.
func (d *driver) createHeld(n int, path string, by spec) (jobs []requestedJob) {
	d.tb.Helper()
	s := quick(spec{"timeout_seconds": 300, "max_retries": 0})
	for name, value := range by {
		s[name] = value
	}
	for range n {
		jobs = append(jobs, d.onceIn(0, path, s))
	}
	d.receiver.awaitDelivery(d.tb, time.Minute, jobs...)
	return jobs
}

// claimAndVanish triggers a run and waits until a worker has claimed it, as the server
// sees it.
func (d *driver) claimAndVanish() (run string) {
	d.tb.Helper()
	j := d.onceIn(0, "/ok", quick(spec{"timeout_seconds": 300, "max_retries": 0}))
	eventually(d.tb, "a run is claimed that never arrives", time.Minute, func() bool {
		runs, err := runsOf(d.node(), j.ID)
		if err != nil || len(runs) != 1 || runs[0].Status != "running" {
			return false
		}
		run = runs[0].ID
		return true
	})
	if d.receiver.attemptsOf(run) > 0 {
		d.tb.Error("the void answered")
	}
	return run
}

// wantEndedAs waits until the handlers of an attempt have reported how they ended, and
// expects all to have ended that way.
func (d *driver) wantEndedAs(jobs []requestedJob, attempt int, how string) {
	d.tb.Helper()
	eventually(d.tb, fmt.Sprintf("%d handlers end with %q", len(jobs), how), time.Minute, func() bool {
		for _, j := range jobs {
			for _, delivered := range d.receiver.deliveriesOf(j.ID) {
				if delivered.Attempt == attempt && delivered.Ended == "" {
					return false
				}
			}
		}
		return true
	})
	for _, j := range jobs {
		for _, delivered := range d.receiver.deliveriesOf(j.ID) {
			if delivered.Attempt == attempt && delivered.Ended != how {
				d.tb.Errorf("attempt %d of run %s ended with %q", attempt, delivered.Run, delivered.Ended)
			}
		}
	}
}

// awaitRetries waits until every one of the jobs was delivered a second time, and
// returns their runs.
func (d *driver) awaitRetries(jobs []requestedJob) (runs []string) {
	d.tb.Helper()
	for _, j := range jobs {
		var seen []delivery
		eventually(d.tb, "the run of a silent worker begins again", 2*time.Minute, func() bool {
			seen = d.receiver.deliveriesOf(j.ID)
			return len(seen) >= 2
		})
		runs = append(runs, seen[0].Run)
	}
	return runs
}

// run reads a run when it is settled.
func (d *driver) run(id string) (r apiRun) {
	d.tb.Helper()
	eventually(d.tb, "a run is settled", 2*time.Minute, func() bool {
		var err error
		r, err = getRun(d.node(), id)
		return err == nil && r.settled()
	})
	return r
}

// lastArrival is when the latest delivery of an attempt of the runs arrived.
func (l *receiver) lastArrival(runs []string, attempt int) (latest time.Time) {
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

// wantCauses expects the output of every run to be that of the attempt that counted.
func wantCauses(t *testing.T, h history) {
	t.Helper()
	for _, r := range h.Runs {
		if r.Status == "succeeded" && r.Output != fmt.Sprint(r.Attempt) {
			t.Errorf("run %s succeeded at attempt %d and has the output %q", r.ID, r.Attempt, r.Output)
		}
	}
}
