package alert

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/store"
)

func once(s *belfry.Subscription) { s.Count = 1 }

// minutes fires every minute, and finishes each run. A second job is due at 09:03.
func (w *world) minutes(n int, finish func(minute int, run *belfry.Run)) {
	for i := range n {
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		w.Fire()
		runs := 1
		if w.second && time.Now().Minute() == 3 {
			runs = 2
		}
		for _, run := range w.Claim(runs) {
			finish(i+1, run)
		}
		w.rounds(50 * time.Second)
	}
}

func (w *world) alertsOf() []belfry.Alert {
	list, err := w.Store.ListAlerts(w.T.Context(), belfry.DefaultNamespace, belfry.AlertFilter{}, store.Page{Limit: 10})
	w.OK(err)
	return list
}

// A job that begins to fail while another one does is told, by its name, also if somebody
// takes care of the other.
func TestSecondJobOfAnAlert(t *testing.T) {
	fails := func(w *world) func(int, *belfry.Run) {
		return func(_ int, run *belfry.Run) { w.Finish(run, belfry.OutcomeFailed, boom) }
	}
	controltest.Run(t, "firing", func(s *controltest.Scenario) {
		w := newWorld(s, on(belfry.AlertFailing, once))
		named(s, "flaky", "* * * * *", noRetries)
		named(s, "payroll", "3 9 * * *", noRetries)
		w.second = true
		s.SleepUntil("09:00:30")
		w.minutes(9, fails(w))
		got := w.sender.take()
		if len(got) != 2 || got[0] != "ops: firing: flaky failed: boom" || !strings.HasPrefix(got[1], "ops: firing: 2 jobs failed") {
			s.T.Errorf("sent %q", got)
		}
		if list := w.alertsOf(); len(list) != 1 || len(list[0].Items) != 2 {
			s.T.Errorf("the alert is %+v", list)
		}
	})
	controltest.Run(t, "acknowledged", func(s *controltest.Scenario) {
		w := newWorld(s, on(belfry.AlertFailing, once))
		named(s, "flaky", "* * * * *", noRetries)
		named(s, "payroll", "3 9 * * *", noRetries)
		w.second = true
		s.SleepUntil("09:00:30")
		w.minutes(1, fails(w))
		w.want("one fails", "ops: firing: flaky failed: boom")
		_, err := s.Control.AcknowledgeAlert(s.T.Context(), belfry.DefaultNamespace, w.alertsOf()[0].ID, "ada")
		s.OK(err)
		w.minutes(1, fails(w))
		w.want("somebody takes care", "ops: acknowledged: flaky failed: boom")
		w.minutes(1, fails(w))
		if got := w.sender.take(); len(got) != 1 || !strings.HasPrefix(got[0], "ops: firing: 2 jobs failed") {
			s.T.Errorf("another one fails: sent %q", got)
		}
	})
}

func TestCooldownAcrossAlerts(t *testing.T) {
	controltest.Run(t, "flapping", func(s *controltest.Scenario) {
		w := newWorld(s, on(belfry.AlertFailing, once))
		named(s, "flaky", "* * * * *", noRetries)
		w.minutes(12, func(minute int, run *belfry.Run) {
			if minute%2 == 1 {
				s.Finish(run, belfry.OutcomeFailed, boom)
			} else {
				s.Finish(run, belfry.OutcomeSucceeded)
			}
		})
		if got := w.sender.take(); len(got) > 6 {
			s.T.Errorf("in 12 minutes with a cool-down of 5 it sent %q", got)
		}
	})
}

func TestDeadLettersOfOneJobResolve(t *testing.T) {
	controltest.Run(t, "of one job", func(s *controltest.Scenario) {
		w := newWorld(s, on(belfry.AlertDead, func(s *belfry.Subscription) { s.Job = "a" }))
		a := named(s, "a", "5 9 * * *", noRetries)
		named(s, "b", "5 9 * * *", noRetries)
		s.SleepUntil("09:05")
		s.Fire()
		for _, run := range s.Claim(2) {
			s.Finish(run, belfry.OutcomeFailed, boom)
		}
		w.rounds(30 * time.Second)
		w.want("both died", "ops: firing: a run of a died: boom")
		dead, err := s.Store.ListDeadLetters(s.T.Context(), belfry.DefaultNamespace, belfry.DeadFilter{JobID: a.ID}, store.Page{Limit: 100})
		s.OK(err)
		s.Discard(dead[0].ID)
		w.rounds(time.Minute)
		w.want("that of the other is left", "ops: resolved: a run of a died: boom")
	})
}

