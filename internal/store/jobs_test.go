package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestACreatedJobIsReturnedUnchanged(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		at := f.minutesAgo(-90)
		created := f.job(at, withName("nightly report"), withPayload(`{"b": 1,  "a": [1, 2.50, "ü"]}`), func(j *belfry.Job) {
			j.Queue, j.Type, j.Timezone, j.TimeoutSeconds, j.MaxRetries = "slow", "mail", "Europe/Paris", 7, belfry.Some(9)
			j.RetryBaseSeconds, j.RetryCapSeconds, j.RetryJitter = belfry.Some(0.25), belfry.Some(99.5), belfry.Some(0.125)
		})
		bare := f.job(at, withPayload(""))
		f.createJobs(t, created, bare)

		got, want := f.getJob(t, created.Job), created.Job
		want.Status, want.NextRunAt = belfry.StatusScheduled, &at
		if !near(got.CreatedAt, want.CreatedAt, time.Minute) || !near(got.UpdatedAt, want.UpdatedAt, time.Minute) {
			t.Errorf("created at %v, updated at %v, wants about %v", got.CreatedAt, got.UpdatedAt, want.CreatedAt)
		}
		want.CreatedAt, want.UpdatedAt = got.CreatedAt, got.UpdatedAt
		if diff := cmp.Diff(want, got, asStored); diff != "" {
			t.Errorf("the job differs (-want +got):\n%s", diff)
		}
		if got := f.getJob(t, bare.Job); got.Name != "" || len(got.Payload) != 0 {
			t.Errorf("a job without name and payload has %q and %q", got.Name, got.Payload)
		}
		if p := f.plan(t, created.Job.ID); p != created.Plan {
			t.Errorf("the plan is %+v, wants %+v", p, created.Plan)
		}
	})
}

func TestAJobIsSeenInItsNamespaceOnly(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		run := f.startRun(t, withNamespace("ours"), withName("report"))
		job := run.JobID
		_, err := f.Job(ctx, "theirs", job)
		wantCode(t, "find a job", err, belfry.NotFound)
		_, err = f.EditJob(ctx, "theirs", job, func(belfry.Job, plan.Plan, time.Time) (*store.Change, error) {
			t.Error("a job of another namespace was offered for an edit")
			return nil, nil
		})
		wantCode(t, "edit a job", err, belfry.NotFound)
		trigger := f.newTrigger(belfry.Job{ID: job, Namespace: "theirs"}, "")
		wantCode(t, "trigger a job", f.Trigger(ctx, []plan.Trigger{trigger}, nil), belfry.NotFound)
		if triggers := f.pendingTriggers(t); len(triggers) != 0 {
			t.Errorf("there are %d triggers, wants none", len(triggers))
		}
		_, err = f.Run(ctx, "theirs", run.ID)
		wantCode(t, "find a run", err, belfry.NotFound)
		if jobs, err := f.ListJobs(ctx, "theirs", belfry.JobFilter{}, store.Page{Limit: 10}); err != nil || len(jobs.Jobs) != 0 {
			t.Errorf("another namespace lists %d jobs (%v)", len(jobs.Jobs), err)
		}
		runs, _, err := f.JobRuns(ctx, "theirs", job, belfry.JobRunFilter{}, store.Page{Limit: 10})
		if len(runs) != 0 || err != nil && belfry.CodeOf(err) != belfry.NotFound {
			t.Errorf("another namespace lists %d runs (%v)", len(runs), err)
		}
		r := result(run, belfry.OutcomeSucceeded)
		r.Namespace = "theirs"
		if v := f.finish(t, r)[0]; v != belfry.VerdictLate || f.state(t, run.ID) != belfry.RunRunning {
			t.Errorf("another namespace finished a run: %s, it is %s", v, f.state(t, run.ID))
		}
		f.finishAs(t, run, belfry.OutcomeSucceeded)
		_, err = f.Run(ctx, "theirs", run.ID)
		wantCode(t, "find a settled run", err, belfry.NotFound)
	})
}

