package alert

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/store"
)

func seconds(n int) func(*belfry.Subscription) {
	return func(s *belfry.Subscription) { s.WithinSeconds = n }
}

func named(s *controltest.Scenario, name, schedule string, change ...func(*belfry.Spec)) belfry.Job {
	job := s.Create(schedule, change...)
	s.Edit(job, func(m *belfry.Manifest) { m.Name = name })
	return job
}

func TestDeadRunDidNotFinish(t *testing.T) {
	controltest.Run(t, "dead", func(s *controltest.Scenario) {
		w := newWorld(s, on(belfry.AlertNotFinished, seconds(600)))
		named(s, "payroll", "5 9 * * *", noRetries)
		w.rounds(10 * time.Second)
		s.SleepUntil("09:05")
		s.Fire()
		run := s.Claim(1)[0]
		s.Finish(run, belfry.OutcomeFailed, boom)
		w.rounds(9 * time.Minute)
		w.want("there is time")
		w.rounds(2 * time.Minute)
		w.want("its time has ended", "ops: firing: payroll did not succeed within 10m of its time: boom")

		// That it runs later is no news.
		s.Redrive(run.ID)
		w.rounds(10 * time.Second)
		s.Finish(s.Claim(1)[0], belfry.OutcomeSucceeded)
		w.rounds(2 * time.Minute)
		w.want("it was redriven", "ops: resolved: payroll did not succeed within 10m of its time: boom")
	})
}

func TestRunsThatAreNotLate(t *testing.T) {
	controltest.Run(t, "a retry started in time", func(s *controltest.Scenario) {
		w := newWorld(s, on(belfry.AlertNotStarted, seconds(60)))
		named(s, "payroll", "5 9 * * *", func(s *belfry.Spec) { s.RetryBaseSeconds = belfry.Some(300.0) })
		s.SleepUntil("09:05")
		s.Fire()
		s.Finish(s.Claim(1)[0], belfry.OutcomeFailed, boom)
		w.rounds(6 * time.Minute)
		s.Promote()
		s.Finish(s.Claim(1)[0], belfry.OutcomeSucceeded)
		w.rounds(2 * time.Minute)
		w.want("it was retried")
	})
	controltest.Run(t, "a trigger has no time", func(s *controltest.Scenario) {
		w := newWorld(s, on(belfry.AlertNotFinished, seconds(60)))
		job := named(s, "payroll", "5 9 * * *", noRetries, func(s *belfry.Spec) { s.TimeoutSeconds = 3600 })
		s.Trigger(job)
		s.Fire()
		run := s.Claim(1)[0]
		w.rounds(3 * time.Minute)
		s.Finish(run, belfry.OutcomeSucceeded)
		w.rounds(time.Minute)
		w.want("it was triggered")
	})
	controltest.Run(t, "an old run is redriven", func(s *controltest.Scenario) {
		c := on(belfry.AlertNotStarted, seconds(60))
		c.Alerts = append(c.Alerts, belfry.Subscription{On: belfry.AlertLag})
		w := newWorld(s, c)
		named(s, "payroll", "5 9 * * *", noRetries)
		s.SleepUntil("09:05")
		s.Fire()
		run := s.Claim(1)[0]
		s.Finish(run, belfry.OutcomeFailed, boom)
		w.rounds(30 * time.Minute)
		s.Redrive(run.ID)
		w.rounds(10 * time.Second)
		s.Finish(s.Claim(1)[0], belfry.OutcomeSucceeded)
		w.rounds(2 * time.Minute)
		w.want("it started in time")
	})
}

// failingStore refuses one kind of read.
type failingStore struct {
	store.Store
	fail bool
}

func (f *failingStore) Exceptions(ctx context.Context, after store.Position, limit int) ([]belfry.Run, error) {
	if f.fail {
		return nil, errors.New("timeout")
	}
	return f.Store.Exceptions(ctx, after, limit)
}

// fails makes rounds for a time in which something cannot be read.
func (w *world) fails(s *failingStore, d time.Duration) {
	s.fail = true
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(interval) {
		if err := w.alerts.round(w.T.Context()); err == nil {
			w.T.Error("a round succeeded")
		}
	}
	s.fail = false
}

