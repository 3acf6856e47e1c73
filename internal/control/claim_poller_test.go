package control_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/validate"
)

// countingStore counts claims and polls, and may be without notifications.
type countingStore struct {
	store.Store
	claims, polls, failing atomic.Int64
	silent                 bool
}

func (s *countingStore) ClaimBelow(ctx context.Context, c belfry.Claim, rank int64) ([]*belfry.Run, error) {
	s.claims.Add(1)
	return s.Store.ClaimBelow(ctx, c, rank)
}

func (s *countingStore) CountReady(ctx context.Context, limit int) (map[string]int, error) {
	s.polls.Add(1)
	if s.failing.Add(-1) >= 0 {
		return nil, errors.New("no answer")
	}
	return s.Store.CountReady(ctx, limit)
}

func (s *countingStore) Wakeups(ctx context.Context, topic store.Topic) <-chan struct{} {
	if s.silent {
		return nil
	}
	return s.Store.Wakeups(ctx, topic)
}

// got is what a waiting claim came to.
type got struct {
	runs  int
	after time.Duration
	err   error
}

// claims waits for runs of handlers in the background.
func claims(t *testing.T, c *control.Control, worker belfry.ID, limit int, wait time.Duration, handlers ...string) <-chan got {
	answer, start := make(chan got, 1), time.Now()
	go func() {
		runs, err := c.Claim(t.Context(), ns, belfry.Claim{WorkerID: worker, Handlers: handlers, Limit: limit, WaitSeconds: belfry.Some(wait.Seconds())})
		answer <- got{len(runs), time.Since(start), err}
	}()
	synctest.Wait()
	return answer
}

// want checks what a claim came to, within the delay of the poller.
func (g got) want(t *testing.T, runs int, after, within time.Duration) {
	t.Helper()
	if g.err != nil || g.runs != runs || g.after < after || g.after > after+within {
		t.Errorf("got %d runs after %v, error %v; want %d within %v after %v", g.runs, g.after, g.err, runs, within, after)
	}
}

func withPoller(t *testing.T, test func(t *testing.T, s *countingStore, c *control.Control)) {
	synctest.Test(t, func(t *testing.T) {
		s := &countingStore{Store: controltest.Open(t)}
		test(t, s, control.New(s, plan.Defaults{}))
	})
}

func TestClaimWaitsForRunsOfItsHandlers(t *testing.T) {
	withPoller(t, func(t *testing.T, s *countingStore, c *control.Control) {
		job, other := controltest.Create(t, c, controltest.WorkerInput("send")), controltest.Create(t, c, controltest.WorkerInput("other"))
		w := controltest.Register(t, c, 10, "send")
		first := claims(t, c, w, 10, 20*time.Second, "send")
		second := claims(t, c, w, 10, 20*time.Second, "send", "sent")
		time.Sleep(5 * time.Second)
		ready(t, s, other.ID, 1)
		time.Sleep(5 * time.Second)
		asked := s.claims.Load()
		ready(t, s, job.ID, 1)
		(<-first).want(t, 1, 10*time.Second, 20*time.Millisecond)
		if n := s.claims.Load() - asked; n != 1 {
			t.Errorf("one run took %d claims", n)
		}
		(<-second).want(t, 0, 20*time.Second, 0)
		time.Sleep(time.Minute)
		polls := s.polls.Load()
		ready(t, s, job.ID, 1)
		time.Sleep(time.Minute)
		if s.polls.Load() != polls {
			t.Error("it polls although no claim waits")
		}
		(<-claims(t, c, w, 10, 20*time.Second, "send")).want(t, 1, 0, 0)
	})
}

func TestClaimEndsWithItsCaller(t *testing.T) {
	withPoller(t, func(t *testing.T, s *countingStore, c *control.Control) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		runs, err := c.Claim(ctx, ns, belfry.Claim{Handlers: []string{"x"}, Limit: 1, WaitSeconds: belfry.Some(3600.0)})
		if len(runs) != 0 || err != nil || time.Since(start) != 3*time.Second {
			t.Errorf("got %v after %v, error %v", runs, time.Since(start), err)
		}
	})
}

func TestClaimsOfAThousandWorkersDoNotAllAsk(t *testing.T) {
	withPoller(t, func(t *testing.T, s *countingStore, c *control.Control) {
		const n = 1000
		w := controltest.Register(t, c, 10, "send")
		job := controltest.Create(t, c, controltest.WorkerInput("send"))
		var waiting []<-chan got
		for range n {
			waiting = append(waiting, claims(t, c, w, 1, 25*time.Second, "send"))
		}
		asked, polled := s.claims.Load(), s.polls.Load()
		for i := range 5 {
			time.Sleep(time.Second)
			ready(t, s, job.ID, 2)
			for _, w := range waiting[2*i : 2*i+2] { // the oldest first
				(<-w).want(t, 1, time.Duration(i+1)*time.Second, 50*time.Millisecond)
			}
		}
		if claims, polls := s.claims.Load()-asked, s.polls.Load()-polled; claims != 10 || polls > 20 {
			t.Errorf("ten runs took %d claims and %d polls", claims, polls)
		}
		for _, w := range waiting[10:] {
			(<-w).want(t, 0, 25*time.Second, 0)
		}
	})
}

