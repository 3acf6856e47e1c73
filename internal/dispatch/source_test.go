package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/worker"
)

// database is the ready runs, with what counts how they were claimed.
type database struct {
	worker.Source // nil: nothing else is called

	mu                  sync.Mutex
	ready               []*belfry.Run
	claimed             map[belfry.ID]int
	polls, waits, byIDs int
	changed             chan struct{}
	hub                 store.Hub
	reads               int
}

func newDatabase() *database {
	return &database{claimed: map[belfry.ID]int{}, changed: make(chan struct{}, 1)}
}

func (d *database) add(n int) (ids []belfry.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for range n {
		now := time.Now()
		run := &belfry.Run{ID: belfry.NewID(now), ReadyAt: now, FiredAt: now}
		d.ready = append(d.ready, run)
		ids = append(ids, run.ID)
	}
	d.hub.Notify(store.TopicReady)
	select {
	case d.changed <- struct{}{}:
	default:
	}
	return ids
}

func (d *database) take(limit int, which func(*belfry.Run) bool) (runs []*belfry.Run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ready = slices.DeleteFunc(d.ready, func(r *belfry.Run) bool {
		if len(runs) == limit || !which(r) {
			return false
		}
		now := time.Now()
		r.StartedAt = &now
		runs = append(runs, r)
		d.claimed[r.ID]++
		return true
	})
	return runs
}

func (d *database) counts() (ready, polls, waits, byIDs int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.ready), d.polls, d.waits, d.byIDs
}

// poller is the store: its claims do not wait.
type poller struct{ *database }

func (p poller) Claim(_ context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	p.mu.Lock()
	p.polls++
	p.mu.Unlock()
	return p.take(c.Limit, func(*belfry.Run) bool { return true }), nil
}

func (p poller) ClaimRuns(_ context.Context, c belfry.Claim, ids []belfry.ID) ([]*belfry.Run, error) {
	if len(ids) > c.Limit {
		return nil, errors.New("more runs than slots")
	}
	p.mu.Lock()
	p.byIDs++
	p.mu.Unlock()
	return p.take(c.Limit, func(r *belfry.Run) bool { return slices.Contains(ids, r.ID) }), nil
}

// Claim waits until runs are ready, as the source without a broker does.
func (d *database) Claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	for {
		if runs := d.take(c.Limit, func(*belfry.Run) bool { return true }); len(runs) > 0 {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.waits++
			return runs, nil
		}
		select {
		case <-d.changed:
		case <-ctx.Done():
			return nil, nil
		}
	}
}

func (d *database) Wakeups(ctx context.Context, topic store.Topic) <-chan struct{} {
	return d.hub.Wakeups(ctx, topic)
}

func (d *database) PollInterval() time.Duration { return 500 * time.Millisecond }

func (d *database) ReadyRuns(_ context.Context, of string, shards []int, limit int) (ids []belfry.ID, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reads++
	if strings.Contains(of, ":") {
		return nil, errors.New("the lane of a user's handler is read")
	}
	if of != lane || len(shards) == 0 {
		return nil, nil
	}
	for _, r := range d.ready[:min(len(d.ready), limit)] {
		ids = append(ids, r.ID)
	}
	return ids, nil
}

func (d *database) CountReady(context.Context, int) (map[string]int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return map[string]int{lane: len(d.ready), "billing:default/send": 1}, nil
}

func (d *database) Workers(context.Context) ([]store.Worker, error) {
	return []store.Worker{{Slots: 100, Lanes: []string{"default/message", lane}}, {Slots: 8, Lanes: []string{lane, "ours:default/mail"}}}, nil
}

// memory is a broker: fault says what it does with announcements, and with calls if it is down.
type memory struct {
	mu    sync.Mutex
	fault func(ids []belfry.ID) []belfry.ID // nil: none
	down  error
	sent  int
	queue chan belfry.ID
}

func newMemory() *memory { return &memory{queue: make(chan belfry.ID, 10_000)} }

func (m *memory) set(fault func([]belfry.ID) []belfry.ID, down error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault, m.down = fault, down
}

func (m *memory) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sent
}

func (m *memory) Announce(_ context.Context, _ string, groups [][]belfry.ID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down != nil {
		return m.down
	}
	runs := slices.Concat(groups...)
	if len(groups[0]) != min(len(runs), 2) {
		return fmt.Errorf("%d runs in a message, for workers that have 8 slots at least", len(groups[0]))
	}
	m.sent += len(runs)
	if m.fault != nil {
		runs = m.fault(runs)
	}
	for _, id := range runs {
		m.queue <- id
	}
	return nil
}

