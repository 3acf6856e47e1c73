package alert

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/notify"
	"github.com/belfry-sh/belfry/internal/store"
)

// fakeSender records messages, or refuses them.
type fakeSender struct {
	mu   sync.Mutex
	sent []string
	fail map[string]error         // by channel
	hang map[string]chan struct{} // until it is closed
}

func (s *fakeSender) Send(ctx context.Context, c belfry.Channel, a belfry.Alert) error {
	s.mu.Lock()
	err, hang := s.fail[c.Name], s.hang[c.Name]
	s.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, fmt.Sprintf("%s: %s: %s", c.Name, a.Status, a.Message))
	return nil
}

// take returns the messages since the last call.
func (s *fakeSender) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := s.sent
	s.sent = nil
	return sent
}

// world is a scenario with alerts that are evaluated every five seconds.
type world struct {
	*controltest.Scenario
	sender *fakeSender
	alerts *Alerts
	log    *strings.Builder
	second bool // see minutes
}

func newWorld(s *controltest.Scenario, channels ...belfry.Channel) *world {
	w := &world{Scenario: s, sender: &fakeSender{fail: map[string]error{}, hang: map[string]chan struct{}{}}, log: &strings.Builder{}}
	for _, c := range channels {
		c.Namespace, c.Type = belfry.DefaultNamespace, belfry.ChannelWebhook
		_, err := s.Store.PutChannel(s.T.Context(), c)
		s.OK(err)
	}
	w.restart()
	return w
}

// restart is another node that takes over.
func (w *world) restart() {
	w.alerts = New(w.Store, w.sender, belfry.NewID(time.Now()), slog.New(slog.NewTextHandler(w.log, nil)))
}

// rounds evaluates for a time.
func (w *world) rounds(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		w.OK(w.alerts.round(w.T.Context()))
		time.Sleep(interval)
	}
}

