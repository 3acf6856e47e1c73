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

func TestACreatedJobIsFoundAsItWasGiven(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		at := f.minutesAgo(-90)
		given := f.job(at, named("nightly report"), withPayload(`{"b": 1,  "a": [1, 2.50, "ü"]}`), func(j *belfry.Job) {
			j.Queue, j.Type, j.Timezone, j.TimeoutSeconds, j.MaxRetries = "slow", "mail", "Europe/Paris", 7, belfry.Some(9)
			j.RetryBaseSeconds, j.RetryCapSeconds, j.RetryJitter = belfry.Some(0.25), belfry.Some(99.5), belfry.Some(0.125)
		})
		bare := f.job(at, withPayload(""))
		f.create(t, given, bare)

		got, want := f.found(t, given.Job), given.Job
		want.Status, want.NextRunAt = belfry.StatusScheduled, &at
		if !near(got.CreatedAt, want.CreatedAt, time.Minute) || !near(got.UpdatedAt, want.UpdatedAt, time.Minute) {
			t.Errorf("created at %v, updated at %v, wants about %v", got.CreatedAt, got.UpdatedAt, want.CreatedAt)
		}
		want.CreatedAt, want.UpdatedAt = got.CreatedAt, got.UpdatedAt
		if diff := cmp.Diff(want, got, asStored); diff != "" {
			t.Errorf("the job differs (-want +got):\n%s", diff)
		}
		if got := f.found(t, bare.Job); got.Name != "" || len(got.Payload) != 0 {
			t.Errorf("a job without name and payload has %q and %q", got.Name, got.Payload)
		}
		if p := f.plan(t, given.Job.ID); p != given.Plan {
			t.Errorf("the plan is %+v, wants %+v", p, given.Plan)
		}
	})
}

func TestAJobIsSeenInItsNamespaceOnly(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		run := f.started(t, inNamespace("ours"), named("report"))
		job := run.JobID
		_, err := f.Job(ctx, "theirs", job)
		wantCode(t, "find a job", err, belfry.NotFound)
		_, err = f.EditJob(ctx, "theirs", job, func(belfry.Job, plan.Plan, time.Time) (*store.Change, error) {
			t.Error("a job of another namespace was offered for an edit")
			return nil, nil
		})
		wantCode(t, "edit a job", err, belfry.NotFound)
		wish := f.wish(belfry.Job{ID: job, Namespace: "theirs"}, "")
		wantCode(t, "trigger a job", f.Trigger(ctx, []plan.Trigger{wish}, nil), belfry.NotFound)
		if wishes := f.wishes(t); len(wishes) != 0 {
			t.Errorf("there are %d triggers, wants none", len(wishes))
		}
		_, err = f.Run(ctx, "theirs", run.ID)
		wantCode(t, "find a run", err, belfry.NotFound)
		if jobs, err := f.ListJobs(ctx, "theirs", belfry.JobFilter{}, store.Page{Limit: 10}); err != nil || len(jobs.Jobs) != 0 {
			t.Errorf("another namespace lists %d jobs (%v)", len(jobs.Jobs), err)
		}
		runs, err := f.JobRuns(ctx, "theirs", job, store.Page{Limit: 10})
		if len(runs) != 0 || err != nil && belfry.CodeOf(err) != belfry.NotFound {
			t.Errorf("another namespace lists %d runs (%v)", len(runs), err)
		}
		r := result(run, belfry.OutcomeSucceeded)
		r.Namespace = "theirs"
		if v := f.finish(t, r)[0]; v != belfry.VerdictLate || f.state(t, run.ID) != belfry.RunRunning {
			t.Errorf("another namespace finished a run: %s, it is %s", v, f.state(t, run.ID))
		}
		f.accepted(t, run, belfry.OutcomeSucceeded)
		_, err = f.Run(ctx, "theirs", run.ID)
		wantCode(t, "find a settled run", err, belfry.NotFound)
	})
}

