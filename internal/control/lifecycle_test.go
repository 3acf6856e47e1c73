package control_test

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/validate"
)

func TestCancelJob(t *testing.T) {
	controltest.Run(t, "drops what is planned, triggered and alive", func(sc *controltest.Scenario) {
		job := sc.Create("0 * * * *", func(s *belfry.Spec) { s.Overlap = "queue" })
		start := sc.At("08:00")
		sc.Trigger(job)
		sc.Fire()
		run := sc.Claim(1)[0]
		sc.FireAt("09:00")
		triggered := sc.Trigger(job)
		after, err := sc.Control.CancelJob(sc.Context(), ns, job.ID.String())
		sc.OK(err)
		if after.NextRunAt != nil || after.State != belfry.JobActive || after.Status != belfry.StatusRunning {
			sc.Errorf("next run at %v, state %s, status %s", after.NextRunAt, after.State, after.Status)
		}
		if p := controltest.PlanOf(sc.T, sc.Store, job.ID); !p.NextAt.IsZero() || !p.NominalAt.IsZero() {
			sc.Errorf("planned is %+v", p)
		}
		if pending, err := sc.Store.PendingTriggers(sc.Context(), controltest.Shards, nil, 10); err != nil || len(pending) != 0 {
			sc.Errorf("%d triggers are left, error %v", len(pending), err)
		}
		orders, err := sc.Control.Heartbeat(sc.Context(), ns, belfry.Heartbeat{WorkerID: sc.Worker, Slots: 10, Handlers: []string{controltest.Handler}})
		if err != nil || len(orders.Cancel) != 1 || orders.Cancel[0].RunID != run.ID {
			sc.Errorf("the reply has %v, error %v", orders.Cancel, err)
		}
		sc.Finish(run, belfry.OutcomeCancelled)
		if got, want := controltest.History(sc.T, sc.Control, job.ID, start), "58.5 cancelled r1, 60 cancelled r1, 60 cancelled r1, 120 cancelled r1"; got != want {
			sc.Errorf("got  %s\nwant %s", got, want)
		}
		if run := sc.Run(triggered); run.Status != belfry.RunCancelled {
			sc.Errorf("the triggered run is %s", run.Status)
		}
		if job := sc.Job(job.ID); job.Status != belfry.StatusCancelled {
			sc.Errorf("it is %s", job.Status)
		}
	})
	controltest.Run(t, "twice is no other than once", func(sc *controltest.Scenario) {
		job := sc.Create("0 * * * *")
		sc.CancelJob(job)
		time.Sleep(time.Minute)
		sc.CancelJob(job)
		if runs := sc.Runs(job); len(runs) != 1 || sc.Job(job.ID).Status != belfry.StatusCancelled {
			sc.Errorf("there are %d records of a job that is %s", len(runs), sc.Job(job.ID).Status)
		}
	})
	controltest.Run(t, "ends a pause, and an edit of the schedule ends it", func(sc *controltest.Scenario) {
		job := sc.Create("0 * * * *")
		sc.Pause(job)
		sc.CancelJob(job)
		if job := sc.Job(job.ID); job.Status != belfry.StatusCancelled || job.NextRunAt != nil {
			sc.Errorf("it is %s, next run at %v", job.Status, job.NextRunAt)
		}
		after := sc.Edit(job, func(m *belfry.Manifest) { m.Schedule = "30 * * * *" })
		if after.Status != belfry.StatusScheduled || !after.NextRunAt.Equal(sc.At("09:30")) {
			sc.Errorf("after an edit it is %s, next run at %v", after.Status, after.NextRunAt)
		}
	})
	controltest.Run(t, "that is not there", func(sc *controltest.Scenario) {
		_, err := sc.Control.CancelJob(sc.Context(), ns, belfry.NewID(time.Now()).String())
		codeOf(sc.T, err, belfry.NotFound)
	})
}

