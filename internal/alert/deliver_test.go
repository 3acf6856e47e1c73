package alert

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/store"
)

// refusing is a sender that refuses all messages and records when.
type refusing struct {
	mu sync.Mutex
	at []time.Time
}

func (r *refusing) Send(context.Context, belfry.Channel, belfry.Alert) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = append(r.at, time.Now())
	return errors.New("it answered 500")
}

func TestAChannelThatRefusesIsTriedAfterItsPause(t *testing.T) {
	controltest.Run(t, "pauses", func(s *controltest.Scenario) {
		w, r := newWorld(s, on(belfry.AlertDead)), &refusing{}
		w.alerts.sender = r
		s.Create("* * * * *", noRetries)
		w.end("09:01", 1, belfry.OutcomeFailed)
		w.rounds(3 * time.Minute)
		r.mu.Lock()
		defer r.mu.Unlock()
		var pauses []time.Duration
		for i := range r.at[1:] {
			pauses = append(pauses, r.at[i+1].Sub(r.at[i]).Truncate(interval))
		}
		if want := []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second}; !slices.Equal(pauses, want) {
			s.T.Errorf("the message was tried again after %v, want %v", pauses, want)
		}
	})
}

// What happens while a message is being sent is told after the cool-down, and that it is
// over at once.
func TestAnAlertThatChangesWhileItIsSent(t *testing.T) {
	controltest.Run(t, "slow receiver", func(s *controltest.Scenario) {
		w := newWorld(s, on(belfry.AlertDead))
		report := s.Edit(s.Create("@yearly", noRetries), func(m *belfry.Manifest) { m.Name = "report" })
		other := s.Create("@yearly", noRetries)
		die := func(job belfry.Job) {
			time.Sleep(time.Second)
			s.Trigger(job)
			s.Fire()
			s.Finish(s.Claim(1)[0], belfry.OutcomeFailed, boom)
		}
		slowly := func(meanwhile func()) {
			answer := make(chan struct{})
			w.sender.mu.Lock()
			w.sender.hang["ops"] = answer
			w.sender.mu.Unlock()
			w.rounds(2 * interval)
			meanwhile()
			w.rounds(interval)
			close(answer)
			w.sender.mu.Lock()
			delete(w.sender.hang, "ops")
			w.sender.mu.Unlock()
		}
		discard := func() {
			dead, err := s.Store.ListDeadLetters(s.T.Context(), belfry.DefaultNamespace, belfry.DeadFilter{}, store.Page{Limit: 100})
			s.OK(err)
			for _, d := range dead {
				s.Discard(d.ID)
			}
		}
		die(report)
		slowly(discard)
		w.rounds(2 * interval)
		w.want("it was over before the receiver answered", "ops: firing: a run of report died: boom", "ops: resolved: a run of report died: boom")

		w.rounds(5 * time.Minute) // the cool-down of the first
		die(report)
		slowly(func() { die(other) })
		w.rounds(2 * interval)
		w.want("another one died before the receiver answered", "ops: firing: a run of report died: boom")
		w.rounds(5 * time.Minute)
		w.want("after the cool-down", "ops: firing: 2 runs died: boom")
	})
}