func TestClaimsAreAllServedIfRunsSuffice(t *testing.T) {
	withPoller(t, func(t *testing.T, s *countingStore, c *control.Control) {
		w := controltest.Register(t, c, 10, "send")
		var waiting []<-chan got
		for range 16 { // they would take more than is counted at once
			waiting = append(waiting, claims(t, c, w, 100, 25*time.Second, "send"))
		}
		inputs := make([]validate.Input, 1200)
		at := time.Now().UTC().Add(time.Second).Format(time.RFC3339)
		for i := range inputs {
			inputs[i] = controltest.WorkerInput("send")
			inputs[i].Spec.Schedule = at
		}
		if _, err := c.Import(t.Context(), ns, lines(inputs...), none, false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		for range 3 {
			controltest.Fire(t, s)
		}
		served := 0
		for _, w := range waiting {
			if g := <-w; g.runs > 0 {
				served += g.runs
				g.want(t, g.runs, 2*time.Second, 200*time.Millisecond)
			}
		}
		if served != len(inputs) {
			t.Errorf("%d of %d runs were claimed", served, len(inputs))
		}
	})
}

func TestClaimOfAnUnregisteredWorkerDoesNotBlockOthers(t *testing.T) {
	withPoller(t, func(t *testing.T, s *countingStore, c *control.Control) {
		w := controltest.Register(t, c, 10, "send")
		job := controltest.Create(t, c, controltest.WorkerInput("send"))
		unregistered := belfry.NewID(time.Now())
		waiting := claims(t, c, unregistered, 1, 20*time.Second, "send")
		known := claims(t, c, w, 1, 20*time.Second, "send")
		ready(t, s, job.ID, 1)
		(<-known).want(t, 1, 0, 200*time.Millisecond)
		asked := s.claims.Load()
		ready(t, s, job.ID, 1)
		time.Sleep(10 * time.Second)
		if n := s.claims.Load() - asked; n > 20 {
			t.Errorf("the unregistered worker asked %d times", n)
		}
		if _, err := c.Heartbeat(t.Context(), ns, belfry.Heartbeat{WorkerID: unregistered, Slots: 1, Handlers: []string{"send"}, Register: true}); err != nil {
			t.Fatal(err)
		}
		(<-waiting).want(t, 1, 10*time.Second, 2*time.Second)
	})
}

func TestClaimNeedsNoNotification(t *testing.T) {
	withPoller(t, func(t *testing.T, s *countingStore, c *control.Control) {
		s.silent = true
		w := controltest.Register(t, c, 10, "send")
		job := controltest.Create(t, c, controltest.WorkerInput("send"))
		wait := claims(t, c, w, 1, time.Hour, "send")
		time.Sleep(time.Second)
		ready(t, s, job.ID, 1)
		(<-wait).want(t, 1, time.Second, s.PollInterval())
	})
}

func TestClaimPollThatFailsIsRepeated(t *testing.T) {
	withPoller(t, func(t *testing.T, s *countingStore, c *control.Control) {
		w := controltest.Register(t, c, 10, "send")
		job := controltest.Create(t, c, controltest.WorkerInput("send"))
		s.failing.Store(3)
		wait := claims(t, c, w, 1, time.Hour, "send")
		ready(t, s, job.ID, 1)
		(<-wait).want(t, 1, 2*time.Second, 2*time.Second)
	})
}

// Many workers and many runs, in real time: every run is claimed once.
func TestClaimStorm(t *testing.T) {
	s := controltest.Open(t)
	c := control.New(s, plan.Defaults{})
	const workers, runs = 20, 60
	job := controltest.Create(t, c, controltest.WorkerInput("send"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	seen := map[string]bool{}
	var all sync.WaitGroup
	for range workers {
		w := controltest.Register(t, c, 10, "send")
		all.Go(func() {
			for ctx.Err() == nil {
				claimed, err := c.Claim(ctx, ns, belfry.Claim{WorkerID: w, Handlers: []string{"send"}, Limit: 3, WaitSeconds: belfry.Some(0.2)})
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				mu.Lock()
				for _, run := range claimed {
					id := fmt.Sprint(run.ID, run.Attempt)
					if seen[id] {
						t.Errorf("%s was claimed twice", id)
					}
					seen[id] = true
				}
				if len(seen) == runs {
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	for range runs / 10 {
		ready(t, s, job.ID, 10)
	}
	all.Wait()
	if len(seen) != runs {
		t.Errorf("%d of %d runs were claimed", len(seen), runs)
	}
}
