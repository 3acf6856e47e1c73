package control_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/plan"
)

func TestBulkNeedsAFilter(t *testing.T) {
	_, _, err := newControl(t).Bulk(t.Context(), ns, belfry.Bulk{Action: belfry.ActionPause}, belfry.ID{}, none)
	oneError(t, err, "filter", `or "all"`)
}

func TestBulkActions(t *testing.T) {
	tagged := belfry.JobFilter{Tags: []string{"a"}}
	for _, tt := range []struct {
		action belfry.Action
		check  func(sc *controltest.Scenario, job belfry.Job) bool
	}{
		{belfry.ActionPause, func(sc *controltest.Scenario, job belfry.Job) bool { return sc.Job(job.ID).State == belfry.JobPaused }},
		{belfry.ActionResume, func(sc *controltest.Scenario, job belfry.Job) bool { return sc.Job(job.ID).State == belfry.JobActive }},
		{belfry.ActionTrigger, func(sc *controltest.Scenario, job belfry.Job) bool { return len(sc.Runs(job)) == 2 }},
		{belfry.ActionDelete, func(sc *controltest.Scenario, job belfry.Job) bool {
			_, err := sc.Control.Get(sc.Context(), ns, job.ID.String())
			return belfry.CodeOf(err) == belfry.NotFound
		}},
		{belfry.ActionCancel, func(sc *controltest.Scenario, job belfry.Job) bool {
			return controltest.PlanOf(sc.T, sc.Store, job.ID).NominalAt.IsZero()
		}},
		{belfry.ActionRetry, func(sc *controltest.Scenario, job belfry.Job) bool { return sc.Runs(job)[0].Status == belfry.RunReady }},
	} {
		controltest.Run(t, string(tt.action), func(sc *controltest.Scenario) {
			const many = 120 // more than a page
			var jobs []belfry.Job
			for i := range many + 1 {
				d := controltest.WorkerInput("send")
				d.Name, d.Tags = fmt.Sprint("job ", i), []string{"a"}
				if tt.action == belfry.ActionResume {
					d.Status = belfry.StatusPaused
				}
				if i == many {
					d.Tags = nil
				}
				jobs = append(jobs, controltest.Create(sc.T, sc.Control, d))
			}
			// A dead letter of each that is looked at.
			for _, i := range []int{0, many / 2, many} {
				sc.Trigger(jobs[i])
				sc.Fire()
				sc.FailForGood(1)
			}
			bulk := belfry.Bulk{Action: tt.action, Filter: tagged, DryRun: true}
			dry, next, err := sc.Control.Bulk(sc.Context(), ns, bulk, belfry.ID{}, key("k", "a"))
			if err != nil || dry.Matched != many || dry.Done != 0 || !next.IsZero() || tt.check(sc, jobs[0]) {
				sc.Errorf("a dry run: %+v, error %v", dry, err)
			}
			bulk.DryRun = false
			for range 2 { // Doing it again is harmless.
				done, _, err := sc.Control.Bulk(sc.Context(), ns, bulk, belfry.ID{}, key("k", "a"))
				if err != nil || done.Done != done.Matched || len(done.Failed) != 0 {
					sc.Errorf("got %+v, error %v", done, err)
				}
				if done.Matched != many && tt.action != belfry.ActionDelete {
					sc.Errorf("%d jobs matched", done.Matched)
				}
			}
			sc.Fire()
			if !tt.check(sc, jobs[0]) || !tt.check(sc, jobs[many/2]) || tt.check(sc, jobs[many]) {
				sc.Errorf("done to the first %v, in the middle %v, to one without the tag %v",
					tt.check(sc, jobs[0]), tt.check(sc, jobs[many/2]), tt.check(sc, jobs[many]))
			}
		})
	}
}

func TestBulkPages(t *testing.T) {
	controltest.Run(t, "each once", func(sc *controltest.Scenario) {
		for range 25 {
			sc.Create("@yearly")
		}
		bulk := belfry.Bulk{Action: belfry.ActionPause, Filter: belfry.JobFilter{Status: belfry.StatusScheduled}, Limit: 10}
		var after belfry.ID
		var sizes []int
		for {
			done, next, err := sc.Control.Bulk(sc.Context(), ns, bulk, after, none)
			sc.OK(err)
			if sizes = append(sizes, done.Done); next.IsZero() || len(sizes) > 5 {
				break
			}
			after = next
		}
		if !slices.Equal(sizes, []int{10, 10, 5}) {
			sc.Errorf("got %v", sizes)
		}
	})
}

func TestBulkFailureOfOneJob(t *testing.T) {
	controltest.Run(t, "is reported and does not stop the others", func(sc *controltest.Scenario) {
		done := func() belfry.BulkResult {
			out, _, err := sc.Control.Bulk(sc.Context(), ns, belfry.Bulk{Action: belfry.ActionTrigger, Filter: belfry.JobFilter{Status: belfry.StatusCompleted}}, belfry.ID{}, none)
			sc.OK(err)
			return out
		}
		d := controltest.WorkerInput("send")
		d.Name, d.Schedule = "once", "2000-01-03T09:00:00+01:00"
		ended := controltest.Create(sc.T, sc.Control, d)
		job := sc.Create("0 * * * *", func(s *belfry.Spec) { s.MaxRuns = 1 })
		sc.FireAt("09:00")
		for _, run := range sc.Claim(2) {
			sc.Finish(run, belfry.OutcomeSucceeded)
		}
		out := done()
		if out.Matched != 2 || out.Done != 1 || len(out.Failed) != 1 {
			sc.Fatalf("got %+v", out)
		}
		if f := out.Failed[0]; f.JobID != ended.ID || f.Name != "once" || f.Error != "the job has ended; create it again" {
			sc.Errorf("failed: %+v", f)
		}
		sc.Fire()
		if runs := sc.Runs(job); len(runs) != 2 {
			sc.Errorf("the other has %d runs", len(runs))
		}
	})
}

func TestBulkWithoutADatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &lossy{Store: controltest.Open(t)}
		c := control.New(s, plan.Defaults{})
		for range 3 {
			controltest.Create(t, c, controltest.Input("@yearly"))
		}
		s.losses, s.before = 1000, true
		out, _, err := c.Bulk(t.Context(), ns, belfry.Bulk{Action: belfry.ActionPause, All: true}, belfry.ID{}, none)
		codeOf(t, err, belfry.Unavailable)
		if out.Matched != 3 || out.Done != 0 || len(out.Failed) != 0 {
			t.Errorf("got %+v", out)
		}
	})
}

func TestBulkOfACallerThatLeft(t *testing.T) {
	s := controltest.Open(t)
	c := control.New(s, plan.Defaults{})
	controltest.Create(t, c, controltest.Input("@yearly"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	cancel()
	out, _, err := c.Bulk(ctx, ns, belfry.Bulk{Action: belfry.ActionPause, All: true}, belfry.ID{}, none)
	codeOf(t, err, belfry.Unavailable)
	if out.Done != 0 {
		t.Errorf("got %+v", out)
	}
}