func (w *world) want(doing string, want ...string) {
	w.T.Helper()
	got := w.sender.take()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		w.T.Errorf("%s: sent\n\t%s\nwant\n\t%s", doing, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func on(kind belfry.AlertKind, change ...func(*belfry.Subscription)) belfry.Channel {
	s := belfry.Subscription{On: kind}
	for _, c := range change {
		c(&s)
	}
	return belfry.Channel{Name: "ops", Alerts: []belfry.Subscription{s}}
}

func boom(r *belfry.Result) { r.Error = "boom" }

func noRetries(s *belfry.Spec) { s.MaxRetries = belfry.Some(0) }

func TestDeathsAreOneAlert(t *testing.T) {
	controltest.Run(t, "deaths", func(s *controltest.Scenario) {
		w := newWorld(s, on(belfry.AlertDead))
		for range 30 {
			s.Create("* * * * *", noRetries)
		}
		w.rounds(10 * time.Second)
		w.want("nothing happened")
		s.SleepUntil("09:01")
		s.Fire()
		for _, run := range s.Claim(30) {
			s.Finish(run, belfry.OutcomeFailed, boom)
		}
		w.rounds(20 * time.Second)
		w.want("thirty jobs died", "ops: firing: 30 runs died: boom")

		// Another node does not send it again, and the next deaths wait for the cool-down.
		w.restart()
		time.Sleep(leaseTime)
		s.SleepUntil("09:02")
		s.Fire()
		for _, run := range s.Claim(30) {
			s.Finish(run, belfry.OutcomeFailed, boom)
		}
		w.rounds(time.Minute)
		w.want("within the cool-down")
		w.rounds(5 * time.Minute)
		w.want("after the cool-down", "ops: firing: 60 runs died: boom")

		dead, err := s.Store.ListDeadLetters(s.T.Context(), belfry.DefaultNamespace, belfry.DeadFilter{}, store.Page{Limit: 100})
		s.OK(err)
		for _, d := range dead {
			s.Discard(d.ID)
		}
		w.rounds(15 * time.Minute)
		w.want("all were discarded", "ops: resolved: 60 runs died: boom")
		if got := w.log.String(); strings.Count(got, "a run died") != 2*maxLines || !strings.Contains(got, `msg="there are more events of this kind" event=run_dead events=20`) {
			s.T.Errorf("the log is\n%s", got)
		}
	})
}

func TestFailingAndRecovered(t *testing.T) {
	controltest.Run(t, "failing", func(s *controltest.Scenario) {
		c := on(belfry.AlertFailing, func(s *belfry.Subscription) { s.Count = 2 })
		c.Alerts = append(c.Alerts, belfry.Subscription{On: belfry.AlertRecovered})
		w := newWorld(s, c)
		job := s.Create("* * * * *", noRetries)
		s.Edit(job, func(m *belfry.Manifest) { m.Name = "report" })
		for i, clock := range []string{"09:01", "09:02"} {
			s.SleepUntil(clock)
			s.Fire()
			s.Finish(s.Claim(1)[0], belfry.OutcomeFailed, boom)
			w.rounds(20 * time.Second)
			if i == 0 {
				w.want("one failure")
			}
		}
		w.want("two failures", "ops: firing: report failed 2 times in a row: boom")
		s.SleepUntil("09:03")
		s.Fire()
		s.Finish(s.Claim(1)[0], belfry.OutcomeSucceeded)
		w.rounds(20 * time.Second)
		got := w.sender.take()
		if len(got) != 2 || !strings.Contains(strings.Join(got, "\n"), "ops: resolved: report failed 2 times") || !strings.Contains(strings.Join(got, "\n"), "ops: firing: report has recovered") {
			s.T.Errorf("after a success: sent %q", got)
		}
		w.rounds(time.Minute)
		w.want("it is over")
	})
}

// A cluster that was down through the deadline of a job tells so when it is back, whether
// the occurrence runs late or not at all.
func TestAbsenceAfterAnOutage(t *testing.T) {
	for _, missed := range []belfry.MissedWindow{belfry.MissedSkip, belfry.MissedRunOnce} {
		controltest.Run(t, string(missed), func(s *controltest.Scenario) {
			w := newWorld(s, on(belfry.AlertNotFinished, func(s *belfry.Subscription) { s.WithinSeconds = 600 }))
			job := s.Create("5 9 * * *", func(s *belfry.Spec) { s.MissedWindow = missed })
			s.Edit(job, func(m *belfry.Manifest) { m.Name = "payroll" })
			w.rounds(10 * time.Second)
			w.want("nothing happened")
			s.SleepUntil("11:00") // nobody runs
			controltest.FireSince(s.T, s.Store, time.Now().Add(-time.Second))
			if missed == belfry.MissedRunOnce {
				s.Finish(s.Claim(1)[0], belfry.OutcomeSucceeded)
			}
			w.restart()
			w.rounds(time.Minute)
			got := w.sender.take()
			if len(got) == 0 || !strings.HasPrefix(got[0], "ops: firing: payroll did not succeed within 10m of its time") {
				s.T.Errorf("sent %q", got)
			}
		})
	}
}

func TestLateRunAlertsAtItsDeadline(t *testing.T) {
	controltest.Run(t, "late", func(s *controltest.Scenario) {
		w := newWorld(s, on(belfry.AlertNotStarted, func(s *belfry.Subscription) { s.WithinSeconds = 120 }), belfry.Channel{Name: "lag", Alerts: []belfry.Subscription{{On: belfry.AlertLag}}})
		s.Edit(s.Create("5 9 * * *"), func(m *belfry.Manifest) { m.Name = "payroll" })
		s.SleepUntil("09:05")
		w.rounds(50 * time.Second)
		w.want("before the deadline")
		w.rounds(30 * time.Second)
		w.want("after a minute", "lag: firing: a due run of payroll waits longer than 1m")
		w.rounds(time.Minute)
		w.want("after the deadline", "ops: firing: payroll did not start within 2m of its time")
		s.Fire()
		s.Finish(s.Claim(1)[0], belfry.OutcomeSucceeded)
		w.rounds(90 * time.Second)
		got := strings.Join(w.sender.take(), "\n")
		if !strings.Contains(got, "lag: resolved") || !strings.Contains(got, "ops: resolved") {
			s.T.Errorf("after the run: %s", got)
		}
	})
}

// A channel that fails or hangs backs off, says why, loses nothing and delays no other.
func TestAChannelThatFails(t *testing.T) {
	controltest.Run(t, "channels", func(s *controltest.Scenario) {
		dead := []belfry.Subscription{{On: belfry.AlertDead}}
		w := newWorld(s, belfry.Channel{Name: "broken", Alerts: dead}, belfry.Channel{Name: "hangs", Alerts: dead}, belfry.Channel{Name: "ops", Alerts: dead})
		w.sender.fail["broken"] = errors.New("it answered 500")
		w.sender.hang["hangs"] = make(chan struct{})
		s.Edit(s.Create("* * * * *", noRetries), func(m *belfry.Manifest) { m.Name = "report" })
		s.SleepUntil("09:01")
		s.Fire()
		s.Finish(s.Claim(1)[0], belfry.OutcomeFailed, boom)
		w.rounds(20 * time.Second)
		w.want("one of three works", "ops: firing: a run of report died: boom")
		channels, err := s.Store.Channels(s.T.Context(), belfry.DefaultNamespace)
		s.OK(err)
		if c := channels[0]; c.Failures == 0 || c.Error != "it answered 500" || c.NextTryAt == nil {
			s.T.Errorf("the broken channel is %+v", c)
		}
		close(w.sender.hang["hangs"])
		w.sender.mu.Lock()
		delete(w.sender.fail, "broken")
		w.sender.mu.Unlock()
		w.rounds(2 * time.Minute)
		synctest.Wait()
		got := strings.Join(w.sender.take(), "\n")
		if strings.Count(got, "broken: firing") != 1 || strings.Count(got, "hangs: firing") != 1 || strings.Contains(got, "ops:") {
			s.T.Errorf("after they work again: %s", got)
		}
	})
}

// A message that some recipients took is not sent to them again.
func TestAMessageThatSomeRecipientsRefuse(t *testing.T) {
	controltest.Run(t, "recipients", func(s *controltest.Scenario) {
		w := newWorld(s, on(belfry.AlertDead))
		refusal := &notify.Error{Message: "sent to 1 of 2 recipients", Permanent: true, Sent: true}
		w.sender.fail["ops"] = refusal
		s.Create("* * * * *", noRetries)
		s.SleepUntil("09:01")
		s.Fire()
		s.Finish(s.Claim(1)[0], belfry.OutcomeFailed, boom)
		w.rounds(30 * time.Minute)
		alerts, err := s.Store.ListAlerts(s.T.Context(), belfry.DefaultNamespace, belfry.AlertFilter{}, store.Page{Limit: 10})
		s.OK(err)
		channels, err := s.Store.Channels(s.T.Context(), belfry.DefaultNamespace)
		s.OK(err)
		if c := channels[0]; len(alerts) != 1 || alerts[0].SentCount != 1 || c.Error != refusal.Message || c.SentAt == nil || c.Failures != 0 || c.NextTryAt != nil {
			s.T.Errorf("the alerts are %+v, the channel is %+v", alerts, channels[0])
		}
	})
}

func TestCatchUpsSlowRunsSkipsAndMonitors(t *testing.T) {
	controltest.Run(t, "others", func(s *controltest.Scenario) {
		c := belfry.Channel{Name: "ops", Alerts: []belfry.Subscription{{On: belfry.AlertCatchUp}, {On: belfry.AlertSlow, WithinSeconds: 60}, {On: belfry.AlertSkipped, Count: 2}, {On: belfry.AlertMonitor}}}
		w := newWorld(s, c)
		job := s.Create("* * * * *", func(s *belfry.Spec) { s.TimeoutSeconds = 3600 })
		s.Edit(job, func(m *belfry.Manifest) { m.Name = "report" })
		s.SleepUntil("09:00")
		s.Fire()
		run := s.Claim(1)[0]
		w.rounds(50 * time.Second)
		w.want("it has just begun")
		w.rounds(30 * time.Second)
		w.want("it is slow", "ops: firing: a run of report takes longer than 1m")
		s.FireAt("09:02", "09:03")
		w.rounds(20 * time.Second)
		w.want("two skips", "ops: firing: report was skipped 2 times in a row: overlap")
		s.Finish(run, belfry.OutcomeSucceeded)
		w.rounds(time.Minute)
		got := strings.Join(w.sender.take(), "\n")
		if strings.Count(got, "ops: resolved: a run of report takes longer") != 1 {
			s.T.Errorf("after its end: %s", got)
		}

		_, _, err := s.Control.PutMonitor(s.T.Context(), belfry.DefaultNamespace, "backup", func(m *belfry.Monitor) []belfry.FieldError {
			m.Name, m.EverySeconds, m.GraceSeconds = "backup", 60, 60
			return nil
		})
		s.OK(err)
		m, err := s.Control.Monitor(s.T.Context(), belfry.DefaultNamespace, "backup")
		s.OK(err)
		s.OK(s.Control.Ping(s.T.Context(), m.Token.String(), belfry.PingSuccess))
		w.rounds(110 * time.Second)
		w.sender.take()
		w.rounds(30 * time.Second)
		w.want("no ping", "ops: firing: monitor backup is late")
		s.OK(s.Control.Ping(s.T.Context(), m.Token.String(), belfry.PingSuccess))
		w.rounds(20 * time.Second)
		w.want("a ping", "ops: resolved: monitor backup is late")

		many := s.Create("* * * * *", func(s *belfry.Spec) { s.MissedWindow, s.Overlap = belfry.MissedRunAll, belfry.OverlapParallel })
		s.Edit(many, func(m *belfry.Manifest) { m.Name = "many" })
		time.Sleep(29 * time.Minute)
		controltest.FireSince(s.T, s.Store, time.Now().Add(-time.Second))
		w.restart()
		w.rounds(30 * time.Second)
		if got := strings.Join(w.sender.take(), "\n"); !strings.Contains(got, "many catches up on many missed occurrences") {
			s.T.Errorf("after a catch-up: %s", got)
		}
	})
}

func TestPauses(t *testing.T) {
	for earlier, want := range map[int]time.Duration{0: 10 * time.Second, 1: 20 * time.Second, 5: 320 * time.Second, 6: 10 * time.Minute, 60: 10 * time.Minute} {
		if got := pauseAfter(earlier, errors.New("x")); got != want {
			t.Errorf("after %d failures: %v, want %v", earlier, got, want)
		}
	}
}
