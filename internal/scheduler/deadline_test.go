package scheduler

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// polledStore is polled as often as a database that several nodes share, and loses all
// notifications of plans if it is told to.
type polledStore struct {
	store.Store
	deaf bool
}

func (s *polledStore) PollInterval() time.Duration { return 500 * time.Millisecond }

func (s *polledStore) Wakeups(ctx context.Context, topic store.Topic) <-chan struct{} {
	if s.deaf && topic == store.TopicPlans {
		return nil
	}
	return s.Store.Wakeups(ctx, topic)
}

// silentStore has connections that go silent: the next call of each method hangs until
// its context ends.
type silentStore struct {
	polledStore
	mu     sync.Mutex
	silent map[string]bool
}

func (s *silentStore) silence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = map[string]bool{"Upcoming": true, "PlansByJob": true, "PendingTriggers": true, "Workers": true, "CountReady": true, "Promote": true}
}

func (s *silentStore) wait(ctx context.Context, method string) error {
	s.mu.Lock()
	silent := s.silent[method]
	delete(s.silent, method)
	s.mu.Unlock()
	if silent {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (s *silentStore) Upcoming(ctx context.Context, w store.Window) ([]store.Planned, error) {
	if err := s.wait(ctx, "Upcoming"); err != nil {
		return nil, err
	}
	return s.Store.Upcoming(ctx, w)
}

func (s *silentStore) PlansByJob(ctx context.Context, jobs []belfry.ID) ([]store.Due, error) {
	if err := s.wait(ctx, "PlansByJob"); err != nil {
		return nil, err
	}
	return s.Store.PlansByJob(ctx, jobs)
}

func (s *silentStore) PendingTriggers(ctx context.Context, shards []int, skip []belfry.ID, limit int) ([]store.PendingTrigger, error) {
	if err := s.wait(ctx, "PendingTriggers"); err != nil {
		return nil, err
	}
	return s.Store.PendingTriggers(ctx, shards, skip, limit)
}

func (s *silentStore) Workers(ctx context.Context) ([]store.Worker, error) {
	if err := s.wait(ctx, "Workers"); err != nil {
		return nil, err
	}
	return s.Store.Workers(ctx)
}

func (s *silentStore) CountReady(ctx context.Context, limit int) (map[string]int, error) {
	if err := s.wait(ctx, "CountReady"); err != nil {
		return nil, err
	}
	return s.Store.CountReady(ctx, limit)
}

func (s *silentStore) Promote(ctx context.Context, shards []int, limit int) (int, time.Time, error) {
	if err := s.wait(ctx, "Promote"); err != nil {
		return 0, time.Time{}, err
	}
	return s.Store.Promote(ctx, shards, limit)
}

// Reads that get no answer hold up the scheduler for seconds, not for ever.
func TestHungReadsEnd(t *testing.T) {
	inBubble(t, func(b *bubble) {
		every := b.create("* * * * * *", func(s *belfry.Spec) { s.Overlap = belfry.OverlapParallel })
		s := &silentStore{polledStore: polledStore{Store: b.store}}
		b.start(s)
		b.sleep(30 * time.Second)
		s.silence()
		created := b.create(b.store.Now().Add(5*time.Second).Format(time.RFC3339), nil)
		b.sleep(10 * time.Second)
		before := len(b.runs(every))
		b.sleep(10 * time.Second)
		if n := len(b.runs(every)); n < before+10 {
			b.Errorf("10 seconds after its reads hung the scheduler fired %d times in 10 seconds", n-before)
		}
		if runs := b.runs(created); len(runs) != 1 {
			b.Errorf("a job that was created meanwhile has the runs %+v", runs)
		}
	})
}

// hungStore does not answer the loop at all while it is hung.
type hungStore struct {
	polledStore
	mu   sync.Mutex
	hung bool
}

func (s *hungStore) set(hung bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hung = hung
}

func (s *hungStore) wait(ctx context.Context) error {
	s.mu.Lock()
	hung := s.hung
	s.mu.Unlock()
	if hung {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (s *hungStore) Fire(ctx context.Context, owner belfry.ID, steps []plan.Step, slots ...store.FreeSlots) (store.FireResult, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := s.wait(ctx); err != nil {
		return store.FireResult{}, err
	}
	return s.Store.Fire(ctx, owner, steps, slots...)
}

func (s *hungStore) PendingTriggers(ctx context.Context, shards []int, skip []belfry.ID, limit int) ([]store.PendingTrigger, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Store.PendingTriggers(ctx, shards, skip, limit)
}

// A scheduler notices that the store does not answer its loop, also if it has nothing
// to fire, and that the store answers again.
func TestStalledScheduler(t *testing.T) {
	for _, schedule := range []string{"* * * * * *", "0 0 1 1 *"} {
		t.Run(schedule, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.create(schedule, func(s *belfry.Spec) { s.Overlap = belfry.OverlapParallel })
				s := &hungStore{polledStore: polledStore{Store: b.store}}
				b.start(s)
				b.sleep(time.Minute)
				if stalled := b.scheduler.Stalled(); stalled != 0 {
					b.Errorf("a healthy scheduler is stalled for %s", stalled)
				}
				s.set(true)
				b.sleep(20 * time.Second)
				if stalled := b.scheduler.Stalled(); stalled < 10*time.Second {
					b.Errorf("after 20 seconds without an answer it is stalled for %s", stalled)
				}
				s.set(false)
				b.sleep(10 * time.Second)
				if stalled := b.scheduler.Stalled(); stalled != 0 {
					b.Errorf("10 seconds after the store answers again it is stalled for %s", stalled)
				}
			})
		})
	}
}

// busyStore prunes for as long as it may, and never ends.
type busyStore struct {
	polledStore
	pruned int
}

func (s *busyStore) Prune(ctx context.Context, _ time.Duration) (int, error) {
	s.pruned++
	<-ctx.Done()
	return 0, ctx.Err()
}

// However long pruning takes, retries and lost workers do not wait for it.
func TestPruningDelaysNothing(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.handlerResult = func(run *belfry.Run) error {
			if run.Attempt == 1 {
				return errRefused
			}
			return nil
		}
		b.create("2000-01-01T00:00:30Z", func(s *belfry.Spec) {
			s.MaxRetries, s.RetryBackoff, s.RetryBaseSeconds, s.RetryJitter = belfry.Some(1), belfry.BackoffFixed, belfry.Some(7.0), belfry.Some(0.0)
		})
		s := &busyStore{polledStore: polledStore{Store: b.store}}
		b.start(s)
		b.sleep(2 * time.Second)
		// A worker that is never heard of again, with a run.
		lost := belfry.Heartbeat{WorkerID: belfry.NewID(time.Now()), Node: "lost", Register: true, Slots: 1, Lanes: []string{belfry.Spec{Type: belfry.TypeWorker, Handler: "x", Queue: "slow"}.Lane("default")}}
		if _, err := b.store.Heartbeat(b.Context(), lost); err != nil {
			b.Fatal(err)
		}
		job := b.create("2000-01-01T00:00:10Z", func(s *belfry.Spec) {
			s.Type, s.Handler, s.Queue, s.TimeoutSeconds = belfry.TypeWorker, "x", "slow", 3600
		})
		b.sleep(10 * time.Second)
		runs, err := b.store.Claim(b.Context(), belfry.Claim{WorkerID: lost.WorkerID, Lanes: lost.Lanes, Limit: 1})
		if err != nil || len(runs) != 1 {
			b.Fatalf("claimed %v: %v", runs, err)
		}
		claimed := time.Now()
		for b.runs(job)[0].Status == belfry.RunRunning && time.Since(claimed) < 2*time.Minute {
			b.sleep(time.Second)
		}
		if took := time.Since(claimed); took > 30*time.Second {
			b.Errorf("the run of a lost worker was offered again after %s", took)
		}
		b.sleep(time.Minute)
		if calls := b.handled(); len(calls) != 2 || calls[1].at.Sub(calls[0].at) > 8*time.Second {
			b.Errorf("the retry after 7 seconds is one of %d calls: %+v", len(calls), calls)
		}
		if s.pruned < 2 {
			b.Errorf("history was pruned %d times", s.pruned)
		}
	})
}

