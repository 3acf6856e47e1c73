package control_test

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

func TestCancellingAJob(t *testing.T) {
	staged(t, "drops what is planned, wished for and alive", func(g *stage) {
		job := g.every("0 * * * *", func(s *belfry.Spec) { s.Overlap = "queue" })
		start := g.at("08:00")
		g.trigger(job)
		fire(g.T, g.s)
		run := g.claim(1)[0]
		g.fired("09:00")
		wish := g.trigger(job)
		after, err := g.c.CancelJob(g.Context(), ns, job.ID)
		g.ok(err)
		if after.NextRunAt != nil || after.State != belfry.JobActive || after.Status != belfry.StatusRunning {
			g.Errorf("next run at %v, state %s, status %s", after.NextRunAt, after.State, after.Status)
		}
		if p := planOf(g.T, g.s, job.ID); !p.NextAt.IsZero() || !p.NominalAt.IsZero() {
			g.Errorf("planned is %+v", p)
		}
		if wishes, err := g.s.Triggers(g.Context(), shards, 10); err != nil || len(wishes) != 0 {
			g.Errorf("%d wishes are left, error %v", len(wishes), err)
		}
		orders, err := g.c.Heartbeat(g.Context(), ns, belfry.Heartbeat{WorkerID: g.worker, Slots: 10, Lanes: []string{lane}})
		if err != nil || len(orders.Cancel) != 1 || orders.Cancel[0].RunID != run.ID {
			g.Errorf("the worker hears of %v, error %v", orders.Cancel, err)
		}
		g.finish(run, belfry.OutcomeCancelled)
		if got, want := history(g.T, g.c, job.ID, start), "58.5 cancelled r1, 60 cancelled r1, 60 cancelled r1, 120 cancelled r1"; got != want {
			g.Errorf("got  %s\nwant %s", got, want)
		}
		if run := g.run(wish); run.Status != belfry.RunCancelled {
			g.Errorf("the run that was wished for is %s", run.Status)
		}
		if job := g.job(job.ID); job.Status != belfry.StatusCancelled {
			g.Errorf("it is %s", job.Status)
		}
	})
	staged(t, "twice is no other than once", func(g *stage) {
		job := g.every("0 * * * *")
		g.cancelJob(job)
		time.Sleep(time.Minute)
		g.cancelJob(job)
		if runs := g.runs(job); len(runs) != 1 || g.job(job.ID).Status != belfry.StatusCancelled {
			g.Errorf("there are %d records of a job that is %s", len(runs), g.job(job.ID).Status)
		}
	})
	staged(t, "ends a pause, and an edit of the schedule ends it", func(g *stage) {
		job := g.every("0 * * * *")
		g.pause(job)
		g.cancelJob(job)
		if job := g.job(job.ID); job.Status != belfry.StatusCancelled || job.NextRunAt != nil {
			g.Errorf("it is %s, next run at %v", job.Status, job.NextRunAt)
		}
		g.resume(job, true)
		if job := g.job(job.ID); job.Status != belfry.StatusCancelled {
			g.Errorf("after it was resumed it is %s", job.Status)
		}
		after := edit(g.T, g.c, job.ID, func(d *control.Draft) { d.Spec.Schedule = "30 * * * *" })
		if after.Status != belfry.StatusScheduled || !after.NextRunAt.Equal(g.at("09:30")) {
			g.Errorf("after an edit it is %s, next run at %v", after.Status, after.NextRunAt)
		}
	})
	staged(t, "that is not there", func(g *stage) {
		_, err := g.c.CancelJob(g.Context(), ns, belfry.NewID(time.Now()))
		codeOf(g.T, err, belfry.NotFound)
	})
}

func TestCancellingARun(t *testing.T) {
	staged(t, "at once if no worker has it, and later otherwise", func(g *stage) {
		job := g.every("*/5 * * * *", func(s *belfry.Spec) { s.Overlap = "parallel" })
		g.fired("09:00")
		held := g.claim(1)[0]
		g.fired("09:05")
		ready := g.runs(job)[0]

		run, err := g.c.CancelRun(g.Context(), ns, ready.ID)
		if err != nil || run.Status != belfry.RunCancelled {
			g.Errorf("the ready run is %s, error %v", run.Status, err)
		}
		run, err = g.c.CancelRun(g.Context(), ns, ready.ID)
		if err != nil || run.Status != belfry.RunCancelled {
			g.Errorf("the second time it is %s, error %v", run.Status, err)
		}
		run, err = g.c.CancelRun(g.Context(), ns, held.ID)
		if err != nil || run.Status != belfry.RunRunning {
			g.Errorf("the running one is %s, error %v", run.Status, err)
		}
		g.finish(held, belfry.OutcomeFailed)
		if run := g.run(held.ID); run.Status != belfry.RunCancelled || len(run.Attempts) != 1 {
			g.Errorf("it became %s with %d attempts", run.Status, len(run.Attempts))
		}
	})
	staged(t, "that is over", func(g *stage) {
		g.every("*/5 * * * *")
		g.fired("09:00")
		run := g.claim(1)[0]
		g.finish(run, belfry.OutcomeSucceeded)
		_, err := g.c.CancelRun(g.Context(), ns, run.ID)
		codeOf(g.T, err, belfry.Conflict)
		_, err = g.c.CancelRun(g.Context(), "elsewhere", run.ID)
		codeOf(g.T, err, belfry.NotFound)
	})
}

