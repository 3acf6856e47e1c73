package control_test

import (
	"context"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// meanwhile settles a run while somebody asks what it waits for.
type meanwhile struct {
	store.Store
	settle func()
}

func (m *meanwhile) Wait(ctx context.Context, namespace string, run belfry.ID) (store.Wait, error) {
	if m.settle != nil {
		m.settle()
		m.settle = nil
	}
	return m.Store.Wait(ctx, namespace, run)
}

func TestWhyOfARunThatIsSettledMeanwhile(t *testing.T) {
	staged(t, "tells of its end", func(g *stage) {
		job := g.every("*/5 * * * *")
		g.fired("09:00")
		run := g.claim(1)[0]
		g.c = control.New(&meanwhile{g.s, func() { g.finish(run, belfry.OutcomeSucceeded) }}, plan.Defaults{})
		why := g.why(job, "09:00", belfry.DecisionRan, "", "2000-01-03 09:00 +01:00 ran: it succeeded at 09:00.")
		if why.Waits != nil {
			g.Errorf("it waits for %+v", why.Waits)
		}
	})
}

func TestWhyOfARunThatIsTakenMeanwhile(t *testing.T) {
	staged(t, "tells that it is running", func(g *stage) {
		job := g.every("*/5 * * * *")
		g.fired("09:00")
		g.c = control.New(&meanwhile{g.s, func() { g.claim(1) }}, plan.Defaults{})
		g.why(job, "09:00", belfry.DecisionRunning, "", "2000-01-03 09:00 +01:00 is running since 09:00 (attempt 1).")
	})
}

// garbled has jobs whose schedule cannot be read.
type garbled struct{ store.Store }

func (s garbled) Job(ctx context.Context, namespace string, id belfry.ID) (belfry.Job, error) {
	job, err := s.Store.Job(ctx, namespace, id)
	job.Schedule, job.Resolved = "at dawn", ""
	return job, err
}

func TestWhyOfAScheduleThatCannotBeRead(t *testing.T) {
	staged(t, "is told as far as it is known", func(g *stage) {
		job := g.every("*/5 * * * *")
		g.fired("09:00", "09:05")
		g.c = control.New(garbled{g.s}, plan.Defaults{})
		g.why(job, "09:05", belfry.DecisionSkipped, belfry.ReasonOverlap,
			"2000-01-03 08:05 UTC was skipped: the run of 08:00 was not over yet (overlap: skip).")
		g.why(job, "09:10", belfry.DecisionUnknown, "",
			`It cannot be told what the job does at 2000-01-03 08:10 UTC: this server cannot read its schedule "at dawn".`)
	})
}

func TestALargeCatchUpIsToldOf(t *testing.T) {
	staged(t, "once", func(g *stage) {
		job := g.every("* * * * *", func(s *belfry.Spec) { s.MissedWindow = "run_all" })
		g.fired("09:20:30")
		events, err := g.c.Events(g.Context(), ns, control.Page{Limit: 10})
		if err != nil || len(events) != 1 || events[0].Kind != belfry.EventLargeCatchUp || events[0].JobID != job.ID || events[0].Count != 22 {
			g.Errorf("got %+v, error %v", events, err)
		}
		if events, err := g.c.Events(g.Context(), "elsewhere", control.Page{Limit: 10}); err != nil || len(events) != 0 {
			g.Errorf("elsewhere: %+v, error %v", events, err)
		}
	})
}
