package store_test

import (
	"testing"

	"github.com/belfry-sh/belfry"
)

// What waits for others need not any more once the job may have several at a time.
func TestAnEditToParallelLetsWhatWaitsGo(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.worker(t)
		job := f.created(t, 5, func(j *belfry.Job) { j.Overlap = belfry.OverlapQueue })
		held := f.fireInto(t, slots(worker, 1), f.step(t, job)).Claimed[0]
		f.fireWishes(t, job, f.wish(job, ""), f.wish(job, ""))
		if got := f.claim(t, worker, 10); len(got) != 0 {
			t.Fatalf("%d runs do not wait", len(got))
		}
		f.edit(t, job, revise(t, func(j *belfry.Job) { j.MaxRetries = belfry.Some(7) }))
		if got := f.claim(t, worker, 10); len(got) != 0 {
			t.Fatalf("after another edit %d runs do not wait", len(got))
		}
		f.edit(t, job, revise(t, func(j *belfry.Job) { j.Overlap = belfry.OverlapParallel }))
		runs := f.claim(t, worker, 10)
		if len(runs) != 2 {
			t.Fatalf("%d runs may be claimed, wants 2", len(runs))
		}
		for _, run := range append(runs, held) {
			f.accepted(t, run, belfry.OutcomeSucceeded)
		}
	})
}
