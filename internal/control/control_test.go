package control_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestCreateReturnsTheJobAsItIsStored(t *testing.T) {
	c := newControl(t)
	d := controltest.Input(" CRON_TZ=Europe/Paris 30 9 * * MON-FRI ")
	d.Name, d.Type, d.Overlap = "  nightly report ", "", "PARALLEL"
	made := controltest.Create(t, c, d)
	found, err := c.Get(t.Context(), ns, made.ID.String())
	if err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(made)
	b, _ := json.Marshal(found)
	if string(a) != string(b) {
		t.Errorf("made  %s\nfound %s", a, b)
	}
	if made.Name != "nightly report" || made.Timezone != "Europe/Paris" || made.Type != "http" || made.Overlap != belfry.OverlapParallel {
		t.Errorf("the job was not brought into its stored form: %s", a)
	}
	if made.Status != belfry.StatusScheduled || made.NextRunAt == nil || !made.NextRunAt.After(made.CreatedAt) {
		t.Errorf("status %s, next run at %v", made.Status, made.NextRunAt)
	}
	if string(made.Payload) != `{"url":"https://example.com/hook"}` {
		t.Errorf("payload %s", made.Payload)
	}
}

func TestNextRunInATimezone(t *testing.T) {
	c := newControl(t)
	d := controltest.Input("0 9 * * *")
	d.Timezone = "Asia/Tokyo"
	if got := controltest.Create(t, c, d).NextRunAt.Format("15:04Z07:00"); got != "00:00Z" {
		t.Errorf("nine in Tokyo is %s", got)
	}
	if got := controltest.Create(t, c, controltest.Input("0 9 * * *")).Timezone; got != "UTC" {
		t.Errorf("a job without a time zone has %q", got)
	}
}

func TestOneOffMayBeALittleLate(t *testing.T) {
	s := controltest.Open(t)
	c := control.New(s, plan.Defaults{})
	at := s.Now().Add(-29 * time.Minute).UTC().Truncate(time.Microsecond)
	job := controltest.Create(t, c, controltest.Input(at.Format(time.RFC3339Nano)))
	if !job.NextRunAt.Equal(job.CreatedAt) {
		t.Errorf("it is planned at %v and not at once", job.NextRunAt)
	}
	due := controltest.Due(t, s)
	if len(due) != 1 || !due[0].Plan.NominalAt.Equal(at) {
		t.Errorf("due is %+v", due)
	}
	at = s.Now().Add(-31 * time.Minute).UTC().Truncate(time.Second)
	_, err := c.Create(t.Context(), ns, controltest.Input(at.Format(time.RFC3339)), none)
	codeOf(t, err, belfry.Invalid)
	for _, want := range []string{"schedule", at.Format(time.RFC3339), s.Now().UTC().Format("2006-01-02T15:04"), "30 minutes"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

func TestNameThatIsTakenIsAConflict(t *testing.T) {
	c := newControl(t)
	d := controltest.Input("@daily")
	d.Name = "report"
	job := controltest.Create(t, c, d)
	_, err := c.Create(t.Context(), ns, d, none)
	codeOf(t, err, belfry.Conflict)
	if !strings.Contains(err.Error(), "report") {
		t.Errorf("%q does not name the job", err)
	}
	if _, err := c.Create(t.Context(), "elsewhere", d, none); err != nil {
		t.Errorf("the name is taken in another namespace: %v", err)
	}
	if err := c.Delete(t.Context(), ns, job.ID.String(), "", control.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controltest.Create(t, c, d)
}

func TestNamespacesAreSeparate(t *testing.T) {
	c := newControl(t)
	job := controltest.Create(t, c, controltest.Input("@daily"))
	ctx := t.Context()
	_, err := c.Get(ctx, "elsewhere", job.ID.String())
	codeOf(t, err, belfry.NotFound)
	_, err = c.Pause(ctx, "elsewhere", job.ID.String())
	codeOf(t, err, belfry.NotFound)
	_, err = c.Trigger(ctx, "elsewhere", job.ID.String(), belfry.Trigger{}, none)
	codeOf(t, err, belfry.NotFound)
	_, _, err = c.JobRuns(ctx, "elsewhere", job.ID.String(), belfry.JobRunFilter{}, store.Page{Limit: 1})
	codeOf(t, err, belfry.NotFound)
	codeOf(t, c.Delete(ctx, "elsewhere", job.ID.String(), "", control.DeleteOptions{}), belfry.NotFound)
	if jobs, _, err := c.List(ctx, "elsewhere", belfry.JobFilter{}, store.Page{Limit: 10}); err != nil || len(jobs) != 0 {
		t.Errorf("listed %d jobs, error %v", len(jobs), err)
	}
}

func TestPauseAndResumeCanBeRepeated(t *testing.T) {
	c := newControl(t)
	job := controltest.Create(t, c, controltest.Input("@yearly"))
	for range 2 {
		paused, err := c.Pause(t.Context(), ns, job.ID.String())
		if err != nil || paused.Status != belfry.StatusPaused || paused.NextRunAt != nil {
			t.Fatalf("status %s, next run at %v, error %v", paused.Status, paused.NextRunAt, err)
		}
	}
	for range 2 {
		resumed, err := c.Resume(t.Context(), ns, job.ID.String(), belfry.Resume{})
		if err != nil || resumed.Status != belfry.StatusScheduled || !resumed.NextRunAt.Equal(*job.NextRunAt) {
			t.Fatalf("status %s, next run at %v, error %v", resumed.Status, resumed.NextRunAt, err)
		}
	}
}

func TestPauseRunsWhatIsDueAndResumeSkipsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControl(t)
		job := controltest.Create(t, c, controltest.Input("* * * * *"))
		time.Sleep(time.Until(*job.NextRunAt) + 90*time.Second)
		if _, err := c.Pause(t.Context(), ns, job.ID.String()); err != nil {
			t.Fatal(err)
		}
		runs, _, err := c.JobRuns(t.Context(), ns, job.ID.String(), belfry.JobRunFilter{}, store.Page{Limit: 10})
		// Two were due and were not fired: the later one runs, the other was missed.
		if err != nil || len(runs) != 2 || runs[0].Status != belfry.RunReady || !runs[0].ScheduledAt.Equal(job.NextRunAt.Add(time.Minute)) || runs[1].Reason != belfry.ReasonMissed {
			t.Fatalf("got runs %+v, error %v", runs, err)
		}
		if _, err := c.Run(t.Context(), ns, runs[0].ID); err != nil {
			t.Errorf("look up the run: %v", err)
		}
		time.Sleep(time.Hour)
		resumed, err := c.Resume(t.Context(), ns, job.ID.String(), belfry.Resume{})
		if err != nil || resumed.NextRunAt.Sub(*job.NextRunAt) != 62*time.Minute {
			t.Fatalf("the next run is at %v, error %v", resumed.NextRunAt, err)
		}
		runs, _, err = c.JobRuns(t.Context(), ns, job.ID.String(), belfry.JobRunFilter{}, store.Page{Limit: 10})
		if err != nil || len(runs) != 3 || runs[0].Reason != belfry.ReasonPaused || runs[0].SkippedCount != 60 {
			t.Fatalf("got runs %+v, error %v", runs, err)
		}
	})
}