func TestJobsAreListedNewestFirstInPages(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		var want []belfry.ID
		for i := range 7 {
			job := f.createJob(t, 1, withName(fmt.Sprint("job ", i)))
			want = append([]belfry.ID{job.ID}, want...)
		}
		f.createJob(t, 1, withNamespace("theirs"))
		gone := f.createJob(t, 1)
		f.edit(t, gone, deleteJob(t))
		var got []belfry.ID
		for _, job := range f.listJobs(t, belfry.DefaultNamespace, belfry.JobFilter{}, 3) {
			got = append(got, job.ID)
			if diff := cmp.Diff(f.getJob(t, job), job, asStored); diff != "" {
				t.Errorf("a listed job differs from itself (-found +listed):\n%s", diff)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of three have %v, wants %v", got, want)
		}
	})
}

func TestANameBelongsToOneLiveJob(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		first := f.createJob(t, 1, withName("report"))
		f.createJob(t, 1, withName("report"), withNamespace("theirs"))
		f.createJob(t, 1, withName("Report"))
		f.createJobs(t, f.job(f.minutesAgo(1)), f.job(f.minutesAgo(1)))
		before := f.count(t, `SELECT count(*) FROM jobs`)

		err := f.CreateJobs(ctx, jobSeq(f.job(f.minutesAgo(1)), f.job(f.minutesAgo(1), withName("report"))), nil)
		wantCode(t, "take a taken name", err, belfry.Conflict)
		if err != nil && !strings.Contains(err.Error(), "report") {
			t.Errorf("the conflict %q does not name the job", err)
		}
		err = f.CreateJobs(ctx, jobSeq(f.job(f.minutesAgo(1), withName("twice")), f.job(f.minutesAgo(1), withName("twice"))), nil)
		wantCode(t, "use a name twice in one call", err, belfry.Conflict)
		if after := f.count(t, `SELECT count(*) FROM jobs`); after != before {
			t.Errorf("there are %d jobs after the conflicts, wants %d", after, before)
		}

		f.edit(t, first, deleteJob(t))
		second := f.createJob(t, 1, withName("report"))
		if got := f.getJob(t, second); got.Name != "report" {
			t.Errorf("the second job is named %q", got.Name)
		}
		f.edit(t, second, deleteJob(t))
		f.createJob(t, 1, withName("report"))
	})
}

func TestARenameObeysTheSameRule(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		f.createJob(t, 1, withName("taken"))
		job := f.createJob(t, 1, withName("mine"))
		rename := func(name string) store.Edit {
			return func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
				job.Name = name
				return &store.Change{Job: job, Step: plan.Step{Subject: subject(t, job.Namespace, job.Revision, job.Spec), Seen: p, Next: p}}, nil
			}
		}
		_, err := f.EditJob(ctx, job.Namespace, job.ID, rename("taken"))
		wantCode(t, "take a taken name", err, belfry.Conflict)
		if got := f.getJob(t, job); got.Name != "mine" || f.plan(t, job.ID).Version != 1 {
			t.Errorf("after the conflict the job is %q with plan version %d", got.Name, f.plan(t, job.ID).Version)
		}
		if got := f.edit(t, job, rename("free")); got.Name != "free" || f.getJob(t, job).Name != "free" {
			t.Errorf("the renamed job is %q", got.Name)
		}
		f.createJob(t, 1, withName("mine"))
	})
}

func (f *fixture) revisions(t tb, job belfry.Job, before, limit int) []belfry.Revision {
	t.Helper()
	got, err := f.Revisions(ctx, job.Namespace, job.ID, before, limit)
	if err != nil {
		t.Fatalf("list revisions: %v", err)
	}
	if len(got) > limit {
		t.Fatalf("%d revisions were created, asked for %d", len(got), limit)
	}
	return got
}

var ignoreReplacedAt = cmpopts.IgnoreFields(belfry.Revision{}, "ReplacedAt")

