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
	"github.com/belfry-sh/belfry/internal/plan"
)

func TestWhatABulkOrderIsRefusedFor(t *testing.T) {
	c := control.New(open(t), plan.Defaults{})
	for _, tt := range []struct {
		name        string
		of          control.BulkOrder
		field, says string
	}{
		{"no action", control.BulkOrder{All: true}, "action", `must be "pause", "resume", "trigger", "delete", "cancel" or "retry"`},
		{"an action with a typing error", control.BulkOrder{Action: "resum", All: true}, "action", `did you mean "resume"?`},
		{"nothing in common", control.BulkOrder{Action: "Pause"}, "filter", "all of them are meant"},
		{"too many", control.BulkOrder{Action: "pause", All: true, Limit: 10_001}, "limit", "1 to 10000"},
		{"fewer than none", control.BulkOrder{Action: "pause", All: true, Limit: -1}, "limit", "1 to 10000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := c.Bulk(t.Context(), ns, tt.of)
			oneFault(t, err, tt.field, tt.says)
		})
	}
}

func TestWhatIsDoneToManyJobs(t *testing.T) {
	tagged := control.JobFilter{Tags: []string{"a"}}
	for _, tt := range []struct {
		action belfry.Action
		check  func(g *stage, job belfry.Job) bool
	}{
		{belfry.ActionPause, func(g *stage, job belfry.Job) bool { return g.job(job.ID).State == belfry.JobPaused }},
		{belfry.ActionResume, func(g *stage, job belfry.Job) bool { return g.job(job.ID).State == belfry.JobActive }},
		{belfry.ActionTrigger, func(g *stage, job belfry.Job) bool { return len(g.runs(job)) == 2 }},
		{belfry.ActionDelete, func(g *stage, job belfry.Job) bool {
			_, err := g.c.Get(g.Context(), ns, job.ID)
			return belfry.CodeOf(err) == belfry.NotFound
		}},
		{belfry.ActionCancel, func(g *stage, job belfry.Job) bool { return planOf(g.T, g.s, job.ID).NominalAt.IsZero() }},
		{belfry.ActionRetry, func(g *stage, job belfry.Job) bool { return g.runs(job)[0].Status == belfry.RunReady }},
	} {
		staged(t, string(tt.action), func(g *stage) {
			const many = 120 // more than a page
			var jobs []belfry.Job
			for i := range many + 1 {
				d := forWorker("send")
				d.Name, d.Tags, d.Paused = fmt.Sprint("job ", i), []string{"a"}, tt.action == belfry.ActionResume
				if i == many {
					d.Tags = nil
				}
				jobs = append(jobs, create(g.T, g.c, d))
			}
			// A dead letter of each that is looked at.
			for _, i := range []int{0, many / 2, many} {
				g.trigger(jobs[i])
				fire(g.T, g.s)
				g.die(1)
			}
			order := control.BulkOrder{Action: tt.action, Filter: tagged, DryRun: true, Key: key("k", "a")}
			dry, err := g.c.Bulk(g.Context(), ns, order)
			if err != nil || dry.Matched != many || dry.Done != 0 || !dry.Next.IsZero() || tt.check(g, jobs[0]) {
				g.Errorf("a dry run: %+v, error %v", dry, err)
			}
			order.DryRun = false
			for range 2 { // Doing it again is harmless.
				done, err := g.c.Bulk(g.Context(), ns, order)
				if err != nil || done.Done != done.Matched || len(done.Failed) != 0 {
					g.Errorf("got %+v, error %v", done, err)
				}
				if done.Matched != many && tt.action != belfry.ActionDelete {
					g.Errorf("%d jobs matched", done.Matched)
				}
			}
			fire(g.T, g.s)
			if !tt.check(g, jobs[0]) || !tt.check(g, jobs[many/2]) || tt.check(g, jobs[many]) {
				g.Errorf("done to the first %v, in the middle %v, to one without the tag %v",
					tt.check(g, jobs[0]), tt.check(g, jobs[many/2]), tt.check(g, jobs[many]))
			}
		})
	}
}

func TestManyJobsPageByPage(t *testing.T) {
	staged(t, "each once", func(g *stage) {
		for range 25 {
			g.every("@yearly")
		}
		order := control.BulkOrder{Action: belfry.ActionPause, Filter: control.JobFilter{Status: belfry.StatusScheduled}, Limit: 10}
		var sizes []int
		for {
			done, err := g.c.Bulk(g.Context(), ns, order)
			g.ok(err)
			if sizes = append(sizes, done.Done); done.Next.IsZero() || len(sizes) > 5 {
				break
			}
			order.After = done.Next
		}
		if !slices.Equal(sizes, []int{10, 10, 5}) {
			g.Errorf("got %v", sizes)
		}
	})
}

func TestOneJobThatFailsDoesNotStopTheOthers(t *testing.T) {
	staged(t, "and is told of", func(g *stage) {
		done := func() control.Bulked {
			out, err := g.c.Bulk(g.Context(), ns, control.BulkOrder{Action: belfry.ActionTrigger, Filter: control.JobFilter{Status: belfry.StatusCompleted}})
			g.ok(err)
			return out
		}
		d := forWorker("send")
		d.Name, d.Spec.Schedule = "once", "2000-01-03T09:00:00+01:00"
		ended := create(g.T, g.c, d)
		job := g.every("0 * * * *", func(s *belfry.Spec) { s.MaxRuns = 1 })
		g.fired("09:00")
		for _, run := range g.claim(2) {
			g.finish(run, belfry.OutcomeSucceeded)
		}
		out := done()
		if out.Matched != 2 || out.Done != 1 || len(out.Failed) != 1 {
			g.Fatalf("got %+v", out)
		}
		if f := out.Failed[0]; f.Job != ended.ID || f.Name != "once" || belfry.CodeOf(f.Err) != belfry.Conflict {
			g.Errorf("failed: %+v", f)
		}
		fire(g.T, g.s)
		if runs := g.runs(job); len(runs) != 2 {
			g.Errorf("the other has %d runs", len(runs))
		}
	})
}

func TestManyJobsOfADeadDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &lossy{Store: open(t)}
		c := control.New(s, plan.Defaults{})
		for range 3 {
			create(t, c, draft("@yearly"))
		}
		s.losses, s.before = 1000, true
		out, err := c.Bulk(t.Context(), ns, control.BulkOrder{Action: belfry.ActionPause, All: true})
		codeOf(t, err, belfry.Unavailable)
		if out.Matched != 3 || out.Done != 0 || len(out.Failed) != 0 {
			t.Errorf("got %+v", out)
		}
	})
}

func TestManyJobsOfACallerWhoLeft(t *testing.T) {
	s := open(t)
	c := control.New(s, plan.Defaults{})
	create(t, c, draft("@yearly"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	cancel()
	out, err := c.Bulk(ctx, ns, control.BulkOrder{Action: belfry.ActionPause, All: true})
	codeOf(t, err, belfry.Unavailable)
	if out.Done != 0 {
		t.Errorf("got %+v", out)
	}
}
