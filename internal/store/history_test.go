package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestARunIsFoundWhereverItIs(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		run := f.started(t, withRetries(1), withBase(0))
		want := func(state belfry.RunStatus, attempts int) {
			t.Helper()
			got := f.run(t, run.Namespace, run.ID)
			if got.Status != state || len(got.Attempts) != attempts || got.JobID != run.JobID || !got.ScheduledAt.Equal(run.ScheduledAt) ||
				!got.FiredAt.Equal(run.FiredAt) || got.Kind != belfry.KindScheduled || got.Namespace != run.Namespace || got.Revision != 1 {
				t.Errorf("the %s run is %+v", state, got)
			}
			for i, a := range got.Attempts {
				if a.Number != i+1 {
					t.Errorf("attempt %d has number %d", i+1, a.Number)
				}
			}
			if final := state == belfry.RunDead || state == belfry.RunSucceeded; (got.FinishedAt != nil) != final {
				t.Errorf("the %s run was finished at %v", state, got.FinishedAt)
			}
		}
		want(belfry.RunRunning, 0)
		f.accepted(t, run, belfry.OutcomeInterrupted)
		want(belfry.RunReady, 1)
		f.accepted(t, f.claimOne(t, run.WorkerID), belfry.OutcomeFailed)
		want(belfry.RunRetry, 2)
		if n, _, err := f.Promote(ctx, f.all(), 1); n != 1 || err != nil {
			t.Fatalf("promoted %d (%v)", n, err)
		}
		f.accepted(t, f.claimOne(t, run.WorkerID), belfry.OutcomeFailed)
		want(belfry.RunDead, 3)
		_, err := f.Run(ctx, run.Namespace, newID())
		wantCode(t, "find a run that never was", err, belfry.NotFound)
	})
}

func TestATriggerIsFoundAsTheRunThatItWillBe(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.created(t, -60, inNamespace("ours"))
		wish := f.trigger(t, job, `"mine"`)
		want := func(state belfry.RunStatus) {
			t.Helper()
			got := f.run(t, "ours", wish.RunID())
			if got.ID != wish.RunID() || got.JobID != job.ID || got.Namespace != "ours" || got.Kind != belfry.KindManual ||
				got.Status != state || !got.ScheduledAt.Equal(wish.At) || got.Revision != 1 {
				t.Errorf("the trigger is found as %+v, wants it %s", got, state)
			}
			_, err := f.Run(ctx, "theirs", wish.RunID())
			wantCode(t, "find it from another namespace", err, belfry.NotFound)
		}
		want(belfry.RunReady)
		if got := f.run(t, "ours", wish.RunID()); !got.FiredAt.IsZero() {
			t.Errorf("a trigger that is not fired was fired at %v", got.FiredAt)
		}
		f.fire(t, plan.Fire(subject(t, "ours", 1, job.Spec), f.plan(t, job.ID), []plan.Trigger{wish}))
		want(belfry.RunReady)
		run := f.claimOne(t, f.worker(t))
		want(belfry.RunRunning)
		f.accepted(t, run, belfry.OutcomeSucceeded)
		want(belfry.RunSucceeded)
		_, err := f.Run(ctx, "ours", wish.ID)
		wantCode(t, "find a run by the id of its trigger", err, belfry.NotFound)
	})
}

