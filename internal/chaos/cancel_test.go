//go:build unix

package chaos

import (
	"syscall"
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/worker"
)

const (
	promisedCancel = 7 * time.Second // for the worker of a cancelled run to learn of it
	allowedCancel  = promisedCancel + 6*time.Second

	allowedGrace = 30*time.Second + 15*time.Second // for a run that its worker does not release
)

// byPoliteSnakes is what a job says that a Python worker runs with a handler that
// looks whether it shall end.
var byPoliteSnakes = spec{"type": "worker", "handler": "chaos-python-polite"}

// TestCancelledRunsEndInTime cancels runs in callbacks, in a Go and in a Python
// worker, with the server up and with the server killed right after. Behind each
// waits another run of its job, which must begin only when the first is over. A
// handler that does not end and a worker that is frozen lose their runs all the
// same, later.
func TestCancelledRunsEndInTime(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		cancelEverywhere(t, onSQLite(t, t.TempDir(), "--listen", fixedAddress(t)))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		cancelEverywhere(t, onPostgres(t, pgtest.Database(t, nil), "--listen", fixedAddress(t)))
	})
}

func cancelEverywhere(t *testing.T, server *process) {
	d := newDriver(t, server.address)
	sleeper := goWorker(t, workerOptions{Server: server.address(), Name: "sleeper", Slots: 3})
	cold := d.queueUp(3, "/gate/late", byWorkers) // no other worker has free slots for them
	goWorker(t, workerOptions{Server: server.address(), Name: "healthy", Slots: 20})
	calm := append(d.queueUp(3, "/gate/calm", nil), d.queueUp(3, "/gate/calm", byWorkers)...)
	rough := d.queueUp(3, "/gate/late", byWorkers)
	left := append(d.queueUp(3, "/gate/late", nil), cold...) // by a server that is killed, or a worker that is frozen
	var stubborn []*queuedJob
	if havePython(t) {
		pythonWorker(t, server.address(), "snake")
		stubborn = d.queueUp(1, "/gate/late", bySnakes)
		calm = append(calm, d.queueUp(2, "/gate/calm", byPoliteSnakes)...)
		rough = append(rough, d.queueUp(1, "/gate/late", byPoliteSnakes)...)
	}

	d.cancel(append(calm, stubborn...))
	inTime := d.wantEnded(calm, allowedCancel)
	d.wantSuccessors(calm)
	d.receiver.open("calm")
	d.nextSucceed(calm)

	sleeper.signal(syscall.SIGSTOP)
	d.cancel(append(left, rough...))
	server.kill()
	time.Sleep(time.Second)
	server.start()
	restarted := d.wantEnded(rough, allowedCancel+2*time.Second)
	left = append(left, stubborn...)
	d.wantSuccessors(append(rough, left...))
	late := d.lateness(left)
	if late > allowedGrace {
		t.Errorf("the runs that were not released were cancelled after %v", late)
	}
	before := d.awaitSettled(append(append(calm, rough...), left...))

	d.receiver.open("late")
	d.nextSucceed(append(rough, left...))
	sleeper.thaw()
	eventually(t, "the frozen worker learns that it was reaped", healLimit, func() bool {
		return sleeper.output.count("the source does not know this worker any more") > 0
	})
	sleeper.drain(time.Minute)
	d.wantUnchanged(before)
	t.Logf("%d cancelled runs ended within %v, %d within %v with the server killed, %d that no worker could end after %v",
		len(calm), inTime, len(rough), restarted, len(left), late)
}

// queuedJob is a job with a run that is running and one that waits for it.
type queuedJob struct {
	job         requestedJob
	first, next string
	cancelled   time.Time // when the first was, as acknowledged
}

// queueUp creates jobs with two runs each.
func (d *driver) queueUp(n int, path string, by spec) (all []*queuedJob) {
	d.tb.Helper()
	s := quick(spec{"overlap": "queue", "timeout_seconds": 300, "max_retries": 0})
	for name, value := range by {
		s[name] = value
	}
	var jobs []requestedJob
	for range n {
		j, err := d.create(requestedJob{Every: time.Hour}, "0 0 1 1 *", path, s)
		if err != nil {
			d.tb.Fatalf("create a job: %v", err)
		}
		jobs = append(jobs, j)
		all = append(all, &queuedJob{job: j, first: d.triggerRun(j)})
	}
	d.receiver.awaitDelivery(d.tb, time.Minute, jobs...)
	for _, q := range all {
		q.next = d.triggerRun(q.job)
		eventually(d.tb, "the second run of a job waits for the first", time.Minute, func() bool {
			r, err := getRun(d.node(), q.next)
			return err == nil && r.Status == "waiting"
		})
	}
	return all
}