func TestDeletedJobIsNotFound(t *testing.T) {
	c := newControl(t)
	job := controltest.Create(t, c, controltest.Input("@daily"))
	if err := c.Delete(t.Context(), ns, job.ID.String(), "", control.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := c.Get(t.Context(), ns, job.ID.String())
	codeOf(t, err, belfry.NotFound)
	codeOf(t, c.Delete(t.Context(), ns, job.ID.String(), "", control.DeleteOptions{}), belfry.NotFound)
	_, _, err = c.JobRuns(t.Context(), ns, job.ID.String(), belfry.JobRunFilter{}, store.Page{Limit: 1})
	codeOf(t, err, belfry.NotFound)
}

func TestDeleteOfAScheduleThatCannotBeParsed(t *testing.T) {
	s := controltest.Open(t)
	c := control.New(s, plan.Defaults{})
	now := s.Now().UTC().Truncate(time.Microsecond)
	id := belfry.NewID(now)
	spec := controltest.Input("every blue moon").Spec
	created := store.NewJob{
		Job:  belfry.Job{ID: id, Namespace: ns, Revision: 1, State: belfry.JobActive, Manifest: belfry.Manifest{Spec: spec}, CreatedAt: now, UpdatedAt: now},
		Plan: plan.Plan{JobID: id, Shard: belfry.ShardOf(id, s.Shards()), Version: 1, NominalAt: now, NextAt: now},
	}
	err := s.CreateJobs(t.Context(), func(yield func(store.NewJob, error) bool) { yield(created, nil) }, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Pause(t.Context(), ns, id.String())
	codeOf(t, err, belfry.Conflict)
	if err := c.Delete(t.Context(), ns, id.String(), "", control.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	runs, _, err := s.JobRuns(t.Context(), ns, id, belfry.JobRunFilter{}, store.Page{Limit: 10})
	if err != nil || len(runs) != 1 || runs[0].Reason != belfry.ReasonDeleted || !runs[0].ScheduledAt.Equal(now) {
		t.Errorf("what was due became %+v, error %v", runs, err)
	}
}

func TestTriggerBecomesItsRun(t *testing.T) {
	s := controltest.Open(t)
	c := control.New(s, plan.Defaults{})
	job := controltest.Create(t, c, controltest.Input("@yearly"))
	result, err := c.Trigger(t.Context(), ns, job.ID.String(), belfry.Trigger{}, none)
	if err != nil {
		t.Fatal(err)
	}
	pending, err := s.PendingTriggers(t.Context(), []int{0, 1, 2, 3}, nil, 10)
	if err != nil || len(pending) != 1 {
		t.Fatalf("got %d triggers, error %v", len(pending), err)
	}
	policy, err := plan.Compile(job.Spec)
	if err != nil {
		t.Fatal(err)
	}
	subject := plan.Subject{Namespace: ns, Revision: job.Revision, Policy: policy}
	step := plan.Fire(subject, pending[0].Due.Plan, []plan.Trigger{pending[0].Trigger})
	if _, err := s.Fire(t.Context(), belfry.NewID(s.Now()), []plan.Step{step}, store.FreeSlots{}); err != nil {
		t.Fatal(err)
	}
	run, err := c.Run(t.Context(), ns, result.RunID)
	if err != nil || run.JobID != job.ID || run.Kind != belfry.KindManual {
		t.Errorf("got %+v, error %v", run, err)
	}
}

func TestListPages(t *testing.T) {
	c := newControl(t)
	var want []belfry.ID
	for range 7 {
		want = append(want, controltest.Create(t, c, controltest.Input("@daily")).ID)
	}
	var got []belfry.ID
	page := store.Page{Limit: 3}
	for {
		jobs, next, err := c.List(t.Context(), ns, belfry.JobFilter{}, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, job := range jobs {
			got = append(got, job.ID)
		}
		if next == (store.Position{}) {
			break
		}
		page.After = next
	}
	slices.SortFunc(want, belfry.ID.Compare)
	slices.SortFunc(got, belfry.ID.Compare)
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
