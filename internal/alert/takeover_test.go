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

// interrupted is a store that fails at one point of a round, as if the node died there. Like
// PostgreSQL, it does not save an alert twice at once.
type interrupted struct {
	Store
	channels, save bool
}

var errInterrupted = errors.New("interrupted")

func (s *interrupted) Channels(ctx context.Context, namespace string) ([]belfry.Channel, error) {
	if s.channels {
		return nil, errInterrupted
	}
	return s.Store.Channels(ctx, namespace)
}

func (s *interrupted) SaveAlerts(ctx context.Context, alerts []store.AlertRecord) (int, error) {
	if s.save {
		return 0, errInterrupted
	}
	seen := map[belfry.ID]bool{}
	for _, a := range alerts {
		if seen[a.ID] {
			return 0, fmt.Errorf("alert %s is saved twice at once", a.ID)
		}
		seen[a.ID] = true
	}
	return s.Store.SaveAlerts(ctx, alerts)
}

// interrupt evaluates once, up to where the node dies. Another one takes over a while after
// the end of the lease.
func (w *world) interrupt(at interrupted) {
	w.T.Helper()
	at.Store = w.Store
	w.alerts.store = &at
	if err := w.alerts.round(w.T.Context()); !errors.Is(err, errInterrupted) {
		w.T.Errorf("a round that dies ended with %v", err)
	}
	w.restart()
	time.Sleep(leaseTime + overlap/2)
}

// failingAndRecovered is a channel that is told at once.
func failingAndRecovered() belfry.Channel {
	c := on(belfry.AlertFailing, func(s *belfry.Subscription) { s.Count = 1 })
	c.Alerts = append(c.Alerts, belfry.Subscription{On: belfry.AlertRecovered})
	return c
}

// end lets the next occurrences of so many jobs end.
func (w *world) end(clock string, n int, o belfry.Outcome) {
	w.SleepUntil(clock)
	w.Fire()
	for _, run := range w.Claim(n) {
		w.Finish(run, o, boom)
	}
}

// What the last round of a node that died did not come to is found by the next node.
func TestARoundThatDiesLosesNothing(t *testing.T) {
	controltest.Run(t, "takeover", func(s *controltest.Scenario) {
		w := newWorld(s, failingAndRecovered())
		s.Edit(s.Create("* * * * *", noRetries), func(m *belfry.Manifest) { m.Name = "report" })
		s.SleepUntil("09:00:50")
		w.rounds(5 * time.Second)
		w.end("09:01", 1, belfry.OutcomeFailed)
		time.Sleep(interval)
		w.interrupt(interrupted{channels: true})
		w.rounds(15 * time.Second)
		w.want("a failure before the last lease", "ops: firing: report failed: boom")
		w.end("09:02", 1, belfry.OutcomeSucceeded)
		w.interrupt(interrupted{save: true})
		w.rounds(15 * time.Second)
		w.want("a success that was found and not saved", "ops: resolved: report failed: boom", "ops: firing: report has recovered")
	})
}

// An alert counts jobs over all rounds and nodes, and each that recovered once.
func TestCountsOfSeveralRounds(t *testing.T) {
	controltest.Run(t, "counts", func(s *controltest.Scenario) {
		const jobs = 6
		w := newWorld(s, failingAndRecovered())
		w.alerts.store = &interrupted{Store: w.Store}
		for i := range jobs {
			s.Edit(s.Create("* * * * *", noRetries), func(m *belfry.Manifest) { m.Name = fmt.Sprint("job ", i) })
		}
		each := func(clock string, o belfry.Outcome, between func(n int)) {
			s.SleepUntil(clock)
			s.Fire()
			for i, run := range s.Claim(jobs) {
				s.Finish(run, o, boom)
				between(i + 1)
			}
		}
		each("09:01", belfry.OutcomeFailed, func(n int) {
			if n == jobs/2 {
				w.rounds(10 * time.Second)
				w.want("three failures", "ops: firing: 3 jobs failed: boom")
				w.rounds(2 * overlap)
			}
		})
		w.rounds(time.Minute)
		w.want("within the cool-down")
		w.rounds(5 * time.Minute)
		w.want("after the cool-down", "ops: firing: 6 jobs failed: boom")

		each("09:10", belfry.OutcomeSucceeded, func(int) { w.rounds(interval) })
		w.want("all have succeeded", "ops: firing: 2 jobs have recovered", "ops: resolved: 6 jobs failed: boom")
		w.rounds(6 * time.Minute)
		w.want("after the cool-down", "ops: firing: 4 jobs have recovered")
	})
}

