package worker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
)

// fakeSource is a Source whose functions a test may replace; they start as those of its
// fakeStore.
type fakeSource struct {
	claim     func(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error)
	heartbeat func(ctx context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error)
	finish    func(ctx context.Context, rs []belfry.Result) ([]belfry.Verdict, error)
	*fakeStore
}

func newFakeSource() *fakeSource {
	l := &fakeStore{entries: map[belfry.ID]*entry{}, workers: map[belfry.ID]time.Time{}, wake: make(chan struct{})}
	return &fakeSource{claim: l.claim, heartbeat: l.heartbeat, finish: l.finish, fakeStore: l}
}

func (f *fakeSource) Claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	f.record(func(l *fakeStore) { l.claims = append(l.claims, seenClaim{time.Now(), c}) })
	return f.claim(ctx, c)
}

func (f *fakeSource) Heartbeat(ctx context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error) {
	f.record(func(l *fakeStore) { l.heartbeats = append(l.heartbeats, seenHeartbeat{time.Now(), b}) })
	return f.heartbeat(ctx, b)
}

func (f *fakeSource) Finish(ctx context.Context, rs []belfry.Result) ([]belfry.Verdict, error) {
	f.record(func(l *fakeStore) { l.sent = append(l.sent, rs) })
	return f.finish(ctx, rs)
}

// fakeStore keeps runs the way a store does: one holder each, fenced by attempt
// and token, released when its worker leaves, is silent or does not list it.
type fakeStore struct {
	mu      sync.Mutex
	order   []*entry
	entries map[belfry.ID]*entry
	workers map[belfry.ID]time.Time // when each live one was last seen
	wake    chan struct{}           // closed and replaced when something becomes ready

	claims     []seenClaim
	heartbeats []seenHeartbeat
	sent       [][]belfry.Result
}

type seenClaim struct {
	at time.Time
	belfry.Claim
}

type seenHeartbeat struct {
	at time.Time
	belfry.Heartbeat
}

// entry is one run: who holds it, and the results that were accepted.
type entry struct {
	run     belfry.Run
	worker  belfry.ID // zero while ready
	since   time.Time
	results []belfry.Result
	settled bool

	cancelled bool // cancelled while it was held
}

func (l *fakeStore) record(fn func(*fakeStore)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn(l)
}

// add makes runs of a type ready and returns their ids.
func (l *fakeStore) add(n int, change func(*belfry.Run)) []belfry.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []belfry.ID
	for range n {
		run := belfry.Run{ID: belfry.NewID(time.Now()), Namespace: "default", Spec: belfry.DefaultSpec()}
		run.Spec.Type = "work"
		if change != nil {
			change(&run)
		}
		e := &entry{run: run}
		l.entries[run.ID] = e
		l.order = append(l.order, e)
		ids = append(ids, run.ID)
	}
	l.wakeClaims()
	return ids
}

func (l *fakeStore) wakeClaims() {
	close(l.wake)
	l.wake = make(chan struct{})
}