func TestTheRunsOfAJobAreListedLatestFirst(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job, other := f.created(t, 30, parallel, withRetries(0)), f.created(t, 30, inQueue("other"))
		f.fire(t, f.step(t, other))
		worker := f.worker(t)
		// A range of skips, a success, a dead letter, and a live run of each kind.
		seen := f.plan(t, job.ID)
		f.fire(t, plan.Decide(subject(t, job.Namespace, 1, job.Spec), seen, f.minutesAgo(20), f.Now()))
		for _, outcome := range []belfry.Outcome{belfry.OutcomeSucceeded, belfry.OutcomeFailed} {
			for _, run := range f.claim(t, worker, 1) {
				f.accepted(t, run, outcome)
			}
			f.fire(t, f.step(t, job))
		}
		f.claim(t, worker, 1)
		f.fire(t, f.step(t, job))
		// Three wishes for the same instant have only their ids to tell them apart.
		at := f.Now().Truncate(time.Microsecond)
		var wishes []plan.Trigger
		for range 3 {
			w := f.wish(job, "")
			w.At = at
			if err := f.Trigger(ctx, []plan.Trigger{w}, nil); err != nil {
				t.Fatal(err)
			}
			wishes = append(wishes, w)
		}
		f.fire(t, plan.Fire(subject(t, job.Namespace, 1, job.Spec), f.plan(t, job.ID), wishes))

		all := f.jobRuns(t, job)
		var states []belfry.RunStatus
		for i, run := range all {
			states = append(states, run.Status)
			if run.JobID != job.ID || len(run.Attempts) != 0 {
				t.Errorf("record %d is %+v", i, run)
			}
			if i > 0 && !later(all[i-1], run) {
				t.Errorf("record %d (%v, %s) comes before %v, %s", i, all[i-1].ScheduledAt, all[i-1].ID, run.ScheduledAt, run.ID)
			}
		}
		want := []belfry.RunStatus{"ready", "ready", "ready", "ready", "running", "dead", "succeeded", "skipped"}
		if !slices.Equal(states, want) {
			t.Fatalf("the records are %v, wants %v", states, want)
		}
		f.wantPages(t, job, all)
	})
}

// later reports whether a comes before b in a list of runs.
func later(a, b belfry.Run) bool {
	if !a.ScheduledAt.Equal(b.ScheduledAt) {
		return a.ScheduledAt.After(b.ScheduledAt)
	}
	return a.ID.Compare(b.ID) > 0
}

// wantPages expects pages of every size to give the same list as one.
func (f *fixture) wantPages(t tb, job belfry.Job, all []belfry.Run) {
	t.Helper()
	for limit := 1; limit <= len(all)+1; limit++ {
		var got []belfry.ID
		page := store.Page{Limit: limit}
		for range len(all) + 1 {
			runs, err := f.JobRuns(ctx, job.Namespace, job.ID, page)
			if err != nil || len(runs) > limit {
				t.Fatalf("a page of %d has %d runs (%v)", limit, len(runs), err)
			}
			if len(runs) == 0 {
				break
			}
			for _, run := range runs {
				got = append(got, run.ID)
			}
			last := runs[len(runs)-1]
			page.After.At, page.After.ID = last.ScheduledAt, last.ID
		}
		if !slices.EqualFunc(got, all, func(id belfry.ID, run belfry.Run) bool { return id == run.ID }) {
			t.Errorf("pages of %d give %d runs %v, wants %d", limit, len(got), got, len(all))
		}
	}
}

func TestPruneForgetsWhatIsOlderThanWasAsked(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		const keep = 7 * 24 * time.Hour
		prune := func(want int) {
			t.Helper()
			if n, err := f.Prune(ctx, keep); err != nil || n != want {
				t.Errorf("pruned %d (%v), wants %d", n, err, want)
			}
		}
		settled := func(age time.Duration) *belfry.Run {
			run := f.started(t, parallel, withRetries(5))
			f.accepted(t, run, belfry.OutcomeInterrupted)
			f.accepted(t, f.claimOne(t, run.WorkerID), belfry.OutcomeSucceeded)
			f.backdate(t, age, "history", "settled_at", "id = ?", run.ID)
			f.backdate(t, age, "attempts", "finished_at started_at", "run_id = ?", run.ID)
			return run
		}
		fresh, young, old, ancient := settled(0), settled(keep-2*time.Hour), settled(keep+50*time.Hour), settled(40*24*time.Hour)
		skipped := f.created(t, 5)
		f.edit(t, skipped, remove(t))
		f.backdate(t, keep+50*time.Hour, "history", "settled_at", "job_id = ?", skipped.ID)
		prune(3)
		prune(0)
		for _, run := range []*belfry.Run{fresh, young} {
			if got := f.run(t, run.Namespace, run.ID); got.Status != belfry.RunSucceeded || len(got.Attempts) != 1 {
				t.Errorf("a run that is to be kept is %+v", got)
			}
		}
		for _, run := range []*belfry.Run{old, ancient} {
			_, err := f.Run(ctx, run.Namespace, run.ID)
			wantCode(t, "find a pruned run", err, belfry.NotFound)
			if n := f.count(t, `SELECT count(*) FROM attempts WHERE run_id = ?`, run.ID); n != 0 {
				t.Errorf("%d attempts of a pruned run are left", n)
			}
		}
		run := f.started(t)
		f.accepted(t, run, belfry.OutcomeSucceeded)
		f.run(t, run.Namespace, run.ID)
	})
}

