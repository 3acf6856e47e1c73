package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// outdated walks over the plans of some shards that are older than a release.
func (f *fixture) outdated(t tb, shards []int, release string, limit int) (found []store.Due) {
	t.Helper()
	var after belfry.ID
	for {
		due, next, err := f.PlansForZoneUpdate(ctx, shards, release, after, limit)
		if err != nil || len(due) > limit {
			t.Fatalf("look for %d outdated plans: got %d, %v", limit, len(due), err)
		}
		if found = append(found, due...); next.IsZero() {
			return found
		}
		if next.Compare(after) <= 0 {
			t.Fatalf("after %s the walk goes on after %s", after, next)
		}
		after = next
	}
}

func TestOutdatedGivesWhatAnOlderZoneDatabasePlanned(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		made := func(release string, change func(*store.NewJob), changes ...func(*belfry.Job)) belfry.Job {
			job := f.job(f.minutesAgo(-600), changes...)
			job.Plan.ZoneVersion = release
			if change != nil {
				change(&job)
			}
			f.create(t, job)
			return job.Job
		}
		var want []belfry.ID
		for i := range 12 {
			release := []string{"2024b", "", "2025a", "1999z"}[i%4]
			job := made(release, nil, named(fmt.Sprint("report ", i)), withKeys("{{name}}-{{scheduled_at}}"))
			want = append(want, job.ID)
			made("2025b", nil)
			made("2026a", nil)
			made("2025c", nil)
		}
		paused := made("2024b", func(j *store.NewJob) { j.Job.State, j.Plan.NextAt = belfry.JobPaused, time.Time{} })
		want = append(want, paused.ID)
		made("2024b", func(j *store.NewJob) { j.Plan.NextAt, j.Plan.NominalAt = time.Time{}, time.Time{} })
		gone := made("2024b", nil)
		f.edit(t, gone, remove(t))
		f.exec(t, `UPDATE plans SET nominal_at = ? WHERE job_id = ?`, f.minutesAgo(-600), gone.ID)

		for _, limit := range []int{1, 2, 3, 13, 14, 1000} {
			var got []belfry.ID
			for _, d := range f.outdated(t, f.all(), "2025b", limit) {
				got = append(got, d.Plan.JobID)
				alone, err := f.PlansByJob(ctx, []belfry.ID{d.Plan.JobID})
				if err != nil || len(alone) != 1 || !cmp.Equal(alone[0], d, asStored) {
					t.Errorf("found %+v, alone it is %+v (%v)", d, alone, err)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("by %d there are %v, wants %v", limit, got, want)
			}
		}
		n := 0
		for shard := range f.Shards() {
			for _, d := range f.outdated(t, []int{shard}, "2025b", 2) {
				if n++; d.Plan.Shard != shard {
					t.Errorf("a plan of shard %d is among those of %d", d.Plan.Shard, shard)
				}
			}
		}
		if none := f.outdated(t, nil, "2025b", 10); n != len(want) || len(none) != 0 {
			t.Errorf("the shards have %d, no shard has %d", n, len(none))
		}
		if none := f.outdated(t, f.all(), "", 10); len(none) != 0 {
			t.Errorf("%d plans are older than everything", len(none))
		}
		if due, next, err := f.PlansForZoneUpdate(ctx, f.all(), "2025b", want[3], 0); len(due) != 0 || next != want[3] || err != nil {
			t.Errorf("asked for none, got %d, to go on after %s, %v", len(due), next, err)
		}
	})
}

// delayed makes a job whose occurrence came a while ago and is due some time
// after it, and the step that decides it.
func (f *fixture) delayed(t tb, by time.Duration, changes ...func(*belfry.Job)) (belfry.Job, plan.Step) {
	t.Helper()
	job := f.job(f.minutesAgo(5), changes...)
	job.Plan.NextAt = job.Plan.NominalAt.Add(by)
	f.create(t, job)
	step := f.step(t, job.Job)
	step.Runs[0].ReadyAt = job.Plan.NextAt
	return job.Job, step
}

func TestAStepIsEarlyByWhenItsPlanIsDueAndNotByItsOccurrence(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		_, early := f.delayed(t, time.Hour)
		job, late := f.delayed(t, 2*time.Minute)
		fired := f.tryFire(t, early, late)
		if fired.Applied[0] || !fired.Applied[1] || fired.Ready != 1 {
			t.Fatalf("fired %+v, wants the second only", fired)
		}
		run := f.run(t, job.Namespace, late.Runs[0].ID)
		if !run.ScheduledAt.Equal(f.minutesAgo(5)) || !run.ReadyAt.Equal(f.minutesAgo(3)) {
			t.Errorf("the run is of %v and ready since %v, wants %v and %v", run.ScheduledAt, run.ReadyAt, f.minutesAgo(5), f.minutesAgo(3))
		}
		if p := f.plan(t, job.ID); !p.FiredFor.Equal(f.minutesAgo(5)) || !p.NominalAt.Equal(f.minutesAgo(4)) {
			t.Errorf("the plan is %+v", p)
		}
		if due := f.due(t); len(due) != 1 || due[0].Plan.JobID != job.ID {
			t.Errorf("%+v is due, wants the next minute of the second only", due)
		}
	})
}

