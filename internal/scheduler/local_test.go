package scheduler

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// readyStore has ready runs for a Local.
type readyStore struct {
	LocalStore
	store.Hub
	ready []*belfry.Run
}

func (s *readyStore) Wakeups(ctx context.Context, topic store.Topic) <-chan struct{} {
	return s.Hub.Wakeups(ctx, topic)
}

func (s *readyStore) PollInterval() time.Duration { return time.Minute }

func (s *readyStore) ClaimBelow(context.Context, belfry.Claim, int64) (runs []*belfry.Run, _ error) {
	runs, s.ready = s.ready, nil
	return runs, nil
}

// A claim that is woken because runs are ready, while it is being filled with what is due, has
// no time for them: another claim of the worker takes them, and not after a minute.
func TestAnotherClaimTakesReadyRuns(t *testing.T) {
	for name, end := range map[string]func(l *Local, filled []*request, cancel func()){
		"the claim is filled": func(l *Local, filled []*request, _ func()) {
			l.endFill(filled, []*belfry.Run{{WorkerID: filled[0].claim.WorkerID}}, nil)
		},
		"the claim is over": func(l *Local, filled []*request, cancel func()) {
			cancel()
			l.endFill(filled, nil, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &readyStore{}
				l := NewLocal(t.Context(), s)
				claim := func(ctx context.Context, limit int) <-chan []*belfry.Run {
					claimed := make(chan []*belfry.Run, 1)
					go func() {
						runs, err := l.Claim(ctx, belfry.Claim{WorkerID: belfry.ID{1}, Lanes: []string{"lane"}, Limit: limit})
						if err != nil {
							t.Error(err)
						}
						claimed <- runs
					}()
					synctest.Wait()
					return claimed
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				first := claim(ctx, 1)
				second := claim(t.Context(), 9)
				l.mu.Lock()
				l.open[0].filling = true
				filled := l.open[:1:1]
				l.mu.Unlock()
				s.ready = []*belfry.Run{{}}
				s.Notify(store.TopicReady) // the claim that waits longest gets it
				synctest.Wait()
				end(l, filled, cancel)
				<-first
				synctest.Wait()
				select {
				case runs := <-second:
					if len(runs) != 1 {
						t.Errorf("it has %d runs", len(runs))
					}
				default:
					t.Error("ready runs wait although a claim is open")
				}
			})
		})
	}
}

// What is decided for a burst is fired: the loop takes no more due items than one call of Fire
// fills the claims of a worker with.
func TestOpenSlotsAreThoseThatAreFilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLocal(t.Context(), &readyStore{})
		step := plan.Step{Subject: plan.Subject{Namespace: "default", Policy: &plan.Policy{Spec: belfry.Spec{Type: "handler"}}}, Runs: make([]plan.Run, 1)}
		lane := step.Lane()
		for range 2 { // claim loops of one pool
			go l.Claim(t.Context(), belfry.Claim{WorkerID: belfry.ID{1}, Lanes: []string{lane}, Limit: 3})
		}
		synctest.Wait()
		l.setHeads(map[string]head{lane: {rank: 1, count: 9}})
		open, _ := l.openSlots(lane)
		claims, slots := l.beginFill(slices.Repeat([]plan.Step{step}, 9))
		if len(slots) != 1 || open != slots[0].Free {
			t.Errorf("%d slots are open, filled are %+v", open, slots)
		}
		if open, _ = l.openSlots(lane); open != 3 {
			t.Errorf("while a claim is filled, %d slots are open, want those of the other one", open)
		}
		l.endFill(claims, []*belfry.Run{{WorkerID: belfry.ID{1}}}, nil)
	})
}
