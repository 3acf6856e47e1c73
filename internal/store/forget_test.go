package store_test

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

func TestAJobThatIsOverCanBeForgotten(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.worker(t)
		for _, history := range []bool{false, true} {
			job := f.once(t, 5, named("report"))
			job = f.edit(t, job, revise(t, withTimeout(9)))
			run := f.fireInto(t, slots(worker, 1), f.step(t, job)).Claimed[0]
			f.accepted(t, run, belfry.OutcomeSucceeded)

			wantCode(t, "forget it from another namespace", f.DeleteEnded(ctx, "theirs", job.ID, history), belfry.NotFound)
			if err := f.DeleteEnded(ctx, job.Namespace, job.ID, history); err != nil {
				t.Fatal(err)
			}
			_, err := f.Job(ctx, job.Namespace, job.ID)
			wantCode(t, "find what is forgotten", err, belfry.NotFound)
			_, err = f.JobIDByName(ctx, job.Namespace, job.Name)
			wantCode(t, "find it by its name", err, belfry.NotFound)
			wantCode(t, "forget it again", f.DeleteEnded(ctx, job.Namespace, job.ID, history), belfry.NotFound)
			if n := f.count(t, `SELECT count(*) FROM revisions WHERE job_id = ?`, job.ID); n != 0 {
				t.Errorf("%d of its revisions are left", n)
			}
			if _, err := f.Prune(ctx, time.Hour); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Run(ctx, job.Namespace, run.ID); (err != nil) != history {
				t.Errorf("its run, with its history %v: %v", history, err)
			}
		}
		live := f.once(t, -60)
		wantCode(t, "forget a job that is not over", f.DeleteEnded(ctx, live.Namespace, live.ID, true), belfry.NotFound)
	})
}

// The reply to a wish was lost, and its run was the last that the job had.
func TestAWishIsRepeatedAfterTheEndOfItsJob(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.worker(t)
		job := f.once(t, 5)
		wish := f.one(job)
		f.fireWishes(t, job, wish...)
		f.accepted(t, f.claimOne(t, worker), belfry.OutcomeSucceeded)
		f.accepted(t, f.fireInto(t, slots(worker, 1), f.step(t, job)).Claimed[0], belfry.OutcomeSucceeded)
		f.retire(t, 10)
		f.wantEnded(t, "run twice", job, belfry.StatusCompleted)
		if err := f.Trigger(ctx, wish, nil); err != nil {
			t.Errorf("the same wish again: %v", err)
		}
		wantOver(t, "another wish", f.Trigger(ctx, f.one(job), nil))
	})
}
