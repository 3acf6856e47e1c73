package scheduler

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// slack is how much later than its instant a run may start in a bubble, where
// nothing takes time but the margin.
const slack = 5 * time.Millisecond

func TestMinutelyJobRunsEveryMinuteOfADay(t *testing.T) {
	inBubble(t, func(b *bubble) {
		job := b.create("* * * * *", nil)
		b.start(b.store)
		b.sleep(24*time.Hour + time.Second)
		calls := b.handled()
		if len(calls) != 24*60 {
			b.Fatalf("got %d runs in a day of minutes, want %d", len(calls), 24*60)
		}
		for i, c := range calls {
			want := time.Date(2000, 1, 1, 0, 1+i, 0, 0, time.UTC)
			if !c.run.ScheduledAt.Equal(want) || c.at.Before(want) || c.at.Sub(want) > slack {
				b.Fatalf("run %d was scheduled at %s and started at %s, want %s", i, c.run.ScheduledAt, c.at, want)
			}
		}
		for _, run := range b.runs(job) {
			if run.Status != belfry.RunSucceeded || run.Attempt != 1 {
				b.Errorf("run at %s is %s after %d attempts", run.ScheduledAt, run.Status, run.Attempt)
			}
		}
	})
}

func TestOneOffIn300ms(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.start(b.store)
		b.sleep(time.Minute)
		at := time.Now().Add(300 * time.Millisecond).UTC()
		b.create(at.Format(time.RFC3339Nano), nil)
		b.sleep(time.Second)
		calls := b.handled()
		if len(calls) != 1 || calls[0].at.Before(at) || calls[0].at.Sub(at) > slack {
			b.Errorf("requested for %s, got %+v", at, calls)
		}
	})
}

func TestMissedJobsRunWithTheirScheduledTime(t *testing.T) {
	inBubble(t, func(b *bubble) {
		once := b.create("2000-01-01T00:30:00Z", nil)
		minutely := b.create("* * * * *", nil)
		b.start(b.store)
		b.sleep(10*time.Minute + 30*time.Second)
		b.crash()
		b.sleep(time.Hour)
		b.start(b.store)
		b.sleep(time.Minute)
		runs := b.runs(once)
		if len(runs) != 1 || runs[0].Status != belfry.RunSucceeded || !runs[0].ScheduledAt.Equal(time.Date(2000, 1, 1, 0, 30, 0, 0, time.UTC)) {
			b.Errorf("the one-off became %+v", runs)
		}
		var skipped int64
		made := 0
		for _, run := range b.runs(minutely) {
			if run.Status == belfry.RunSkipped {
				skipped += run.SkippedCount
				if run.Reason != belfry.ReasonMissed {
					b.Errorf("skipped for reason %s", run.Reason)
				}
			} else {
				made++
			}
		}
		// 10 before, then 60 missed of which one runs, then one more minute.
		if made != 12 || skipped != 59 {
			b.Errorf("got %d runs and %d skips, want 12 and 59", made, skipped)
		}
	})
}

func TestFailingJobIsRetriedAndThenDead(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.handlerResult = func(*belfry.Run) error { return errRefused }
		job := b.create("2000-01-01T00:01:00Z", nil)
		b.start(b.store)
		b.sleep(10 * time.Minute)
		calls := b.handled()
		if len(calls) != 4 {
			b.Fatalf("got %d attempts, want 1 and 3 retries", len(calls))
		}
		for i := 1; i < 4; i++ {
			nominal := 5 * time.Second << (i - 1)
			gap := calls[i].at.Sub(calls[i-1].at)
			if gap < nominal*3/4 || gap > nominal*5/4+slack {
				b.Errorf("retry %d came after %s, want about %s", i, gap, nominal)
			}
			if calls[i].run.Key() != calls[0].run.Key() || calls[i].run.Attempt != i+1 {
				b.Errorf("retry %d has key %s and attempt %d", i, calls[i].run.Key(), calls[i].run.Attempt)
			}
		}
		run, err := b.store.Run(b.Context(), "default", calls[0].run.ID)
		if err != nil || run.Status != belfry.RunDead || run.Reason != belfry.ReasonOutOfRetries || len(run.Attempts) != 4 {
			b.Errorf("the run became %+v, %v", run, err)
		}
		if j, err := b.store.Job(b.Context(), "default", job); err != nil || j.Status != belfry.StatusFailed {
			b.Errorf("the job is %s, %v", j.Status, err)
		}
	})
}