// What was committed after a round looked, and happened before the latest that it saw, is
// told after the cool-down.
func TestLateCommitsAreTold(t *testing.T) {
	latest := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	sent := latest.Add(10 * time.Second)
	last := store.AlertRecord{Key: "k", Alert: belfry.Alert{ID: belfry.NewID(latest), Status: belfry.AlertFiring, LatestAt: latest, Count: 990, SentAt: &sent, SentCount: 1}}
	c := on(belfry.AlertDead)
	for count, want := range map[int64]bool{990: false, 1000: true} {
		got, changed := update(last, &c, &group{subscription: c.Alerts[0], key: "k", count: count, latest: latest}, latest, sent.Add(interval))
		if changed != want || got.Count != count || changed && !got.SendAt.Equal(afterCooldown(&sent, &c)) {
			t.Errorf("%d at the same instant: changed %v, %+v", count, changed, got)
		}
	}
}

// Of jobs that recovered, some are found after an alert about later ones has ended.
func TestEarlierRecoveriesAreTold(t *testing.T) {
	latest := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	sent, told, other := latest.Add(10*time.Second), belfry.NewID(latest), belfry.NewID(latest.Add(time.Second))
	c := on(belfry.AlertRecovered)
	last := store.AlertRecord{Key: "k", Jobs: []belfry.ID{told}, Alert: belfry.Alert{ID: belfry.NewID(latest), Status: belfry.AlertResolved, LatestAt: latest, Count: 1, SentAt: &sent, SentCount: 1}}
	for job, want := range map[belfry.ID]bool{told: false, other: true} {
		g := &group{subscription: c.Alerts[0], key: "k", count: 1, latest: latest.Add(-time.Second), subjects: []belfry.ID{job}}
		got, opened := update(last, &c, g, latest.Add(overlap), sent.Add(interval))
		if opened != want || opened && (got.ID == last.ID || got.Count != 1 || !got.SendAt.Equal(afterCooldown(&sent, &c))) {
			t.Errorf("job %v (told: %v): opened %v, %+v", job, job == told, opened, got)
		}
	}
}

// failingJobs is a store in which every job exists and none succeeds.
type failingJobs struct{ Store }

func (failingJobs) JobLabels(_ context.Context, jobs []belfry.ID) (map[belfry.ID]store.JobLabels, error) {
	labels := map[belfry.ID]store.JobLabels{}
	for _, job := range jobs {
		labels[job] = store.JobLabels{}
	}
	return labels, nil
}

func (failingJobs) LastSuccess(context.Context, []belfry.ID, time.Time) (map[belfry.ID]time.Time, error) {
	return nil, nil
}

// Alerts about more jobs together than one may have do not end.
func TestAlertsOfManyJobsAreNotOver(t *testing.T) {
	controltest.Run(t, "many", func(s *controltest.Scenario) {
		w := newWorld(s)
		w.alerts.store = failingJobs{w.Store}
		var open []store.AlertRecord
		for range 3 {
			time.Sleep(time.Millisecond) // so that the ids of one are before those of the next
			r := store.AlertRecord{Alert: belfry.Alert{ID: belfry.NewID(time.Now()), Subscription: belfry.Subscription{On: belfry.AlertFailing}}}
			for range store.MaxAlertJobs {
				r.Jobs = append(r.Jobs, belfry.NewID(time.Now()))
			}
			open = append(open, r)
		}
		over, err := w.alerts.over(s.T.Context(), open)
		s.OK(err)
		for _, r := range open {
			if over[r.ID] {
				s.T.Errorf("an alert of %d jobs is over", len(r.Jobs))
			}
		}
	})
}