// reapStore has a number of lost attempts.
type reapStore struct {
	polledStore
	left  int
	calls []time.Time
}

func (s *reapStore) Reap(_ context.Context, _ time.Duration, limit int) ([]belfry.Result, error) {
	s.calls = append(s.calls, time.Now())
	n := min(s.left, limit)
	s.left -= n
	return make([]belfry.Result, n), nil
}

// All attempts of a large worker are offered again in one round.
func TestReapUntilNothingIsLeft(t *testing.T) {
	inBubble(t, func(b *bubble) {
		s := &reapStore{polledStore: polledStore{Store: b.store}, left: 10*reapLimit + 1}
		b.start(s)
		b.sleep(30 * time.Second)
		if s.left != 0 || len(s.calls) < 11 || s.calls[10].Sub(s.calls[0]) > time.Second {
			b.Errorf("%d attempts are left after %d calls", s.left, len(s.calls))
		}
	})
}

// Plans that cannot be fired for want of workers hold up nobody else's, even if every
// notification is lost.
func TestOverduePlansDelayNoOthers(t *testing.T) {
	inBubble(t, func(b *bubble) {
		for i := range 3 * pageSize {
			b.create("2000-01-01T00:00:01Z", func(s *belfry.Spec) {
				s.Type, s.Handler, s.Queue = belfry.TypeWorker, "x", fmt.Sprint("unserved-", i%20)
			})
		}
		b.start(&polledStore{Store: b.store, deaf: true})
		b.sleep(30 * time.Second)
		job := b.create(b.store.Now().Add(2*time.Second).Format(time.RFC3339), nil)
		b.sleep(4 * time.Second)
		if calls := b.handled(); len(calls) != 1 || calls[0].run.JobID != job {
			b.Errorf("2 seconds after it was due a job has %d calls", len(calls))
		}
	})
}

