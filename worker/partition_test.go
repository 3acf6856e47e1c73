package worker

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

// partitionedSource is the connection of one worker to a store that others use too. While it is
// cut, calls hang, or fail at once, or are carried out and their answers lost.
type partitionedSource struct {
	*fakeSource
	cut  atomic.Bool
	mode string
}

var errCut = errors.New("no route to host")

func newPartitionedSource(l *fakeStore, mode string) *partitionedSource {
	k := &partitionedSource{mode: mode}
	k.fakeSource = &fakeSource{fakeStore: l}
	k.claim = func(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
		return acrossPartition(ctx, k, func() ([]*belfry.Run, error) { return l.claim(ctx, c) })
	}
	k.heartbeat = func(ctx context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error) {
		return acrossPartition(ctx, k, func() (belfry.HeartbeatReply, error) { return l.heartbeat(ctx, b) })
	}
	k.finish = func(ctx context.Context, rs []belfry.Result) ([]belfry.Verdict, error) {
		return acrossPartition(ctx, k, func() ([]belfry.Verdict, error) { return l.finish(ctx, rs) })
	}
	return k
}

func acrossPartition[T any](ctx context.Context, k *partitionedSource, call func() (T, error)) (T, error) {
	var none T
	if k.cut.Load() && k.mode != "deaf" {
		if k.mode == "hangs" {
			<-ctx.Done()
		}
		return none, errCut
	}
	out, err := call()
	if k.cut.Load() { // also for a claim that waited since before
		return none, errCut
	}
	return out, err
}

// A worker that is cut off for a minute loses what it held to another, comes back
// by itself as a new incarnation, and every run is settled by exactly one result.
func TestPartitionOfAMinuteLosesNothing(t *testing.T) {
	for _, mode := range []string{"fails", "hangs", "deaf"} {
		t.Run("the link "+mode, func(t *testing.T) {
			inBubble(t, func(t *testing.T) { testPartition(t, mode) })
		})
	}
}

func testPartition(t *testing.T, mode string) {
	l := newFakeSource().fakeStore
	var log bytes.Buffer
	var lost atomic.Int32
	near, far := newPartitionedSource(l, mode), newPartitionedSource(l, mode)
	handler := func(ctx context.Context, run *belfry.Run) error {
		if !sleep(ctx, 30*time.Second) && context.Cause(ctx) == ErrLeaseLost {
			lost.Add(1)
		}
		return ctx.Err()
	}
	a := startPool(far.fakeSource, with(Concurrency(10), Node("far"), Log(slog.New(slog.NewTextHandler(&log, nil)))), handler)
	b := startPool(near.fakeSource, with(Concurrency(10), Node("near")), handler)
	first := l.add(100, func(r *belfry.Run) { r.Spec.TimeoutSeconds = 600 })
	sleepAndWait(10 * time.Second)
	worker := a.pool.worker
	far.cut.Store(true)
	for range 30 { // a minute, with a reaper that looks every two seconds
		sleepAndWait(2 * time.Second)
		if mode != "deaf" { // there heartbeats do arrive
			l.reap()
		}
	}
	far.cut.Store(false)
	second := l.add(20, nil)
	for range 150 {
		sleepAndWait(2 * time.Second)
		l.reap()
	}
	for _, id := range append(first, second...) {
		var settled []belfry.Result
		for _, r := range l.results(id) {
			if r.Outcome != belfry.OutcomeInterrupted {
				settled = append(settled, r)
			}
		}
		if len(settled) != 1 || settled[0].Outcome != belfry.OutcomeSucceeded {
			t.Errorf("run %s was settled by %+v", id, settled)
		}
	}
	if n := l.settled(); n != 120 {
		t.Errorf("%d of 120 runs ended", n)
	}
	if reborn := a.pool.worker != worker; reborn != (mode != "deaf") {
		t.Errorf("the worker came back as another: %v", reborn)
	}
	if mode == "fails" && lost.Load() != 0 { // its handlers of 30 s had returned before it heard
		t.Errorf("%d handlers were told of the loss", lost.Load())
	}
	a.end(t)
	b.end(t)
	for line, want := range map[string]int{"the source fails": 1, "the source answers again": 1, "level=ERROR": 0} {
		if n := strings.Count(log.String(), line); n != want {
			t.Errorf("%q was logged %d times, want %d:\n%s", line, n, want, log.String())
		}
	}
}

// The handler of an attempt that was given to another while its worker was cut
// off is told as soon as the worker hears of it.
func TestPartitionEndsHandlersWithLeaseLost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newFakeSource().fakeStore
		k := newPartitionedSource(l, "hangs")
		var told time.Time
		var cause error
		b := startPool(k.fakeSource, nil, func(ctx context.Context, run *belfry.Run) error {
			if run.Attempt == 1 {
				<-ctx.Done()
				told, cause = time.Now(), context.Cause(ctx)
			}
			return ctx.Err()
		})
		id := l.add(1, func(r *belfry.Run) { r.Spec.TimeoutSeconds = 600 })[0]
		sleepAndWait(time.Second)
		k.cut.Store(true)
		sleepAndWait(time.Minute)
		l.reap()
		k.cut.Store(false)
		healed := time.Now()
		sleepAndWait(15 * time.Second)
		if cause != ErrLeaseLost || told.Sub(healed) > 10*time.Second {
			t.Errorf("the handler ended by %v, %s after the partition", cause, told.Sub(healed))
		}
		if r := b.outcome(t, id); r.Attempt != 2 {
			t.Errorf("attempt %d was accepted", r.Attempt)
		}
		b.end(t)
	})
}

// A server that is restarted knows none of its workers.
func TestPartitionByARestartOfTheSource(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newFakeSource().fakeStore
		k := newPartitionedSource(l, "fails")
		b := startPool(k.fakeSource, nil, func(ctx context.Context, _ *belfry.Run) error {
			sleep(ctx, 3*time.Second)
			return ctx.Err()
		})
		ids := l.add(250, nil)
		sleepAndWait(4 * time.Second)
		k.cut.Store(true)
		sleepAndWait(5 * time.Second) // results are made and cannot be sent
		l.record(func(l *fakeStore) {
			clear(l.workers)
			l.release(func(*entry) bool { return true })
		})
		k.cut.Store(false)
		sleepAndWait(time.Minute)
		for _, id := range ids {
			if got := b.outcome(t, id).Outcome; got != belfry.OutcomeSucceeded {
				t.Errorf("run %s ended %s", id, got)
			}
		}
		b.end(t)
	})
}