// slowSender takes a while for each message.
type slowSender struct{ *fakeSender }

func (s slowSender) Send(ctx context.Context, c belfry.Channel, a belfry.Alert) error {
	time.Sleep(7 * time.Second)
	return s.fakeSender.Send(ctx, c, a)
}

func TestSlowReceiver(t *testing.T) {
	controltest.Run(t, "gets no message twice", func(s *controltest.Scenario) {
		w := newWorld(s, on(belfry.AlertDead))
		w.alerts.sender = slowSender{w.sender}
		for range 10 {
			s.Create("* * * * *", noRetries)
		}
		s.SleepUntil("09:01")
		s.Fire()
		for _, run := range s.Claim(10) {
			s.Finish(run, belfry.OutcomeFailed, boom)
			w.rounds(interval)
		}
		w.rounds(time.Minute)
		synctest.Wait()
		if got := w.sender.take(); len(got) != 1 {
			s.T.Errorf("within the cool-down it got %q", got)
		}
		w.rounds(5 * time.Minute)
		w.want("after it", "ops: firing: 10 runs died: boom")
	})
	controltest.Run(t, "is told of the end", func(s *controltest.Scenario) {
		w := newWorld(s, on(belfry.AlertMonitor))
		w.alerts.sender = slowSender{w.sender}
		ping := w.monitor("backup", 60, 60)
		for len(w.alertsOf()) == 0 {
			w.rounds(interval)
		}
		w.rounds(interval) // it is being sent
		ping()
		w.rounds(40 * time.Second)
		synctest.Wait()
		w.want("it was late for a moment", "ops: firing: monitor backup is late", "ops: resolved: monitor backup is late")
	})
}

func TestEditedMonitorsAndSubscriptions(t *testing.T) {
	controltest.Run(t, "edits", func(s *controltest.Scenario) {
		w := newWorld(s, on(belfry.AlertMonitor))
		pingA, pingB := w.monitor("a", 60, 60), w.monitor("b", 60, 3600)
		w.rounds(10 * time.Minute)
		w.want("a is late", "ops: firing: monitor a is late")
		pingA()
		w.monitor("a", 36000, 60)
		w.rounds(10 * time.Minute)
		w.want("a is up", "ops: resolved: monitor a is late")
		w.monitor("b", 60, 60) // so that it is late since long ago
		w.rounds(10 * time.Minute)
		w.want("b is late", "ops: firing: monitor b is late")

		c := on(belfry.AlertMonitor)
		c.Namespace, c.Type, c.Alerts[0].Job = belfry.DefaultNamespace, belfry.ChannelWebhook, "b"
		_, err := s.Store.PutChannel(s.T.Context(), c)
		s.OK(err)
		w.rounds(10 * time.Minute)
		w.want("another subscription is about the same", "ops: firing: monitor b is late")
		pingB()
		w.rounds(30 * time.Second)
		w.want("b is up", "ops: resolved: monitor b is late")
	})
}

func TestSecretsInErrorsAreMasked(t *testing.T) {
	controltest.Run(t, "masked", func(s *controltest.Scenario) {
		w := newWorld(s, on(belfry.AlertDead))
		job := named(s, "report", "5 9 * * *", noRetries)
		s.Edit(job, func(m *belfry.Manifest) {
			m.Name, m.Payload = "report", []byte(`{"url": "https://example.com/hook", "headers": {"Authorization": "Bearer canary-17"}}`)
		})
		s.SleepUntil("09:05")
		s.Fire()
		s.Finish(s.Claim(1)[0], belfry.OutcomeFailed, func(r *belfry.Result) {
			r.Error = "canary-17 was refused by postgres://u:canary-18@h/db"
		})
		w.rounds(30 * time.Second)
		told := strings.Join(append(w.sender.take(), append(w.events(), w.log.String())...), "\n")
		if !strings.Contains(told, "was refused by") || strings.Contains(told, "canary") {
			s.T.Errorf("it says\n%s", told)
		}
		for _, a := range w.alertsOf() {
			if text := string(belfry.MustJSON(a)); strings.Contains(text, "canary") {
				s.T.Errorf("the alert is %s", text)
			}
		}
	})
}