// countingStore counts how often pending triggers are read.
type countingStore struct {
	polledStore
	mu    sync.Mutex
	reads int
}

func (s *countingStore) PendingTriggers(ctx context.Context, shards []int, skip []belfry.ID, limit int) ([]store.PendingTrigger, error) {
	s.mu.Lock()
	s.reads++
	s.mu.Unlock()
	return s.Store.PendingTriggers(ctx, shards, skip, limit)
}

// Triggers of a job that cannot be fired hold up no others, and are not read all the
// time.
func TestTriggersOfAQuarantinedJobDelayNoOthers(t *testing.T) {
	inBubble(t, func(b *bubble) {
		bad, good := b.createUnreadable("no rule at all"), b.create("0 0 1 1 *", nil)
		s := &countingStore{polledStore: polledStore{Store: b.store}}
		b.start(s)
		var triggers []plan.Trigger
		for range 3 * maxTriggers {
			triggers = append(triggers, plan.Trigger{ID: belfry.NewID(time.Now()), Namespace: "default", JobID: bad, Kind: belfry.KindManual, At: b.store.Now()})
		}
		if err := b.store.Trigger(b.Context(), triggers, nil); err != nil {
			b.Fatal(err)
		}
		b.sleep(10 * time.Second)
		s.reads = 0
		other := plan.Trigger{ID: belfry.NewID(time.Now()), Namespace: "default", JobID: good, Kind: belfry.KindManual, At: b.store.Now()}
		if err := b.store.Trigger(b.Context(), []plan.Trigger{other}, nil); err != nil {
			b.Fatal(err)
		}
		b.sleep(time.Second)
		if calls := b.handled(); len(calls) != 1 {
			b.Errorf("a second after it was asked for, the other run has %d calls", len(calls))
		}
		b.sleep(9 * time.Second)
		if s.reads > 40 {
			b.Errorf("triggers were read %d times in 10 seconds", s.reads)
		}
	})
}

// troubledStore fails as a server that has run out of something, for whatever it is
// asked.
type troubledStore struct {
	polledStore
	from, until time.Time
}

func (s *troubledStore) Fire(ctx context.Context, owner belfry.ID, steps []plan.Step, slots ...store.FreeSlots) (store.FireResult, error) {
	if now := time.Now(); !now.Before(s.from) && now.Before(s.until) {
		return store.FireResult{}, fmt.Errorf("fire: %w", store.ErrServer)
	}
	return s.Store.Fire(ctx, owner, steps, slots...)
}

// Trouble of the server quarantines no job, and firing resumes when it ends.
func TestTroubleOfTheServerQuarantinesNothing(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.slots = 100
		var jobs []belfry.ID
		for range 50 {
			jobs = append(jobs, b.create("2000-01-01T00:00:10Z", nil))
		}
		b.start(&troubledStore{polledStore: polledStore{Store: b.store}, until: time.Now().Add(20 * time.Second)})
		b.sleep(18 * time.Second)
		for _, id := range jobs {
			if job, err := b.store.Job(b.Context(), "default", id); err != nil || job.Quarantined != "" {
				b.Fatalf("a job is quarantined: %q (%v)", job.Quarantined, err)
			}
		}
		b.sleep(7 * time.Second)
		if n := len(b.handled()); n != len(jobs) {
			b.Errorf("5 seconds after the trouble %d of %d jobs have run", n, len(jobs))
		}
	})
}
