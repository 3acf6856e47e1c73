package scheduler

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/target"
)

// rejectingStore refuses every batch with a certain job in it.
type rejectingStore struct {
	store.Store
	job belfry.ID
}

func (u *rejectingStore) Fire(ctx context.Context, owner belfry.ID, steps []plan.Step, slots ...store.FreeSlots) (store.FireResult, error) {
	for _, s := range steps {
		if s.Seen.JobID == u.job {
			return store.FireResult{}, fmt.Errorf("a value of the job cannot be stored")
		}
	}
	return u.Store.Fire(ctx, owner, steps, slots...)
}

// Of 500 jobs that are due at the same instant some are bad, each in its own way.
// All others run, and each of the bad ones says why it does not.
func TestQuarantinedJobsDoNotStopOthers(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.slots = 100
		at := "2000-01-01T00:01:00Z"
		jobs := make([]belfry.ID, 500)
		http := target.NewHTTP(target.HTTPOptions{})
		payload := map[belfry.ID]bool{}
		for i := range jobs {
			switch i {
			case 100:
				jobs[i] = b.createUnreadable("no rule at all")
			case 300:
				jobs[i] = b.create(at, nil)
				payload[jobs[i]] = true
			default:
				jobs[i] = b.create(at, nil)
			}
		}
		b.handlerResult = func(run *belfry.Run) error {
			if payload[run.JobID] {
				return http.Handle(context.Background(), run) // its payload is not a valid request
			}
			return nil
		}
		b.start(&rejectingStore{b.store, jobs[200]})
		b.sleep(10 * time.Minute)
		for i, id := range jobs {
			job, err := b.store.Job(b.Context(), "default", id)
			if err != nil {
				b.Fatal(err)
			}
			switch i {
			case 100:
				b.wantQuarantined(job, "4 fields instead of 5")
			case 200:
				b.wantQuarantined(job, "a value of the job cannot be stored")
			case 300:
				if runs := b.runs(id); len(runs) != 1 || runs[0].Status != belfry.RunDead || runs[0].Reason != belfry.ReasonPermanent || runs[0].Attempt != 1 {
					b.Errorf("the run without a payload is %+v", runs)
				}
			default:
				if job.Status != belfry.StatusCompleted || job.Quarantined != "" {
					b.Errorf("job %d is %s, %q", i, job.Status, job.Quarantined)
				}
			}
		}
		if n := len(b.handled()); n != 498 {
			b.Errorf("%d handlers were called, want one for each run that there can be", n)
		}
	})
}

func (b *bubble) wantQuarantined(job belfry.Job, why string) {
	b.Helper()
	if !strings.Contains(job.Quarantined, why) || len(b.runs(job.ID)) != 0 {
		b.Errorf("the bad job is quarantined for %q, want %q; it has the runs %+v", job.Quarantined, why, b.runs(job.ID))
	}
}

func TestQuarantineEndsWhenTheJobFires(t *testing.T) {
	inBubble(t, func(b *bubble) {
		job := b.create("* * * * *", nil)
		u := &rejectingStore{b.store, job}
		b.start(u)
		b.sleep(90 * time.Second)
		b.stop()
		if j, err := b.store.Job(b.Context(), "default", job); err != nil || j.Quarantined == "" {
			b.Fatalf("the job is %+v, %v", j, err)
		}
		b.start(b.store)
		b.sleep(time.Minute)
		if j, err := b.store.Job(b.Context(), "default", job); err != nil || j.Quarantined != "" || len(b.runs(job)) == 0 {
			b.Errorf("the job is quarantined for %q, %v", j.Quarantined, err)
		}
	})
}

// createUnreadable makes a job with a schedule that cannot be read, due in a minute.
func (b *bubble) createUnreadable(schedule string) belfry.ID {
	b.Helper()
	spec := belfry.DefaultSpec()
	spec.Type, spec.Schedule = belfry.TypeHTTP, schedule
	now := b.store.Now()
	id, at := belfry.NewID(now), now.Add(time.Minute)
	job := store.NewJob{
		Job:  belfry.Job{ID: id, Namespace: "default", Revision: 1, State: belfry.JobActive, CreatedAt: now, Manifest: belfry.Manifest{Spec: spec}},
		Plan: plan.Plan{JobID: id, Shard: belfry.ShardOf(id, b.store.Shards()), Version: 1, NextAt: at, NominalAt: at},
	}
	var list iter.Seq2[store.NewJob, error] = one(job)
	if err := b.store.CreateJobs(b.Context(), list, nil); err != nil {
		b.Fatal(err)
	}
	return id
}

// lossyStore loses the answers to the next calls of Fire.
type lossyStore struct {
	store.Store
	left atomic.Int64
}

func (f *lossyStore) Fire(ctx context.Context, owner belfry.ID, steps []plan.Step, slots ...store.FreeSlots) (store.FireResult, error) {
	fired, err := f.Store.Fire(ctx, owner, steps, slots...)
	if f.left.Add(-1) >= 0 {
		return store.FireResult{}, errInjected
	}
	return fired, err
}

func TestQuarantineIsShortAfterLostAnswers(t *testing.T) {
	for _, lost := range []int64{1, 2} {
		inBubble(t, func(b *bubble) {
			f := &lossyStore{Store: b.store}
			f.left.Store(lost)
			job := b.create("*/30 * * * * *", func(s *belfry.Spec) { s.Overlap = belfry.OverlapParallel })
			b.start(f)
			b.sleep(5*time.Minute + time.Second)
			var worst time.Duration
			for _, run := range b.runs(job)[1:] { // the run whose answers were lost is offered again later
				if run.Status != belfry.RunSucceeded {
					b.Fatalf("after %d lost answers there is %+v", lost, run)
				}
				worst = max(worst, b.callsOf(run.ID)[0].at.Sub(run.ScheduledAt))
			}
			if len(b.runs(job)) != 10 || worst > 10*time.Millisecond {
				b.Errorf("after %d lost answers there are %d runs of 10, the latest %v late", lost, len(b.runs(job)), worst)
			}
		})
	}
}