func TestRunsWaitInTheOrderInWhichTheyBecameReady(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.worker(t)
		_, last := f.delayed(t, 3*time.Minute)
		first := f.step(t, f.created(t, 4)) // a later occurrence without a delay
		f.fire(t, last, first)
		runs := f.claim(t, worker, 1)
		runs = append(runs, f.claim(t, worker, 1)...)
		if len(runs) != 2 || runs[0].ID != first.Runs[0].ID || runs[1].ID != last.Runs[0].ID {
			t.Fatalf("claimed %v, wants %s and %s", runs, first.Runs[0].ID, last.Runs[0].ID)
		}
		_, local := f.delayed(t, 3*time.Minute)
		got := f.fireInto(t, slots(worker, 1), local).Claimed
		if len(got) != 1 || !got[0].ReadyAt.Equal(f.minutesAgo(2)) || !got[0].ScheduledAt.Equal(f.minutesAgo(5)) {
			t.Errorf("the local worker got %+v", got)
		}
		for _, run := range append(runs, got...) {
			f.accepted(t, run, belfry.OutcomeSucceeded)
			if kept := f.run(t, run.Namespace, run.ID); !kept.ReadyAt.Equal(run.ReadyAt) || !kept.ScheduledAt.Equal(run.ScheduledAt) {
				t.Errorf("history says %v and %v, the run was of %v and ready at %v", kept.ScheduledAt, kept.ReadyAt, run.ScheduledAt, run.ReadyAt)
			}
		}
	})
}

// aside is a note beside the occurrences of a job.
func aside(job belfry.ID, reason belfry.Reason, at time.Time, count int64) plan.Skip {
	return plan.Skip{ID: belfry.RunID(job, belfry.RunKind(reason), at, belfry.ID{}), From: at, To: at, Count: count, Reason: reason, Note: true}
}

func TestWhatTheClockSkippedStandsBesideARunOfTheSameInstant(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job, worker := f.created(t, 5), f.worker(t)
		at := f.minutesAgo(5)
		step := f.step(t, job)
		// Before the occurrence, at it, and behind the mark of a step that is applied later.
		step.Skips = []plan.Skip{aside(job.ID, belfry.ReasonDSTGap, f.minutesAgo(50), 1), aside(job.ID, belfry.ReasonDSTGap, at, 4)}
		f.fire(t, step)
		f.accepted(t, f.claimOne(t, worker), belfry.OutcomeSucceeded)
		second := f.step(t, job)
		second.Skips = []plan.Skip{aside(job.ID, belfry.ReasonDSTGap, f.minutesAgo(40), 1)}
		f.fire(t, second)
		f.accepted(t, f.claimOne(t, worker), belfry.OutcomeSucceeded)

		runs := f.jobRuns(t, job)
		if len(runs) != 5 {
			t.Fatalf("there are %d records, wants 5: %+v", len(runs), runs)
		}
		gap, run := runs[1], runs[2]
		if gap.Status != belfry.RunSkipped {
			gap, run = run, gap
		}
		if gap.ID != step.Skips[1].ID || gap.Reason != belfry.ReasonDSTGap || gap.SkippedCount != 4 || !gap.ScheduledAt.Equal(at) ||
			run.ID != step.Runs[0].ID || run.Status != belfry.RunSucceeded || !run.ScheduledAt.Equal(at) {
			t.Errorf("of %v there are %+v and %+v", at, gap, run)
		}
		for _, r := range runs {
			if got := f.run(t, job.Namespace, r.ID); got.Status != r.Status || got.Reason != r.Reason {
				t.Errorf("%s is found as %+v, listed as %+v", r.ID, got, r)
			}
		}
		var paged []belfry.Run
		for page := (store.Page{Limit: 2}); ; page.After.At, page.After.ID = paged[len(paged)-1].ScheduledAt, paged[len(paged)-1].ID {
			some, err := f.JobRuns(ctx, job.Namespace, job.ID, page)
			if err != nil {
				t.Fatal(err)
			}
			if paged = append(paged, some...); len(some) < 2 {
				break
			}
		}
		if !cmp.Equal(paged, runs, asStored) {
			t.Errorf("in pages there are %+v, wants %+v", paged, runs)
		}
		list, err := f.ListRuns(ctx, job.Namespace, belfry.RunFilter{}, store.Page{Limit: 10})
		if err != nil || len(list.Runs) != 5 || !slices.IsSortedFunc(list.Runs, func(a, b belfry.Run) int { return b.ScheduledAt.Compare(a.ScheduledAt) }) {
			t.Errorf("all runs are %+v, %v", list.Runs, err)
		}
	})
}