func TestDeletingWithRunsInFlight(t *testing.T) {
	for _, tt := range []struct {
		name    string
		options control.DeleteOptions
		outcome belfry.Outcome
		want    belfry.RunStatus // of the run that is running then
		waiting belfry.RunStatus // and of the one that waits for it
		forgets bool
	}{
		{"that may finish", control.DeleteOptions{}, belfry.OutcomeSucceeded, belfry.RunSucceeded, belfry.RunReady, false},
		{"that are cancelled", control.DeleteOptions{CancelRuns: true}, belfry.OutcomeCancelled, belfry.RunCancelled, belfry.RunCancelled, false},
		{"that are cancelled and forgotten", control.DeleteOptions{CancelRuns: true, ForgetHistory: true}, belfry.OutcomeCancelled, "", "", true},
	} {
		staged(t, tt.name, func(g *stage) {
			job := g.every("*/5 * * * *", func(s *belfry.Spec) { s.Overlap = "queue" })
			g.fired("09:00")
			held := g.claim(1)[0]
			g.fired("09:05")
			waiting := g.runs(job)[0]
			g.ok(g.c.Delete(g.Context(), ns, job.ID, "", tt.options))
			_, err := g.c.Get(g.Context(), ns, job.ID)
			codeOf(g.T, err, belfry.NotFound)
			g.finish(held, tt.outcome)
			if tt.forgets {
				_, err := g.s.Prune(g.Context(), 90*24*time.Hour)
				g.ok(err)
				for _, id := range []belfry.ID{held.ID, waiting.ID} {
					_, err = g.c.Run(g.Context(), ns, id)
					codeOf(g.T, err, belfry.NotFound)
				}
				return
			}
			if got, next := g.run(held.ID).Status, g.run(waiting.ID).Status; got != tt.want || next != tt.waiting {
				g.Errorf("they became %s and %s, want %s and %s", got, next, tt.want, tt.waiting)
			}
		})
	}
}

func TestAOneOffThatHasEnded(t *testing.T) {
	for _, forget := range []bool{false, true} {
		staged(t, "can be deleted", func(g *stage) {
			d := forWorker("send")
			d.Spec.Schedule = "2000-01-03T09:00:00+01:00"
			job := create(g.T, g.c, d)
			g.fired("09:00")
			run := g.claim(1)[0]
			g.finish(run, belfry.OutcomeSucceeded)
			if err := g.c.Delete(g.Context(), ns, job.ID, "", control.DeleteOptions{ForgetHistory: forget}); err != nil {
				g.Fatal(err)
			}
			_, err := g.c.Get(g.Context(), ns, job.ID)
			codeOf(g.T, err, belfry.NotFound)
			codeOf(g.T, g.c.Delete(g.Context(), ns, job.ID, "", control.DeleteOptions{}), belfry.NotFound)
			if _, err := g.s.Prune(g.Context(), time.Hour); err != nil {
				g.Fatal(err)
			}
			if _, err := g.c.Run(g.Context(), ns, run.ID); (err != nil) != forget {
				g.Errorf("with its history %v: looking for its run gives %v", forget, err)
			}
		})
	}
	staged(t, "can be looked at and not changed", func(g *stage) {
		d := forWorker("send")
		d.Name, d.Spec.Schedule = "once", "2000-01-03T09:00:00+01:00"
		job := create(g.T, g.c, d)
		g.fired("09:00")
		g.finish(g.claim(1)[0], belfry.OutcomeSucceeded)

		if job := g.job(job.ID); job.State != belfry.JobEnded || job.Status != belfry.StatusCompleted {
			g.Fatalf("it is %s and %s", job.State, job.Status)
		}
		if runs := g.runs(job); len(runs) != 1 || runs[0].Status != belfry.RunSucceeded {
			g.Errorf("its runs are %+v", runs)
		}
		g.why(job, "09:00", belfry.DecisionRan, "", "2000-01-03 08:00 UTC ran: it succeeded at 08:00.")
		g.why(job, "09:30", belfry.DecisionNone, "", "2000-01-03 08:30 UTC is not the instant of the job, which runs once, at 08:00.")
		for name, err := range map[string]error{
			"edit":     second(g.c.Edit(g.Context(), ns, job.ID, "", func(d *control.Draft) []belfry.FieldError { d.Spec.MaxRetries = 1; return nil })),
			"pause":    second(g.c.Pause(g.Context(), ns, job.ID)),
			"resume":   second(g.c.Resume(g.Context(), ns, job.ID, false)),
			"trigger":  second(g.c.Trigger(g.Context(), ns, job.ID, nil, none)),
			"cancel":   second(g.c.CancelJob(g.Context(), ns, job.ID)),
			"backfill": second(g.c.Backfill(g.Context(), ns, job.ID, control.Backfill{From: g.at("09:00")}, none)),
		} {
			if belfry.CodeOf(err) != belfry.Conflict {
				g.Errorf("%s: %v", name, err)
			}
		}
	})
	staged(t, "leaves its name to another", func(g *stage) {
		d := forWorker("send")
		d.Name, d.Spec.Schedule = "once", "2000-01-03T09:00:00+01:00"
		first := create(g.T, g.c, d)
		g.fired("09:00")
		g.finish(g.claim(1)[0], belfry.OutcomeSucceeded)
		d.Spec.Schedule = "2000-01-03T10:00:00+01:00"
		_, _, err := g.c.Put(g.Context(), ns, "once", control.Version(first), d)
		codeOf(g.T, err, belfry.Changed)
		second, made, err := g.c.Put(g.Context(), ns, "once", "", d)
		if err != nil || !made || second.ID == first.ID {
			g.Fatalf("made %v, error %v", made, err)
		}
		if id, err := g.c.Find(g.Context(), ns, "once"); err != nil || id != second.ID {
			g.Errorf("the name finds %s, error %v", id, err)
		}
		again, made, err := g.c.Put(g.Context(), ns, "once", "", d)
		if err != nil || made || again.ID != second.ID {
			g.Errorf("put again: made %v, error %v", made, err)
		}
	})
}

func second[T any](_ T, err error) error { return err }