// claim waits until a run is ready.
func (l *fakeStore) claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	for {
		l.mu.Lock()
		runs, wake := l.take(c), l.wake
		l.mu.Unlock()
		if len(runs) > 0 || ctx.Err() != nil {
			return runs, nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// take claims what is ready; mu is held.
func (l *fakeStore) take(c belfry.Claim) []*belfry.Run {
	if _, live := l.workers[c.WorkerID]; !live {
		return nil
	}
	var runs []*belfry.Run
	for _, e := range l.order {
		if len(runs) == c.Limit {
			break
		}
		if e.settled || !e.worker.IsZero() || !slices.Contains(c.Lanes, belfry.Lane(e.run.Spec.Queue, e.run.Spec.HandlerName())) {
			continue
		}
		e.worker, e.since = c.WorkerID, time.Now()
		e.run.Attempt++
		e.run.Token = belfry.NewToken()
		run := e.run
		runs = append(runs, &run)
	}
	return runs
}

func (l *fakeStore) heartbeat(_ context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if b.Register {
		l.workers[b.WorkerID] = now
		return belfry.HeartbeatReply{}, nil
	}
	if _, live := l.workers[b.WorkerID]; !live {
		return belfry.HeartbeatReply{Unknown: true}, nil
	}
	l.workers[b.WorkerID] = now
	if b.Leave {
		delete(l.workers, b.WorkerID)
		l.release(func(e *entry) bool { return e.worker == b.WorkerID })
		return belfry.HeartbeatReply{}, nil
	}
	var reply belfry.HeartbeatReply
	for _, e := range l.order {
		if e.cancelled && e.worker == b.WorkerID {
			reply.Cancel = append(reply.Cancel, belfry.HeldAttempt{RunID: e.run.ID, Attempt: e.run.Attempt})
		}
	}
	if b.Complete {
		for _, h := range b.Held {
			e := l.entries[h.RunID]
			if e == nil || e.worker != b.WorkerID || e.run.Attempt != h.Attempt {
				reply.Lost = append(reply.Lost, h)
			}
		}
		l.release(func(e *entry) bool {
			held := belfry.HeldAttempt{RunID: e.run.ID, Attempt: e.run.Attempt}
			return e.worker == b.WorkerID && now.Sub(e.since) >= 10*time.Second && !slices.Contains(b.Held, held)
		})
	}
	return reply, nil
}

// release makes held runs ready again; mu is held.
func (l *fakeStore) release(which func(*entry) bool) {
	for _, e := range l.order {
		if !e.worker.IsZero() && which(e) {
			e.worker = belfry.ID{}
		}
	}
	l.wakeClaims()
}

// reap releases the runs of workers that were silent for 20 seconds.
func (l *fakeStore) reap() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, seen := range l.workers {
		if time.Since(seen) > 20*time.Second {
			delete(l.workers, id)
		}
	}
	l.release(func(e *entry) bool {
		_, live := l.workers[e.worker]
		return !live
	})
}

func (l *fakeStore) finish(_ context.Context, rs []belfry.Result) ([]belfry.Verdict, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	verdicts := make([]belfry.Verdict, len(rs))
	for i, r := range rs {
		verdicts[i] = belfry.VerdictLate
		e := l.entries[r.RunID]
		if e == nil {
			continue
		}
		if slices.ContainsFunc(e.results, func(x belfry.Result) bool { return x.Token == r.Token }) {
			verdicts[i] = belfry.VerdictAccepted
			continue
		}
		if e.worker.IsZero() || e.run.Attempt != r.Attempt || e.run.Token != r.Token {
			continue
		}
		verdicts[i] = belfry.VerdictAccepted
		e.results = append(e.results, r)
		e.worker = belfry.ID{}
		e.settled = e.cancelled || r.Outcome != belfry.OutcomeInterrupted
	}
	l.wakeClaims()
	return verdicts, nil
}

// cancel notes that a run was cancelled, as a store does for one that is held.
func (l *fakeStore) cancel(id belfry.ID) {
	l.record(func(l *fakeStore) { l.entries[id].cancelled = true })
}

// results lists what was accepted of a run.
func (l *fakeStore) results(id belfry.ID) []belfry.Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.entries[id].results)
}

// settled counts the runs that ended.
func (l *fakeStore) settled() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, e := range l.order {
		if e.settled {
			n++
		}
	}
	return n
}

func (l *fakeStore) seenHeartbeats() []seenHeartbeat {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.heartbeats)
}

func (l *fakeStore) seenClaims() []seenClaim {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.claims)
}

// testPool is a pool under test with its source.
type testPool struct {
	*fakeSource
	pool *Pool
	stop context.CancelFunc
	done chan error
}

// startPool runs a pool in the current bubble. The test must end it.
func startPool(f *fakeSource, opts []Option, handler HandlerFunc) *testPool {
	opts = append([]Option{Log(slog.New(slog.DiscardHandler))}, opts...)
	mux := NewMux()
	mux.Handle("work", handler)
	b := &testPool{fakeSource: f, pool: New(f, mux, opts...), done: make(chan error, 1)}
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	go func() { b.done <- b.pool.Run(ctx) }()
	return b
}

func with(opts ...Option) []Option { return opts }

// end stops the pool and expects a clean drain.
func (b *testPool) end(t *testing.T) {
	t.Helper()
	b.stop()
	if err := <-b.done; err != nil {
		t.Errorf("the drain was not clean: %v", err)
	}
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	if b.pool.outstanding != 0 || len(b.pool.running) != 0 {
		t.Errorf("at the end the pool has %d outstanding results and %d running attempts", b.pool.outstanding, len(b.pool.running))
	}
}

// inBubble runs fn in a synctest bubble.
func inBubble(t *testing.T, fn func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, fn)
}

// sleepAndWait lets time pass until every goroutine waits.
func sleepAndWait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// outcome gives the only result of a run, in short.
func (b *testPool) outcome(t *testing.T, id belfry.ID) belfry.Result {
	t.Helper()
	rs := b.results(id)
	if len(rs) != 1 {
		t.Fatalf("run %s has %d results, want 1", id, len(rs))
	}
	return rs[0]
}

func describe(r belfry.Result) string { return fmt.Sprintf("%s %q", r.Outcome, r.Error) }