func (m *memory) Receive(ctx context.Context, _ string, max int) (ids []belfry.ID, err error) {
	m.mu.Lock()
	down := m.down
	m.mu.Unlock()
	if down != nil {
		return nil, down
	}
	select {
	case id := <-m.queue:
		ids = append(ids, id)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for len(ids) < max && len(m.queue) > 0 {
		ids = append(ids, <-m.queue)
	}
	return ids, nil
}

func (m *memory) Close() {}

// system is a database, a broker, an announcer, and a worker with two claims under way that
// takes no time to execute runs.
type system struct {
	*database
	broker *memory
	source *Source
}

func inBubble(t *testing.T, test func(t *testing.T, s *system)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		s := &system{database: newDatabase(), broker: newMemory()}
		log := slog.New(slog.DiscardHandler)
		s.source = NewSource(ctx, s.database, poller{s.database}, s.broker, log, nil)
		a := &Announcer{Store: s.database, Queue: s.broker, Owned: func() []int { return []int{0} }, Log: log}
		var parts sync.WaitGroup
		parts.Go(func() { a.Run(ctx) })
		for range 2 {
			parts.Go(func() {
				for ctx.Err() == nil {
					if _, err := s.source.Claim(ctx, belfry.Claim{Lanes: []string{lane}, Limit: 7}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		test(t, s)
		stop()
		parts.Wait()
	})
}

// run adds runs, so many a second, and wants all of them to be claimed once, within a time.
func (s *system) run(t *testing.T, seconds, each int, within time.Duration) {
	t.Helper()
	var ids []belfry.ID
	for range seconds * 10 {
		ids = append(ids, s.add(each/10)...)
		time.Sleep(100 * time.Millisecond)
	}
	time.Sleep(within)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if s.claimed[id] != 1 {
			t.Fatalf("a run was claimed %d times, %d of %d are still ready", s.claimed[id], len(s.ready), len(ids))
		}
	}
}

func TestAnnouncedRunsAreClaimedWithoutWaiting(t *testing.T) {
	inBubble(t, func(t *testing.T, s *system) {
		time.Sleep(300 * time.Millisecond)
		_, before, _, _ := s.counts()
		s.run(t, 10, 50, 100*time.Millisecond)
		_, polls, waits, byIDs := s.counts()
		if polls-before > 11 || waits > 0 || byIDs < 10 {
			t.Errorf("the database was polled %d times in 10 s, waited at %d times, asked for announced runs %d times", polls-before, waits, byIDs)
		}
		if n := s.broker.count(); n < 400 || n > 500 { // but those that were found in the database before
			t.Errorf("500 runs were announced %d times", n)
		}
	})
}

// A faulty broker delays runs for a second or two at most.
func TestFaultyAnnouncementsChangeNothing(t *testing.T) {
	var earlier []belfry.ID
	for name, fault := range map[string]func(ids []belfry.ID) []belfry.ID{
		"lost":      func([]belfry.ID) []belfry.ID { return nil },
		"some lost": func(ids []belfry.ID) []belfry.ID { return ids[:len(ids)/2] },
		"doubled":   func(ids []belfry.ID) []belfry.ID { return slices.Concat(ids, ids) },
		"reordered": func(ids []belfry.ID) []belfry.ID { ids = slices.Clone(ids); slices.Reverse(ids); return ids },
		"strange":   func(ids []belfry.ID) []belfry.ID { return append(newIDs(3), ids...) },
		"late": func(ids []belfry.ID) (out []belfry.ID) {
			out, earlier = earlier, slices.Clone(ids)
			return out
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *system) {
				s.broker.set(fault, nil)
				s.run(t, 10, 50, 3*time.Second)
			})
		})
	}
}

// Without its broker a worker claims as it would without --dispatch, and uses the broker
// again when it is back.
func TestABrokerThatIsDownIsBridged(t *testing.T) {
	for name, fail := range map[string]func(m *memory){
		"calls fail":      func(m *memory) { m.set(nil, errors.New("connection refused")) },
		"nothing arrives": func(m *memory) { m.set(func([]belfry.ID) []belfry.ID { return nil }, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *system) {
				s.run(t, 3, 50, 100*time.Millisecond)
				fail(s.broker)
				s.run(t, 5, 50, 0) // it takes a while to notice
				if !s.source.current().isBridged {
					t.Fatal("after 5 s without the broker it is still relied upon")
				}
				_, _, before, _ := s.counts()
				s.run(t, 10, 500, 0)
				if _, _, waits, _ := s.counts(); waits-before < 100 {
					t.Errorf("claims waited for %d notifications of the database", waits-before)
				}
				s.broker.set(nil, nil)
				s.run(t, 60, 50, time.Second)
				_, polls, _, before := s.counts()
				s.run(t, 5, 50, time.Second)
				if _, after, _, byIDs := s.counts(); s.source.current().isBridged || byIDs == before || after-polls > 8 {
					t.Errorf("after the broker was back %d claims were for announced runs, and %d for others", byIDs-before, after-polls)
				}
			})
		})
	}
}

// A run that nobody has a slot for is announced less and less often.
func TestReadyRunsAreAnnouncedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		d, m := newDatabase(), newMemory()
		owned := []int{0}
		a := &Announcer{Store: d, Queue: m, Owned: func() []int { return owned }, Log: slog.New(slog.DiscardHandler)}
		var running sync.WaitGroup
		running.Go(func() { a.Run(ctx) })
		d.add(1)
		for _, step := range []struct {
			after time.Duration
			sent  int
		}{{time.Second, 1}, {5 * time.Second, 2}, {8500 * time.Millisecond, 2}, {2 * time.Second, 3}, {20 * time.Second, 4}, {40 * time.Second, 5}, {2 * time.Minute, 8}} {
			time.Sleep(step.after)
			synctest.Wait()
			if n := m.count(); n != step.sent {
				t.Errorf("it was announced %d times, want %d", n, step.sent)
			}
		}
		d.take(1, func(*belfry.Run) bool { return true })
		time.Sleep(time.Second)
		stop()
		running.Wait()
		if len(a.announced[lane]) != 0 {
			t.Error("a run that is not ready any more is remembered")
		}
		if d.reads > 1200 {
			t.Errorf("the database was read %d times in 3 minutes", d.reads)
		}
	})
}
