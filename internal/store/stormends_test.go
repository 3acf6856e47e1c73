package store_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

// What is there of a job in two tables, or of a one-off that is over and has not
// left. A job that is deleted has its own way.
const (
	twice = `SELECT count(*) FROM ended e WHERE EXISTS (SELECT 1 FROM jobs j WHERE j.id = e.id AND j.state <> 'deleted')
		OR EXISTS (SELECT 1 FROM runs r WHERE r.job_id = e.id) OR EXISTS (SELECT 1 FROM dead d WHERE d.job_id = e.id)`

	overdue = `SELECT count(*) FROM jobs j JOIN plans p ON p.job_id = j.id WHERE p.one_off AND p.next_at IS NULL AND p.nominal_at IS NULL AND j.state = 'active'
		AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.job_id = j.id) AND NOT EXISTS (SELECT 1 FROM dead d WHERE d.job_id = j.id)
		AND NOT EXISTS (SELECT 1 FROM triggers w WHERE w.job_id = j.id AND w.fired_at IS NULL)`
)

// Several nodes run one-offs at once while people cancel, delete, move, trigger,
// redrive and discard them: each ends once, and whole.
func TestOneOffsEndOnceInAStorm(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		var jobs []belfry.Job
		for i := range 10 {
			jobs = append(jobs, f.once(t, 30, withRetries(i%2), withBase(0), func(j *belfry.Job) {
				j.Overlap, j.MaxQueued = []belfry.Overlap{belfry.OverlapSkip, belfry.OverlapQueue, belfry.OverlapParallel}[i%3], 3
			}))
		}
		var wait sync.WaitGroup
		for _, node := range f.nodes(t, 3) {
			wait.Go(func() { node.stormEnds(t, jobs) })
		}
		f.watch(t, wait.Wait, twice)
		f.backdate(t, time.Hour, "workers", "last_seen", "")
		f.reap(t, time.Minute)
		f.settleAll(t)
		f.retire(t, 3)
		for _, query := range []string{twice, overdue, `SELECT count(*) FROM runs`} {
			if n := f.count(t, query); n != 0 {
				t.Errorf("in the end %d: %s", n, query)
			}
		}
	})
}

func (f *fixture) stormEnds(t *testing.T, jobs []belfry.Job) {
	worker := f.worker(t)
	var held []*belfry.Run
	for range 80 {
		var err error
		if rand.IntN(2) == 0 {
			err = f.gust(t, worker, jobs, &held)
		} else {
			err = f.end(t, jobs[rand.IntN(len(jobs))])
		}
		var known *belfry.Error
		if err != nil && (!errors.As(err, &known) || known.Code != belfry.Conflict && known.Code != belfry.NotFound) {
			t.Errorf("in the storm: %v", err)
		}
	}
}

// end does something to a job that it may end of, or lets it live a little longer.
func (f *fixture) end(t *testing.T, job belfry.Job) error {
	edit := abandon(t)
	switch rand.IntN(8) {
	case 0:
		_, _, err := f.Archive(ctx, f.all(), belfry.ID{}, 100)
		return err
	case 1:
		_, err := f.Reap(ctx, f.all(), 0, 100)
		return err
	case 2:
		return f.Trigger(ctx, f.one(job), nil)
	case 3:
		edit = revise(t, parallel) // never back: what runs beside others by then goes on
	case 4:
		if rand.IntN(4) > 0 {
			return nil
		}
		edit = removeAll(t)
	case 5, 6:
		edit = instead(t, f.minutesAgo(rand.IntN(29)))
	}
	_, err := f.EditJob(ctx, job.Namespace, job.ID, edit)
	return err
}