func TestCancelRun(t *testing.T) {
	controltest.Run(t, "at once if no worker has it, and later otherwise", func(sc *controltest.Scenario) {
		job := sc.Create("*/5 * * * *", func(s *belfry.Spec) { s.Overlap = "parallel" })
		sc.FireAt("09:00")
		held := sc.Claim(1)[0]
		sc.FireAt("09:05")
		ready := sc.Runs(job)[0]

		run, err := sc.Control.CancelRun(sc.Context(), ns, ready.ID)
		if err != nil || run.Status != belfry.RunCancelled {
			sc.Errorf("the ready run is %s, error %v", run.Status, err)
		}
		run, err = sc.Control.CancelRun(sc.Context(), ns, ready.ID)
		if err != nil || run.Status != belfry.RunCancelled {
			sc.Errorf("the second time it is %s, error %v", run.Status, err)
		}
		run, err = sc.Control.CancelRun(sc.Context(), ns, held.ID)
		if err != nil || run.Status != belfry.RunRunning {
			sc.Errorf("the running one is %s, error %v", run.Status, err)
		}
		sc.Finish(held, belfry.OutcomeFailed)
		if run := sc.Run(held.ID); run.Status != belfry.RunCancelled || len(run.Attempts) != 1 {
			sc.Errorf("it became %s with %d attempts", run.Status, len(run.Attempts))
		}
	})
	controltest.Run(t, "that is over", func(sc *controltest.Scenario) {
		sc.Create("*/5 * * * *")
		sc.FireAt("09:00")
		run := sc.Claim(1)[0]
		sc.Finish(run, belfry.OutcomeSucceeded)
		_, err := sc.Control.CancelRun(sc.Context(), ns, run.ID)
		codeOf(sc.T, err, belfry.Conflict)
		_, err = sc.Control.CancelRun(sc.Context(), "elsewhere", run.ID)
		codeOf(sc.T, err, belfry.NotFound)
	})
}

func TestDeleteWithLiveRuns(t *testing.T) {
	for _, tt := range []struct {
		name    string
		options control.DeleteOptions
		outcome belfry.Outcome
		want    belfry.RunStatus // of the run that is running then
		waiting belfry.RunStatus // and of the one that waits for it
		purged  bool
	}{
		{"that may finish", control.DeleteOptions{}, belfry.OutcomeSucceeded, belfry.RunSucceeded, belfry.RunReady, false},
		{"that are cancelled", control.DeleteOptions{CancelRuns: true}, belfry.OutcomeCancelled, belfry.RunCancelled, belfry.RunCancelled, false},
		{"that are cancelled and purged", control.DeleteOptions{CancelRuns: true, PurgeHistory: true}, belfry.OutcomeCancelled, "", "", true},
	} {
		controltest.Run(t, tt.name, func(sc *controltest.Scenario) {
			job := sc.Create("*/5 * * * *", func(s *belfry.Spec) { s.Overlap = "queue" })
			sc.FireAt("09:00")
			held := sc.Claim(1)[0]
			sc.FireAt("09:05")
			waiting := sc.Runs(job)[0]
			sc.OK(sc.Control.Delete(sc.Context(), ns, job.ID.String(), "", tt.options))
			_, err := sc.Control.Get(sc.Context(), ns, job.ID.String())
			codeOf(sc.T, err, belfry.NotFound)
			sc.Finish(held, tt.outcome)
			if tt.purged {
				_, err := sc.Store.Prune(sc.Context(), 90*24*time.Hour)
				sc.OK(err)
				for _, id := range []belfry.ID{held.ID, waiting.ID} {
					_, err = sc.Control.Run(sc.Context(), ns, id)
					codeOf(sc.T, err, belfry.NotFound)
				}
				return
			}
			if got, next := sc.Run(held.ID).Status, sc.Run(waiting.ID).Status; got != tt.want || next != tt.waiting {
				sc.Errorf("they became %s and %s, want %s and %s", got, next, tt.want, tt.waiting)
			}
		})
	}
}

