//go:build unix

package chaos

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/pgtest"
)

// lateJob runs every second, and never for an occurrence that was missed.
func (d *driver) lateJob() requestedJob {
	return d.every(1, "/ok", quick(spec{"overlap": "parallel", "missed_window": "skip"}))
}

// wantNoneSkipped stops jobs and wants every occurrence of theirs to have run.
func (d *driver) wantNoneSkipped(jobs []requestedJob) {
	d.tb.Helper()
	for _, j := range jobs {
		d.stop(j)
	}
	h := d.awaitClean(2*time.Minute, true)
	runs := h.runsOf(jobs)
	for _, r := range runs {
		if r.skipped() {
			d.tb.Errorf("%s of %v (%d) were skipped: %s", r.Job, r.ScheduledAt, r.SkippedCount, r.Reason)
		}
	}
	d.tb.Logf("%d occurrences ran", len(runs))
}

// What waits for the only slot when the node is killed runs after it is started again.
func TestWaitingOccurrencesSurviveAKill(t *testing.T) {
	t.Parallel()
	onEither(t, func(t *testing.T, open func(args ...string) *process) {
		t.Parallel()
		node := open("--concurrency", "1")
		d := newDriver(t, node.address)
		d.receiver.awaitDelivery(t, time.Minute, d.onceIn(0, "/slow/12000", quick(spec{"timeout_seconds": 60})))
		job := d.lateJob()
		time.Sleep(5 * time.Second)
		node.kill()
		node.start()
		d.caughtUp(job)
		d.wantNoneSkipped([]requestedJob{job})
	})
}

// A hand-over of shards makes nothing missed: by a rolling restart, a node that joins, and
// a node that is killed beside another.
func TestHandOverMakesNothingMissed(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, nil)
	nodes := []*process{onPostgres(t, url), onPostgres(t, url)}
	d := newDriver(t, anyOf(nodes))
	var jobs []requestedJob
	for range 20 {
		jobs = append(jobs, d.lateJob())
	}
	rounds := 1
	if longRun {
		rounds = 10
	}
	for range rounds {
		for _, n := range nodes {
			time.Sleep(2 * time.Second)
			n.drain(time.Minute)
			n.start()
		}
		time.Sleep(2 * time.Second)
		nodes[0].kill()
		time.Sleep(6 * time.Second)
		nodes[0].start()
	}
	for _, j := range jobs {
		d.caughtUp(j)
	}
	d.wantNoneSkipped(jobs)
}