func TestJobsAreListedNewestFirstInPages(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		var want []belfry.ID
		for i := range 7 {
			job := f.created(t, 1, named(fmt.Sprint("job ", i)))
			want = append([]belfry.ID{job.ID}, want...)
		}
		f.created(t, 1, inNamespace("theirs"))
		gone := f.created(t, 1)
		f.edit(t, gone, remove(t))
		var got []belfry.ID
		for _, job := range f.listed(t, belfry.DefaultNamespace, belfry.JobFilter{}, 3) {
			got = append(got, job.ID)
			if diff := cmp.Diff(f.found(t, job), job, asStored); diff != "" {
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
		first := f.created(t, 1, named("report"))
		f.created(t, 1, named("report"), inNamespace("theirs"))
		f.created(t, 1, named("Report"))
		f.create(t, f.job(f.minutesAgo(1)), f.job(f.minutesAgo(1)))
		before := f.count(t, `SELECT count(*) FROM jobs`)

		err := f.CreateJobs(ctx, each(f.job(f.minutesAgo(1)), f.job(f.minutesAgo(1), named("report"))), nil)
		wantCode(t, "take a taken name", err, belfry.Conflict)
		if err != nil && !strings.Contains(err.Error(), "report") {
			t.Errorf("the conflict %q does not name the job", err)
		}
		err = f.CreateJobs(ctx, each(f.job(f.minutesAgo(1), named("twice")), f.job(f.minutesAgo(1), named("twice"))), nil)
		wantCode(t, "use a name twice in one call", err, belfry.Conflict)
		if after := f.count(t, `SELECT count(*) FROM jobs`); after != before {
			t.Errorf("there are %d jobs after the conflicts, wants %d", after, before)
		}

		f.edit(t, first, remove(t))
		second := f.created(t, 1, named("report"))
		if got := f.found(t, second); got.Name != "report" {
			t.Errorf("the second job is named %q", got.Name)
		}
		f.edit(t, second, remove(t))
		f.created(t, 1, named("report"))
	})
}

func TestARenameObeysTheSameRule(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		f.created(t, 1, named("taken"))
		job := f.created(t, 1, named("mine"))
		rename := func(name string) store.Edit {
			return func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
				job.Name = name
				return &store.Change{Job: job, Step: plan.Step{Subject: subject(t, job.Namespace, job.Revision, job.Spec), Seen: p, Next: p}}, nil
			}
		}
		_, err := f.EditJob(ctx, job.Namespace, job.ID, rename("taken"))
		wantCode(t, "take a taken name", err, belfry.Conflict)
		if got := f.found(t, job); got.Name != "mine" || f.plan(t, job.ID).Version != 1 {
			t.Errorf("after the conflict the job is %q with plan version %d", got.Name, f.plan(t, job.ID).Version)
		}
		if got := f.edit(t, job, rename("free")); got.Name != "free" || f.found(t, job).Name != "free" {
			t.Errorf("the renamed job is %q", got.Name)
		}
		f.created(t, 1, named("mine"))
	})
}

func (f *fixture) revisions(t tb, job belfry.Job, before, limit int) []belfry.Revision {
	t.Helper()
	got, err := f.Revisions(ctx, job.Namespace, job.ID, before, limit)
	if err != nil {
		t.Fatalf("list revisions: %v", err)
	}
	if len(got) > limit {
		t.Fatalf("%d revisions were given, asked for %d", len(got), limit)
	}
	return got
}

var whenever = cmpopts.IgnoreFields(belfry.Revision{}, "ReplacedAt")

func TestEveryEditKeepsWhatWasBefore(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.created(t, -60, withKeys("first-{{date}}"))
		if got := f.revisions(t, job, 0, 10); len(got) != 0 {
			t.Errorf("a job that was never edited has revisions %+v", got)
		}
		const edits = 7
		var want []belfry.Revision // latest first
		for i := range edits {
			old := f.found(t, job)
			want = append([]belfry.Revision{{Number: old.Revision, Spec: old.Spec, Payload: old.Payload}}, want...)
			f.edit(t, job, revise(t, func(j *belfry.Job) {
				j.TimeoutSeconds, j.Payload = 100+i, nil
				if i%2 == 0 {
					withPayload(fmt.Sprintf(`{"n": %d}`, i))(j)
					ofWorker(fmt.Sprint("handler ", i))(j)
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
		if diff := cmp.Diff(want, got, whenever, asStored); diff != "" {
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
			if diff := cmp.Diff(want, pages, whenever, asStored); diff != "" {
				t.Errorf("pages of %d differ (-want +got):\n%s", limit, diff)
			}
		}
	})
}

func TestRevisionsAreThoseOfALiveJobOfTheNamespace(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job, gone := f.created(t, -60), f.created(t, -60)
		for _, job := range []belfry.Job{job, gone} {
			f.edit(t, job, revise(t, withTimeout(5)))
		}
		f.edit(t, gone, remove(t))
		for doing, ask := range map[string]belfry.Job{
			"of a deleted job": gone, "of a foreign job": {Namespace: "theirs", ID: job.ID}, "of no job": {Namespace: job.Namespace, ID: newID()},
		} {
			_, err := f.Revisions(ctx, ask.Namespace, ask.ID, 0, 10)
			wantCode(t, doing, err, belfry.NotFound)
		}
		if got := f.revisions(t, job, 0, 10); len(got) != 1 || got[0].Number != 1 {
			t.Errorf("the revisions are %+v", got)
		}
	})
}