func TestFailedRoundsLoseNothing(t *testing.T) {
	controltest.Run(t, "another node takes over", func(s *controltest.Scenario) {
		w := newWorld(s, on(belfry.AlertNotFinished, seconds(600)))
		fails := &failingStore{Store: s.Store}
		w.alerts.store = fails
		named(s, "payroll", "5 9 * * *", func(s *belfry.Spec) { s.MissedWindow = belfry.MissedSkip })
		w.rounds(10 * time.Second)
		s.SleepUntil("11:00")
		controltest.FireSince(s.T, s.Store, time.Now().Add(-time.Second))
		w.fails(fails, 10*time.Minute)
		w.alerts.release(s.T.Context())
		w.restart()
		w.rounds(time.Minute)
		w.want("it was skipped long before", "ops: firing: payroll did not succeed within 10m of its time: skipped: missed_window")
	})
	controltest.Run(t, "a recovery is told", func(s *controltest.Scenario) {
		c := on(belfry.AlertRecovered)
		c.Alerts = append(c.Alerts, belfry.Subscription{On: belfry.AlertNotFinished, WithinSeconds: 3000, Job: "other"}) // so that exceptions are read
		w := newWorld(s, c)
		fails := &failingStore{Store: s.Store}
		w.alerts.store = fails
		named(s, "report", "* * * * *", noRetries)
		s.SleepUntil("09:01")
		s.Fire()
		s.Finish(s.Claim(1)[0], belfry.OutcomeFailed, boom)
		w.rounds(10 * time.Second)
		s.SleepUntil("09:02")
		s.Fire()
		s.Finish(s.Claim(1)[0], belfry.OutcomeSucceeded)
		w.fails(fails, 30*time.Second)
		w.rounds(20 * time.Second)
		w.want("it has recovered", "ops: firing: report has recovered")
	})
	controltest.Run(t, "a job that began to fail is an event", func(s *controltest.Scenario) {
		w := newWorld(s, on(belfry.AlertNotFinished, seconds(3000), func(s *belfry.Subscription) { s.Job = "other" }))
		fails := &failingStore{Store: s.Store}
		w.alerts.store = fails
		named(s, "report", "* * * * *", noRetries)
		w.rounds(interval)
		s.SleepUntil("09:01")
		s.Fire()
		s.Finish(s.Claim(1)[0], belfry.OutcomeFailed, boom)
		w.fails(fails, 30*time.Second)
		w.rounds(20 * time.Second)
		w.wantEvents("it failed meanwhile", "job_failing: report fails: boom", "run_dead: a run of report died: boom")
	})
	controltest.Run(t, "what lasts is not resolved", func(s *controltest.Scenario) {
		c := on(belfry.AlertMonitor)
		c.Alerts = append(c.Alerts, belfry.Subscription{On: belfry.AlertNotFinished, WithinSeconds: 3000})
		w := newWorld(s, c)
		fails := &failingStore{Store: s.Store}
		w.alerts.store = fails
		w.monitor("backup", 60, 60)
		w.rounds(3 * time.Minute)
		w.want("it is late", "ops: firing: monitor backup is late")
		w.fails(fails, time.Minute)
		w.rounds(30 * time.Minute)
		w.want("it is still late")
	})
}

// monitor creates a monitor, or edits it, and pings it if it is new.
func (w *world) monitor(name string, every, grace int) (ping func()) {
	m, _, err := w.Control.PutMonitor(w.T.Context(), belfry.DefaultNamespace, name, func(m *belfry.Monitor) []belfry.FieldError {
		m.Name, m.EverySeconds, m.GraceSeconds = name, every, grace
		return nil
	})
	w.OK(err)
	ping = func() { w.OK(w.Control.Ping(w.T.Context(), m.Token.String(), belfry.PingSuccess)) }
	if m.LastPingAt == nil {
		ping()
	}
	return ping
}

func TestUnchangedChannelIsTold(t *testing.T) {
	for _, changed := range []bool{false, true} {
		controltest.Run(t, fmt.Sprint(changed), func(s *controltest.Scenario) {
			c := on(belfry.AlertNotFinished, seconds(600))
			w := newWorld(s, c)
			named(s, "payroll", "5 9 * * *", func(s *belfry.Spec) { s.MissedWindow = belfry.MissedSkip })
			w.rounds(10 * time.Second)
			s.SleepUntil("11:00") // nobody runs
			controltest.FireSince(s.T, s.Store, time.Now().Add(-time.Second))
			c.Namespace, c.Type = belfry.DefaultNamespace, belfry.ChannelWebhook
			var want []string
			if changed {
				c.CooldownSeconds = 60
			} else {
				want = []string{"ops: firing: payroll did not succeed within 10m of its time: skipped: missed_window"}
			}
			_, err := s.Store.PutChannel(s.T.Context(), c)
			s.OK(err)
			w.restart()
			w.rounds(time.Minute)
			w.want("the channel was saved again", want...)
		})
	}
}