func TestPruneLeavesWhatIsStillNeeded(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		const keep, age = 24 * time.Hour, 90 * 24 * time.Hour
		dead, live := f.started(t, withRetries(0)), f.started(t, withRetries(9))
		f.accepted(t, dead, belfry.OutcomeFailed)
		f.accepted(t, live, belfry.OutcomeFailed)
		for _, run := range []*belfry.Run{dead, live} {
			f.edit(t, belfry.Job{ID: run.JobID, Namespace: run.Namespace}, revise(t, withTimeout(5)))
			f.edit(t, belfry.Job{ID: run.JobID, Namespace: run.Namespace}, remove(t))
		}
		waiting := f.created(t, -60)
		wish := f.trigger(t, waiting, "")
		f.backdate(t, age, "triggers", "created_at", "")
		f.backdate(t, age, "jobs", "created_at updated_at", "")
		f.backdate(t, age, "revisions", "replaced_at", "")
		if _, err := f.Prune(ctx, keep); err != nil {
			t.Fatalf("prune: %v", err)
		}
		if got := f.run(t, dead.Namespace, dead.ID); got.Status != belfry.RunDead || len(got.Attempts) != 1 {
			t.Errorf("the dead letter is %+v", got)
		}
		if wishes := f.wishes(t); len(wishes) != 1 || wishes[0].Trigger.ID != wish.ID {
			t.Errorf("the triggers are %+v", wishes)
		}
		f.found(t, waiting)
		f.backdate(t, age, "runs", "ready_at", "state = 'retry'")
		if _, _, err := f.Promote(ctx, f.all(), 10); err != nil {
			t.Fatal(err)
		}
		again := f.claimOne(t, f.worker(t))
		if again.ID != live.ID || again.Revision != 1 || again.Spec != live.Spec || string(again.Payload) != string(live.Payload) {
			t.Errorf("a run of a deleted job came back as %+v", again)
		}
		f.accepted(t, again, belfry.OutcomeSucceeded)
	})
}

func TestPruneForgetsFiredTriggersAndDeletedJobs(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		const keep, age = 24 * time.Hour, 90 * 24 * time.Hour
		job, kept := f.created(t, -60), f.created(t, -60)
		for _, job := range []belfry.Job{job, kept} {
			f.trigger(t, job, "")
		}
		for _, w := range f.wishes(t) {
			f.fire(t, plan.Fire(f.decide(t, []store.Due{w.Due})[0].Subject, w.Due.Plan, []plan.Trigger{w.Trigger}))
		}
		f.settleAll(t)
		f.edit(t, job, revise(t, withTimeout(5)))
		f.edit(t, job, remove(t))
		f.edit(t, kept, revise(t, withTimeout(5)))
		if _, err := f.Prune(ctx, keep); err != nil {
			t.Fatal(err)
		}
		if runs := f.jobRuns(t, kept); len(runs) != 1 {
			t.Errorf("the kept job has %d runs, wants 1", len(runs))
		}
		f.backdate(t, age, "history", "settled_at", "")
		f.backdate(t, age, "triggers", "created_at fired_at", "")
		f.backdate(t, age, "jobs", "created_at updated_at", "")
		f.backdate(t, age, "revisions", "replaced_at", "")
		if n, err := f.Prune(ctx, keep); err != nil || n != 2 {
			t.Errorf("pruned %d (%v), wants 2", n, err)
		}
		for _, table := range []string{"triggers", "plans WHERE job_id", "jobs WHERE id", "revisions WHERE job_id"} {
			query, args := `SELECT count(*) FROM `+table, []any{}
			if table != "triggers" {
				query, args = query+` = ?`, append(args, job.ID)
			}
			if n := f.count(t, query, args...); n != 0 {
				t.Errorf("%d rows are left in %s", n, table)
			}
		}
		if got := f.found(t, kept); got.Revision != 2 {
			t.Errorf("the kept job is %+v", got)
		}
	})
}