func TestEveryEditKeepsTheEarlierRevision(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, -60, withKeys("first-{{date}}"))
		if got := f.revisions(t, job, 0, 10); len(got) != 0 {
			t.Errorf("a job that was never edited has revisions %+v", got)
		}
		const edits = 7
		var want []belfry.Revision // latest first
		for i := range edits {
			old := f.getJob(t, job)
			want = append([]belfry.Revision{{Number: old.Revision, Spec: old.Spec, Payload: old.Payload}}, want...)
			f.edit(t, job, revise(t, func(j *belfry.Job) {
				j.TimeoutSeconds, j.Payload = 100+i, nil
				if i%2 == 0 {
					withPayload(fmt.Sprintf(`{"n": %d}`, i))(j)
					withHandler(fmt.Sprint("handler ", i))(j)
				}
			}))
			if i == 3 { // what makes no revision leaves none
				f.edit(t, job, pause(t))
				f.edit(t, job, resume(t))
				f.edit(t, job, retag("other"))
			}
		}
		got := f.revisions(t, job, 0, edits+1)
		for i := range got {
			if !near(*got[i].ReplacedAt, f.Now(), time.Minute) || i > 0 && got[i].ReplacedAt.After(*got[i-1].ReplacedAt) {
				t.Errorf("revision %d was replaced at %v", got[i].Number, got[i].ReplacedAt)
			}
		}
		if diff := cmp.Diff(want, got, ignoreReplacedAt, asStored); diff != "" {
			t.Fatalf("the revisions differ (-want +got):\n%s", diff)
		}
		for limit := 1; limit <= edits; limit++ {
			var pages []belfry.Revision
			for before := 0; ; before = pages[len(pages)-1].Number {
				page := f.revisions(t, job, before, limit)
				if len(page) == 0 {
					break
				}
				pages = append(pages, page...)
			}
			if diff := cmp.Diff(want, pages, ignoreReplacedAt, asStored); diff != "" {
				t.Errorf("pages of %d differ (-want +got):\n%s", limit, diff)
			}
		}
	})
}

func TestRevisionsAreThoseOfAJobOfTheNamespace(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job, gone := f.createJob(t, -60), f.createJob(t, -60)
		for _, job := range []belfry.Job{job, gone} {
			f.edit(t, job, revise(t, withTimeout(5)))
		}
		f.edit(t, gone, deleteJob(t))
		for doing, ask := range map[string]belfry.Job{
			"of a foreign job": {Namespace: "theirs", ID: job.ID}, "of no job": {Namespace: job.Namespace, ID: newID()},
		} {
			_, err := f.Revisions(ctx, ask.Namespace, ask.ID, 0, 10)
			wantCode(t, doing, err, belfry.NotFound)
		}
		for _, job := range []belfry.Job{job, gone} {
			if got := f.revisions(t, job, 0, 10); len(got) != 1 || got[0].Number != 1 {
				t.Errorf("the revisions are %+v", got)
			}
		}
	})
}

func TestNamesOfJobs(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		at := f.minutesAgo(-90)
		active, deleted, bare := f.job(at, withName("active")), f.job(at, withName("deleted")), f.job(at)
		foreign := f.job(at, withName("foreign"), withNamespace("theirs"))
		f.createJobs(t, active, deleted, bare, foreign)
		f.edit(t, deleted.Job, deleteJob(t))
		ended := f.createOneOff(t, 5, withName("ended"))
		f.finishAs(t, f.fireInto(t, slots(f.registerWorker(t), 1), f.step(t, ended)).Claimed[0], belfry.OutcomeSucceeded)
		f.wantEnded(t, "the one-off", ended, belfry.StatusCompleted)
		want := map[belfry.ID]string{active.Job.ID: "active", deleted.Job.ID: "deleted", ended.ID: "ended"}
		got, err := f.JobNames(ctx, namespace, []belfry.ID{active.Job.ID, deleted.Job.ID, bare.Job.ID, foreign.Job.ID, ended.ID, {1}})
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("the names (-want +got): %s%v", diff, err)
		}
		if got, err := f.JobNames(ctx, namespace, nil); err != nil || len(got) != 0 {
			t.Errorf("of no jobs the names are %v (%v)", got, err)
		}
	})
}