func TestEndedOneOff(t *testing.T) {
	for _, purge := range []bool{false, true} {
		controltest.Run(t, "can be deleted", func(sc *controltest.Scenario) {
			d := controltest.WorkerInput("send")
			d.Schedule = "2000-01-03T09:00:00+01:00"
			job := controltest.Create(sc.T, sc.Control, d)
			sc.FireAt("09:00")
			run := sc.Claim(1)[0]
			sc.Finish(run, belfry.OutcomeSucceeded)
			if err := sc.Control.Delete(sc.Context(), ns, job.ID.String(), "", control.DeleteOptions{PurgeHistory: purge}); err != nil {
				sc.Fatal(err)
			}
			_, err := sc.Control.Get(sc.Context(), ns, job.ID.String())
			codeOf(sc.T, err, belfry.NotFound)
			codeOf(sc.T, sc.Control.Delete(sc.Context(), ns, job.ID.String(), "", control.DeleteOptions{}), belfry.NotFound)
			if _, err := sc.Store.Prune(sc.Context(), time.Hour); err != nil {
				sc.Fatal(err)
			}
			if _, err := sc.Control.Run(sc.Context(), ns, run.ID); (err != nil) != purge {
				sc.Errorf("with its history %v: looking for its run gives %v", purge, err)
			}
		})
	}
	controltest.Run(t, "can be looked at and not changed", func(sc *controltest.Scenario) {
		d := controltest.WorkerInput("send")
		d.Name, d.Schedule = "once", "2000-01-03T09:00:00+01:00"
		job := controltest.Create(sc.T, sc.Control, d)
		sc.FireAt("09:00")
		sc.Finish(sc.Claim(1)[0], belfry.OutcomeSucceeded)

		if job := sc.Job(job.ID); job.State != belfry.JobEnded || job.Status != belfry.StatusCompleted {
			sc.Fatalf("it is %s and %s", job.State, job.Status)
		}
		if runs := sc.Runs(job); len(runs) != 1 || runs[0].Status != belfry.RunSucceeded {
			sc.Errorf("its runs are %+v", runs)
		}
		for at, want := range map[string]string{
			"2000-01-03T09:00:00+01:00": "2000-01-03 08:00 UTC ran: it succeeded at 08:00.",
			"2000-01-03 08:30":          "2000-01-03 08:30 UTC is not the instant of the job, which runs once, at 08:00.",
		} {
			if e, err := sc.Control.Explain(sc.Context(), ns, job.ID.String(), at); err != nil || e.Sentence != want {
				sc.Errorf("%s: %s, error %v", at, e.Sentence, err)
			}
		}
		for name, err := range map[string]error{
			"edit":     second(sc.Control.Edit(sc.Context(), ns, job.ID.String(), "", controltest.Patch(func(m *belfry.Manifest) { m.MaxRetries = belfry.Some(1) }))),
			"pause":    second(sc.Control.Pause(sc.Context(), ns, job.ID.String())),
			"resume":   second(sc.Control.Resume(sc.Context(), ns, job.ID.String(), belfry.Resume{})),
			"trigger":  second(sc.Control.Trigger(sc.Context(), ns, job.ID.String(), belfry.Trigger{}, none)),
			"cancel":   second(sc.Control.CancelJob(sc.Context(), ns, job.ID.String())),
			"backfill": second(sc.Control.Backfill(sc.Context(), ns, job.ID.String(), belfry.Backfill{From: sc.At("09:00")}, none)),
		} {
			if belfry.CodeOf(err) != belfry.Conflict {
				sc.Errorf("%s: %v", name, err)
			}
		}
	})
	controltest.Run(t, "leaves its name to another", func(sc *controltest.Scenario) {
		d := controltest.WorkerInput("send")
		d.Name, d.Schedule = "once", "2000-01-03T09:00:00+01:00"
		first := controltest.Create(sc.T, sc.Control, d)
		sc.FireAt("09:00")
		sc.Finish(sc.Claim(1)[0], belfry.OutcomeSucceeded)
		d.Schedule = "2000-01-03T10:00:00+01:00"
		_, _, err := sc.Control.Put(sc.Context(), ns, "once", control.Version(first), d)
		codeOf(sc.T, err, belfry.Changed)
		second, made, err := sc.Control.Put(sc.Context(), ns, "once", "", d)
		if err != nil || !made || second.ID == first.ID {
			sc.Fatalf("made %v, error %v", made, err)
		}
		if found, err := sc.Control.Get(sc.Context(), ns, "once"); err != nil || found.ID != second.ID {
			sc.Errorf("the name finds %s, error %v", found.ID, err)
		}
		again, made, err := sc.Control.Put(sc.Context(), ns, "once", "", d)
		if err != nil || made || again.ID != second.ID {
			sc.Errorf("put again: made %v, error %v", made, err)
		}
	})
}