func TestTriggerRunsAtOnceAndKeepsThePlan(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.start(b.store)
		job := b.create("0 12 * * *", nil)
		b.sleep(time.Hour)
		requested := time.Now()
		trigger := plan.Trigger{ID: belfry.NewID(requested), Namespace: "default", JobID: job, Kind: belfry.KindManual, At: b.store.Now()}
		for range 2 { // asking again with the same id changes nothing
			if err := b.store.Trigger(b.Context(), []plan.Trigger{trigger}, nil); err != nil {
				b.Fatal(err)
			}
		}
		b.sleep(time.Second)
		calls := b.handled()
		if len(calls) != 1 || calls[0].run.ID != trigger.RunID() || calls[0].at.Sub(requested) > slack {
			b.Fatalf("got %+v", calls)
		}
		b.sleep(11 * time.Hour)
		if calls := b.handled(); len(calls) != 2 || calls[1].run.Kind != belfry.KindScheduled {
			b.Errorf("the plan did not continue: %+v", calls)
		}
	})
}

func TestOverlapSkipKeepsOneRunAlive(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.handlerTime = 150 * time.Second
		job := b.create("* * * * *", func(s *belfry.Spec) { s.TimeoutSeconds = 600 })
		parallel := b.create("* * * * *", func(s *belfry.Spec) { s.Overlap, s.TimeoutSeconds = belfry.OverlapParallel, 600 })
		b.start(b.store)
		b.sleep(9*time.Minute + 30*time.Second)
		made, skipped := count(b.runs(job))
		if made != 3 || skipped != 6 { // at minutes 1, 4, 7; each takes two and a half
			b.Errorf("overlap skip: %d runs, %d skips, want 3 and 6", made, skipped)
		}
		if made, skipped := count(b.runs(parallel)); made != 9 || skipped != 0 {
			b.Errorf("overlap parallel: %d runs, %d skips, want 9 and none", made, skipped)
		}
	})
}

func count(runs []belfry.Run) (made, skipped int) {
	for _, run := range runs {
		if run.Status == belfry.RunSkipped {
			skipped++
		} else {
			made++
		}
	}
	return made, skipped
}

func TestBurstIsFiredAtThePaceOfCapacity(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.handlerTime = time.Second
		const jobs = 200
		for range jobs {
			b.create("2000-01-01T00:01:00Z", nil)
		}
		b.start(b.store)
		b.sleep(time.Minute + 5*time.Second + 500*time.Millisecond)
		ready, err := b.store.CountReady(b.Context(), 1000)
		if err != nil {
			b.Fatal(err)
		}
		if n := ready["default/http"]; n > b.slots {
			b.Errorf("%d runs are ready although no other worker could claim them", n)
		}
		if done := len(b.handled()); done < 5*b.slots || done > 7*b.slots {
			b.Errorf("%d runs were started after 5.5 s with %d slots of a second each", done, b.slots)
		}
		b.sleep(time.Minute)
		if done := len(b.handled()); done != jobs {
			b.Errorf("%d of %d runs were made", done, jobs)
		}
	})
}

func TestPausedOccurrencesAreSkippedAndRecorded(t *testing.T) {
	inBubble(t, func(b *bubble) {
		job := b.create("*/10 * * * *", nil)
		b.start(b.store)
		b.sleep(25 * time.Minute)
		b.edit(job, func(s plan.Subject, j *belfry.Job, p plan.Plan, now time.Time) plan.Step {
			j.State = belfry.JobPaused
			return plan.Pause(s, p, now)
		})
		b.sleep(time.Hour)
		b.edit(job, func(s plan.Subject, j *belfry.Job, p plan.Plan, now time.Time) plan.Step {
			j.State = belfry.JobActive
			return plan.Resume(s, p, false, now)
		})
		b.sleep(10 * time.Minute)
		made, skips := 0, int64(0)
		for _, run := range b.runs(job) {
			if run.Status == belfry.RunSkipped && run.Reason == belfry.ReasonPaused {
				skips += run.SkippedCount
			} else if run.Status == belfry.RunSucceeded {
				made++
			}
		}
		if made != 3 || skips != 6 { // 0:10, 0:20, then the pause 0:25-1:25, then 1:30
			b.Errorf("got %d runs and %d paused skips, want 3 and 6", made, skips)
		}
	})
}

// edit changes a job and its plan.
func (b *bubble) edit(job belfry.ID, change func(plan.Subject, *belfry.Job, plan.Plan, time.Time) plan.Step) {
	b.Helper()
	_, err := b.store.EditJob(b.Context(), "default", job, func(j belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		policy, err := plan.Compile(j.Spec)
		if err != nil {
			return nil, err
		}
		step := change(plan.Subject{Namespace: "default", Revision: j.Revision, Policy: policy}, &j, p, now)
		return &store.Change{Job: j, Step: step}, nil
	})
	if err != nil {
		b.Fatal(err)
	}
}
