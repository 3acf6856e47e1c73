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
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// watched counts what is asked of a store, and may be deaf to hints.
type watched struct {
	store.Store
	claims, looks, broken atomic.Int64
	deaf                  bool
}

func (s *watched) Claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	s.claims.Add(1)
	return s.Store.Claim(ctx, c)
}

func (s *watched) Ready(ctx context.Context, limit int) (map[string]int, error) {
	s.looks.Add(1)
	if s.broken.Add(-1) >= 0 {
		return nil, errors.New("no answer")
	}
	return s.Store.Ready(ctx, limit)
}

func (s *watched) Wakeups(ctx context.Context, topic store.Topic) <-chan struct{} {
	if s.deaf {
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

// claims waits for runs of lanes in the background.
func claims(t *testing.T, c *control.Control, worker belfry.ID, limit int, wait time.Duration, lanes ...string) <-chan got {
	answer, start := make(chan got, 1), time.Now()
	go func() {
		runs, err := c.Claim(t.Context(), ns, belfry.Claim{WorkerID: worker, Lanes: lanes, Limit: limit}, wait)
		answer <- got{len(runs), time.Since(start), err}
	}()
	synctest.Wait()
	return answer
}

// want checks what a claim came to, within the patience of the watch.
func (g got) want(t *testing.T, runs int, after, within time.Duration) {
	t.Helper()
	if sc.err != nil || sc.runs != runs || sc.after < after || sc.after > after+within {
		t.Errorf("got %d runs after %v, error %v; want %d within %v after %v", sc.runs, sc.after, sc.err, runs, within, after)
	}
}

func gated(t *testing.T, test func(t *testing.T, s *watched, c *control.Control)) {
	synctest.Test(t, func(t *testing.T) {
		s := &watched{Store: controltest.Open(t)}
		test(t, s, control.New(s, plan.Defaults{}))
	})
}

func TestAClaimWaitsForWhatItIsFor(t *testing.T) {
	gated(t, func(t *testing.T, s *watched, c *control.Control) {
		job, other := controltest.Create(t, c, controltest.WorkerInput("send")), controltest.Create(t, c, controltest.WorkerInput("other"))
		w := register(t, c, "default/send")
		first := claims(t, c, w, 10, 20*time.Second, "default/send")
		second := claims(t, c, w, 10, 20*time.Second, "default/send", "slow/send")
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
		looks := s.looks.Load()
		ready(t, s, job.ID, 1)
		time.Sleep(time.Minute)
		if s.looks.Load() != looks {
			t.Error("somebody looks although nobody waits")
		}
		(<-claims(t, c, w, 10, 20*time.Second, "default/send")).want(t, 1, 0, 0)
	})
}

func TestAClaimEndsWithItsCaller(t *testing.T) {
	gated(t, func(t *testing.T, s *watched, c *control.Control) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		runs, err := c.Claim(ctx, ns, belfry.Claim{Lanes: []string{"default/x"}, Limit: 1}, time.Hour)
		if len(runs) != 0 || err != nil || time.Since(start) != 3*time.Second {
			t.Errorf("got %v after %v, error %v", runs, time.Since(start), err)
		}
	})
}

func TestAThousandWorkersDoNotAllAsk(t *testing.T) {
	gated(t, func(t *testing.T, s *watched, c *control.Control) {
		const n = 1000
		w := register(t, c, "default/send")
		job := controltest.Create(t, c, controltest.WorkerInput("send"))
		var waiting []<-chan got
		for range n {
			waiting = append(waiting, claims(t, c, w, 1, 25*time.Second, "default/send"))
		}
		asked, looked := s.claims.Load(), s.looks.Load()
		for i := range 5 {
			time.Sleep(time.Second)
			ready(t, s, job.ID, 2)
			for _, w := range waiting[2*i : 2*i+2] { // the oldest first
				(<-w).want(t, 1, time.Duration(i+1)*time.Second, 50*time.Millisecond)
			}
		}
		if claims, looks := s.claims.Load()-asked, s.looks.Load()-looked; claims != 10 || looks > 20 {
			t.Errorf("ten runs took %d claims and %d looks", claims, looks)
		}
		for _, w := range waiting[10:] {
			(<-w).want(t, 0, 25*time.Second, 0)
		}
	})
}

func TestEverybodyGetsSomethingIfThereIsEnough(t *testing.T) {
	gated(t, func(t *testing.T, s *watched, c *control.Control) {
		w := register(t, c, "default/send")
		var waiting []<-chan got
		for range 16 { // they would take more than is counted at once
			waiting = append(waiting, claims(t, c, w, 100, 25*time.Second, "default/send"))
		}
		drafts := make([]validate.Input, 1200)
		at := time.Now().UTC().Add(time.Second).Format(time.RFC3339)
		for i := range drafts {
			drafts[i] = controltest.WorkerInput("send")
			drafts[i].Spec.Schedule = at
		}
		if _, err := c.Import(t.Context(), ns, lines(drafts...), none); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		for range 3 {
			controltest.Fire(t, s)
		}
		served := 0
		for _, w := range waiting {
			if g := <-w; sc.runs > 0 {
				served += sc.runs
				sc.want(t, sc.runs, 2*time.Second, 200*time.Millisecond)
			}
		}
		if served != len(drafts) {
			t.Errorf("%d of %d runs were claimed", served, len(drafts))
		}
	})
}

func TestAStrangerDoesNotKeepTheOthersWaiting(t *testing.T) {
	gated(t, func(t *testing.T, s *watched, c *control.Control) {
		w := register(t, c, "default/send")
		job := controltest.Create(t, c, controltest.WorkerInput("send"))
		stranger := belfry.NewID(time.Now())
		strange := claims(t, c, stranger, 1, 20*time.Second, "default/send")
		known := claims(t, c, w, 1, 20*time.Second, "default/send")
		ready(t, s, job.ID, 1)
		(<-known).want(t, 1, 0, 200*time.Millisecond)
		asked := s.claims.Load()
		ready(t, s, job.ID, 1)
		time.Sleep(10 * time.Second)
		if n := s.claims.Load() - asked; n > 20 {
			t.Errorf("the stranger asked %d times", n)
		}
		if _, err := c.Heartbeat(t.Context(), ns, belfry.Heartbeat{WorkerID: stranger, Slots: 1, Lanes: []string{"default/send"}, Register: true}); err != nil {
			t.Fatal(err)
		}
		(<-strange).want(t, 1, 10*time.Second, 2*time.Second)
	})
}

func TestAClaimNeedsNoHint(t *testing.T) {
	gated(t, func(t *testing.T, s *watched, c *control.Control) {
		s.deaf = true
		w := register(t, c, "default/send")
		job := controltest.Create(t, c, controltest.WorkerInput("send"))
		wait := claims(t, c, w, 1, time.Hour, "default/send")
		time.Sleep(time.Second)
		ready(t, s, job.ID, 1)
		(<-wait).want(t, 1, time.Second, s.PollEvery())
	})
}

func TestALookThatFailsIsRepeated(t *testing.T) {
	gated(t, func(t *testing.T, s *watched, c *control.Control) {
		w := register(t, c, "default/send")
		job := controltest.Create(t, c, controltest.WorkerInput("send"))
		s.broken.Store(3)
		wait := claims(t, c, w, 1, time.Hour, "default/send")
		ready(t, s, job.ID, 1)
		(<-wait).want(t, 1, 2*time.Second, 2*time.Second)
	})
}

// Many workers and many runs, in real time: every run is claimed once.
func TestManyWorkersShareManyRuns(t *testing.T) {
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
		w := register(t, c, "default/send")
		all.Go(func() {
			for ctx.Err() == nil {
				claimed, err := c.Claim(ctx, ns, belfry.Claim{WorkerID: w, Lanes: []string{"default/send"}, Limit: 3}, 200*time.Millisecond)
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