func TestACancelledJobIsBroughtBack(t *testing.T) {
	for name, bring := range map[string]func(sc *controltest.Scenario, job belfry.Job) (belfry.Job, error){
		"by a resume": func(sc *controltest.Scenario, job belfry.Job) (belfry.Job, error) {
			return sc.Control.Resume(sc.Context(), ns, job.ID.String(), belfry.Resume{})
		},
		"by its status": func(sc *controltest.Scenario, job belfry.Job) (belfry.Job, error) {
			return sc.Control.Edit(sc.Context(), ns, job.ID.String(), "", controltest.Patch(func(m *belfry.Manifest) { m.Status = belfry.StatusActive }))
		},
		"by a rollback": func(sc *controltest.Scenario, job belfry.Job) (belfry.Job, error) {
			return sc.Control.Rollback(sc.Context(), ns, job.ID.String(), belfry.Rollback{Revision: 1})
		},
		"by the same schedule": func(sc *controltest.Scenario, job belfry.Job) (belfry.Job, error) {
			return sc.Control.Edit(sc.Context(), ns, job.ID.String(), "", func(m belfry.Manifest) validate.Input {
				return validate.Input{Manifest: m, Replan: true}
			})
		},
	} {
		controltest.Run(t, name, func(sc *controltest.Scenario) {
			job := sc.Create("*/5 * * * *")
			sc.Edit(job, func(m *belfry.Manifest) { m.TimeoutSeconds = 9 })
			sc.FireAt("09:00")
			sc.Finish(sc.Claim(1)[0], belfry.OutcomeSucceeded)
			_, err := sc.Control.CancelJob(sc.Context(), ns, job.ID.String())
			sc.OK(err)
			sc.SleepUntil("09:12")
			if got := sc.Job(job.ID); got.Status != belfry.StatusCancelled || got.NextRunAt != nil {
				sc.Errorf("the cancelled job is %s", got.Status)
			}
			back, err := bring(sc, job)
			if err != nil || back.Status != belfry.StatusScheduled || back.NextRunAt == nil || !back.NextRunAt.Equal(sc.At("09:15")) {
				sc.Errorf("the job is %s, its next run %v, error %v", back.Status, back.NextRunAt, err)
			}
			sc.FireAt("09:15")
			if runs := sc.Runs(job); runs[0].Status != belfry.RunReady || !runs[0].ScheduledAt.Equal(sc.At("09:15")) {
				sc.Errorf("the runs are %+v", runs)
			}
		})
	}
	controltest.Run(t, "but not if nothing is left to run", func(sc *controltest.Scenario) {
		job := sc.Create("*/5 * * * *", func(s *belfry.Spec) { s.MaxRuns = 1 })
		sc.FireAt("09:00")
		sc.Finish(sc.Claim(1)[0], belfry.OutcomeSucceeded)
		back, err := sc.Control.Resume(sc.Context(), ns, job.ID.String(), belfry.Resume{})
		if err != nil || back.Status != belfry.StatusCompleted || back.NextRunAt != nil {
			sc.Errorf("the job is %s, error %v", back.Status, err)
		}
	})
	controltest.Run(t, "a one-off is not, and its name is free", func(sc *controltest.Scenario) {
		in := controltest.Named("once", "2000-01-03T12:00:00Z")
		job := controltest.Create(sc.T, sc.Control, in)
		_, err := sc.Control.CancelJob(sc.Context(), ns, "once")
		sc.OK(err)
		_, err = sc.Control.Resume(sc.Context(), ns, "once", belfry.Resume{})
		codeOf(sc.T, err, belfry.Conflict)
		if again := controltest.Create(sc.T, sc.Control, in); again.ID == job.ID {
			sc.Error("it is the same job")
		}
	})
}