func TestNotesBesideTheOccurrencesDoNotSayHowAJobEnded(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.worker(t)
		ended := map[belfry.ID]belfry.JobStatus{}
		end := func(want belfry.JobStatus, outcome belfry.Outcome, notes ...func(job belfry.ID) plan.Skip) {
			job := f.created(t, 30, withRetries(0))
			step := f.step(t, job)
			step.Next.NextAt, step.Next.NominalAt = time.Time{}, time.Time{}
			for _, note := range notes {
				step.Skips = append(step.Skips, note(job.ID))
			}
			if outcome == "" {
				step.Runs, step.Next.RunsMade, step.Next.FiredFor = nil, 0, time.Time{}
			}
			f.fire(t, step)
			if outcome != "" {
				f.accepted(t, f.claimOne(t, worker), outcome)
			}
			ended[job.ID] = want
		}
		gap := func(minutes int) func(belfry.ID) plan.Skip {
			return func(job belfry.ID) plan.Skip { return aside(job, belfry.ReasonDSTGap, f.minutesAgo(minutes), 1) }
		}
		moved := func(minutes int) func(belfry.ID) plan.Skip {
			return func(job belfry.ID) plan.Skip { return aside(job, belfry.ReasonZoneChange, f.minutesAgo(minutes), 1) }
		}
		end(belfry.StatusCompleted, belfry.OutcomeSucceeded)
		end(belfry.StatusCompleted, belfry.OutcomeSucceeded, gap(30))
		end(belfry.StatusCompleted, belfry.OutcomeSucceeded, moved(-24*60))
		end(belfry.StatusCompleted, belfry.OutcomeSucceeded, gap(60), moved(10))
		end(belfry.StatusFailed, belfry.OutcomeFailed, gap(30), moved(5))
		end(belfry.StatusCancelled, "", moved(5))
		for id, want := range ended {
			job := f.found(t, belfry.Job{ID: id, Namespace: belfry.DefaultNamespace})
			if job.Status != want {
				t.Errorf("job %s is %s, wants %s", id, job.Status, want)
			}
			if want == belfry.StatusCancelled && job.LastRunAt != nil || want != belfry.StatusCancelled && (job.LastRunAt == nil || !job.LastRunAt.Equal(f.minutesAgo(30))) {
				t.Errorf("the %s job ran at %v last", want, job.LastRunAt)
			}
		}
		for _, status := range []belfry.JobStatus{belfry.StatusCompleted, belfry.StatusFailed, belfry.StatusCancelled} {
			want := 0
			for _, s := range ended {
				if s == status {
					want++
				}
			}
			list, err := f.ListJobs(ctx, belfry.DefaultNamespace, belfry.JobFilter{Status: status}, store.Page{Limit: 10})
			if err != nil || len(list.Jobs) != want {
				t.Errorf("%d jobs are listed as %s (%v), wants %d", len(list.Jobs), status, err, want)
			}
		}
	})
}

func TestOnlyScheduledRunsAreCounted(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job, worker := f.created(t, 30, parallel), f.worker(t)
		wished := func() {
			t.Helper()
			f.fire(t, plan.Fire(subject(t, job.Namespace, 1, job.Spec), f.plan(t, job.ID), []plan.Trigger{f.trigger(t, job, ""), f.trigger(t, job, "")}))
			for _, run := range f.claim(t, worker, 2) {
				f.accepted(t, run, belfry.OutcomeSucceeded)
			}
		}
		last := func() *time.Time { t.Helper(); return f.found(t, job).LastRunAt }
		if last() != nil {
			t.Errorf("a new job ran at %v", last())
		}
		wished() // before anything was scheduled
		if at := last(); at == nil || at.Before(f.minutesAgo(1)) {
			t.Errorf("after two runs that were asked for the job ran at %v last", at)
		}
		f.fire(t, f.step(t, job))
		f.accepted(t, f.claimOne(t, worker), belfry.OutcomeSucceeded)
		if at := last(); at == nil || at.Before(f.minutesAgo(1)) {
			t.Errorf("with one scheduled run before that the job ran at %v last", at)
		}
		wished()
		if p := f.plan(t, job.ID); p.RunsMade != 1 {
			t.Errorf("the plan counts %d runs, wants the scheduled one", p.RunsMade)
		}
	})
}