// triggerRun triggers a job, which must be acknowledged, and returns the run.
func (d *driver) triggerRun(j requestedJob) string {
	d.tb.Helper()
	var result struct {
		RunID string `json:"run_id"`
	}
	if err := request(d.node(), "POST", "/api/v1/jobs/"+j.ID+"/trigger", nil, &result); err != nil {
		d.tb.Fatalf("trigger a job: %v", err)
	}
	return result.RunID
}

// cancel cancels the first runs, which must be running.
func (d *driver) cancel(all []*queuedJob) {
	d.tb.Helper()
	for _, q := range all {
		var r apiRun
		if err := request(d.node(), "POST", "/api/v1/runs/"+q.first+"/cancel", nil, &r); err != nil || r.Status != "running" {
			d.tb.Fatalf("a running run is cancelled: it is %s (%v)", r.Status, err)
		}
		q.cancelled = time.Now()
	}
}

// leftAt is when the handler of a run, or its request, ended; zero: it has not.
func (d *driver) leftAt(q *queuedJob) time.Time {
	for _, seen := range d.receiver.deliveriesOf(q.job.ID) {
		switch {
		case seen.Run != q.first:
		case !q.job.ByWorker:
			return seen.OverAt
		case seen.Ended != "" && seen.Ended != worker.ErrCancelled.Error():
			d.tb.Errorf("the handler of a cancelled run ended with %q", seen.Ended)
			return seen.EndedAt
		default:
			return seen.EndedAt
		}
	}
	return time.Time{}
}

// wantEnded waits until the handlers of the first runs have ended, and returns how long
// after the cancellation the last one did.
func (d *driver) wantEnded(all []*queuedJob, allowed time.Duration) (longest time.Duration) {
	d.tb.Helper()
	for _, q := range all {
		eventually(d.tb, "the handler of a cancelled run ends", time.Minute, func() bool { return !d.leftAt(q).IsZero() })
		longest = max(longest, d.leftAt(q).Sub(q.cancelled))
	}
	if longest > allowed {
		d.tb.Errorf("a cancelled run ended after %v, %v are promised", longest, promisedCancel)
	}
	return longest
}

// wantSuccessors waits until the next run of each of the jobs has started, and expects
// it to have started after the end of the first, by the deliveries, where they show it,
// and by the API.
func (d *driver) wantSuccessors(all []*queuedJob) {
	d.tb.Helper()
	const noticed = time.Second / 2 // a connection that is closed is noticed a little later
	for _, q := range all {
		eventually(d.tb, "the next run of a job begins", 2*time.Minute, func() bool { return d.receiver.attemptsOf(q.next) > 0 })
		first, err := getRun(d.node(), q.first)
		next, err2 := getRun(d.node(), q.next)
		if err != nil || err2 != nil || first.FinishedAt == nil || next.StartedAt == nil {
			d.tb.Fatalf("runs that were and are under way: %+v and %+v (%v, %v)", first, next, err, err2)
		}
		if next.StartedAt.Before(*first.FinishedAt) {
			d.tb.Errorf("the next run started at %v, the first was over at %v", next.StartedAt, first.FinishedAt)
		}
		seen := d.receiver.deliveriesOf(q.job.ID)
		if len(seen) != 2 || seen[1].Run != q.next {
			d.tb.Errorf("a job with two runs has the deliveries %+v", seen)
		}
		left := d.leftAt(q)
		if !q.job.ByWorker {
			left = left.Add(-noticed)
		}
		if !left.IsZero() && seen[1].Arrived.Before(left) {
			d.tb.Errorf("the next run of a job began %v before the first was over", left.Sub(seen[1].Arrived))
		}
	}
}

// awaitSettled expects the first runs to be cancelled at their first attempt.
func (d *driver) awaitSettled(all []*queuedJob) (runs []apiRun) {
	d.tb.Helper()
	for _, q := range all {
		r, err := getRun(d.node(), q.first)
		if err != nil {
			d.tb.Fatalf("read a run: %v", err)
		}
		if r.Status != "cancelled" || r.Attempt != 1 || len(r.Attempts) != 1 {
			d.tb.Errorf("a run that was cancelled is %+v", r)
		}
		runs = append(runs, r)
	}
	return runs
}

// lateness is how long after the cancellation the last of the first runs was over.
func (d *driver) lateness(all []*queuedJob) (longest time.Duration) {
	d.tb.Helper()
	for i, r := range d.awaitSettled(all) {
		longest = max(longest, r.FinishedAt.Sub(all[i].cancelled))
	}
	return longest
}

// nextSucceed waits until the next runs have succeeded, and wants that to have taken
// one attempt.
func (d *driver) nextSucceed(all []*queuedJob) {
	d.tb.Helper()
	for _, q := range all {
		if r := d.run(q.next); r.Status != "succeeded" || r.Attempt != 1 {
			d.tb.Errorf("the run after a cancelled one is %+v", r)
		}
		if n := d.receiver.attemptsOf(q.first); n != 1 {
			d.tb.Errorf("a cancelled run was delivered %d times", n)
		}
	}
}
