package worker

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belfry-sh/belfry"
)

func TestRegistrationNamesQueuesAndHandlers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startPool(newFakeSource(), with(Node("a"), Queues("mail", "default"), Concurrency(9)), noop)
		sleepAndWait(0)
		heartbeat := b.seenHeartbeats()[0]
		want := belfry.Heartbeat{
			WorkerID: heartbeat.WorkerID, Node: "a", Slots: 9, Register: true, Sequence: 1,
			Lanes: []string{"mail/work", "default/work"}, Queues: []string{"mail", "default"}, Handlers: []string{"work"},
		}
		if diff := cmp.Diff(want, heartbeat.Heartbeat); diff != "" || heartbeat.WorkerID.IsZero() {
			t.Errorf("registered as %s (-want +got):\n%s", heartbeat.WorkerID, diff)
		}
		claim := belfry.Claim{WorkerID: want.WorkerID, Lanes: want.Lanes, Queues: want.Queues, Handlers: want.Handlers, Limit: 9}
		if claims := b.seenClaims(); len(claims) != 1 || claims[0].Slots.Size != 9 || !cmp.Equal(claims[0].Claim, claim, cmpopts.EquateComparable(claim.WaitSeconds), cmpopts.IgnoreFields(claim, "Slots")) {
			t.Errorf("claims %+v, want %+v", claims, claim)
		}
		b.end(t)
	})
}

func TestRegistrationIsRetriedAndNothingClaimedBefore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		var up atomic.Bool
		f.heartbeat = func(ctx context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error) {
			if !up.Load() {
				return belfry.HeartbeatReply{}, errors.New("down")
			}
			return f.fakeStore.heartbeat(ctx, b)
		}
		b := startPool(f, nil, noop)
		sleepAndWait(30 * time.Second)
		heartbeats := b.seenHeartbeats()
		if len(heartbeats) < 9 || len(b.seenClaims()) != 0 {
			t.Errorf("%d tries and %d claims in 30s, want several and none", len(heartbeats), len(b.seenClaims()))
		}
		for _, heartbeat := range heartbeats {
			if !heartbeat.Register || heartbeat.WorkerID != heartbeats[0].WorkerID {
				t.Errorf("a try was %+v", heartbeat.Heartbeat)
			}
		}
		up.Store(true)
		sleepAndWait(6 * time.Second)
		if len(b.seenClaims()) == 0 {
			t.Error("nothing was claimed once registered")
		}
		b.end(t)
	})
}

func TestWorkerThatNeverRegisteredStopsCleanly(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		f.heartbeat = func(context.Context, belfry.Heartbeat) (belfry.HeartbeatReply, error) {
			return belfry.HeartbeatReply{}, errors.New("down")
		}
		b := startPool(f, nil, noop)
		sleepAndWait(time.Second)
		began := time.Now()
		b.end(t)
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %s to stop", took)
		}
	})
}

func TestHeartbeatIntervals(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		f.heartbeat = func(ctx context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error) {
			time.Sleep(time.Second) // a slow answer does not slow the heartbeat
			return f.fakeStore.heartbeat(ctx, b)
		}
		b := startPool(f, nil, func(ctx context.Context, _ *belfry.Run) error { <-ctx.Done(); return nil })
		sleepAndWait(2 * time.Second)
		id := b.add(1, func(r *belfry.Run) { r.Spec.TimeoutSeconds = 600 })[0]
		sleepAndWait(119 * time.Second)
		heartbeats := b.seenHeartbeats()
		if len(heartbeats) != 25 {
			t.Errorf("%d heartbeats in 121s, want 25", len(heartbeats))
		}
		for i, heartbeat := range heartbeats {
			if want := i > 0 && i%6 == 0; heartbeat.Complete != want {
				t.Errorf("heartbeat %d lists: %v, want %v", i, heartbeat.Complete, want)
			}
			if heartbeat.Complete && !slices.Equal(heartbeat.Held, []belfry.HeldAttempt{{RunID: id, Attempt: 1}}) {
				t.Errorf("heartbeat %d lists %v", i, heartbeat.Held)
			}
		}
		b.stop()
		sleepAndWait(0)
		b.record(func(l *fakeStore) { l.release(func(*entry) bool { return true }) })
		if err := <-b.done; err != nil {
			t.Error(err)
		}
	})
}

// A result that is made but not accepted is still held: to leave it out of the
// list would give its run to another worker.
func TestCompleteHeartbeatListsUnsentResults(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		var up atomic.Bool
		f.finish = func(ctx context.Context, rs []belfry.Result) ([]belfry.Verdict, error) {
			if !up.Load() {
				return nil, errors.New("down")
			}
			return f.fakeStore.finish(ctx, rs)
		}
		b := startPool(f, nil, noop)
		id := b.add(1, nil)[0]
		sleepAndWait(65 * time.Second)
		heartbeats := b.seenHeartbeats()
		if last := heartbeats[12]; !last.Complete || !slices.Equal(last.Held, []belfry.HeldAttempt{{RunID: id, Attempt: 1}}) {
			t.Errorf("the heartbeat lists %v", last.Held)
		}
		up.Store(true)
		sleepAndWait(3 * time.Second)
		if r := b.outcome(t, id); r.Attempt != 1 || r.Outcome != belfry.OutcomeSucceeded {
			t.Errorf("attempt %d %s was accepted", r.Attempt, r.Outcome)
		}
		b.end(t)
	})
}

func TestLostAttemptsAreCancelledAndSendNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var causes []error
		b := startPool(newFakeSource(), nil, func(ctx context.Context, run *belfry.Run) error {
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			return nil // even success is not sent
		})
		b.add(1, func(r *belfry.Run) { r.Spec.TimeoutSeconds = 600 })
		sleepAndWait(time.Second)
		b.record(func(l *fakeStore) { l.order[0].worker = belfry.NewID(time.Now()) }) // another worker has it
		sleepAndWait(31 * time.Second)
		if len(causes) != 1 || causes[0] != ErrLeaseLost {
			t.Errorf("the attempt ended by %v, want %v", causes, ErrLeaseLost)
		}
		if s := b.pool.Stats(); s.Busy != 0 || s.Unsent != 0 || len(b.sent) != 0 {
			t.Errorf("stats %+v, sent %v", s, b.sent)
		}
		b.end(t)
	})
}

func TestUnknownWorkerGetsANewIncarnation(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		causes := make(chan error, 10)
		b := startPool(newFakeSource(), nil, func(ctx context.Context, run *belfry.Run) error {
			if run.Attempt == 1 {
				<-ctx.Done()
				causes <- context.Cause(ctx)
			}
			return nil
		})
		ids := b.add(3, func(r *belfry.Run) { r.Spec.TimeoutSeconds = 600 })
		sleepAndWait(time.Second)
		b.record(func(l *fakeStore) { clear(l.workers) })
		b.reap()
		sleepAndWait(5 * time.Second)
		for _, id := range ids {
			if r := b.outcome(t, id); r.Attempt != 2 {
				t.Errorf("attempt %d was accepted", r.Attempt)
			}
		}
		if len(causes) != 3 {
			t.Errorf("%d old attempts were cancelled, want 3", len(causes))
		}
		for range len(causes) {
			if cause := <-causes; cause != ErrLeaseLost {
				t.Errorf("an old attempt ended by %v", cause)
			}
		}
		heartbeats := b.seenHeartbeats()
		if len(heartbeats) != 3 || !heartbeats[2].Register || heartbeats[2].WorkerID == heartbeats[0].WorkerID || heartbeats[2].at != heartbeats[1].at {
			t.Errorf("heartbeats %+v", heartbeats)
		}
		claims := b.seenClaims()
		if last := claims[len(claims)-1]; last.WorkerID != heartbeats[2].WorkerID {
			t.Errorf("the last claim was in the name of %s", last.WorkerID)
		}
		b.end(t)
	})
}

// What a Claim brings for an incarnation that is over is returned.
func TestRunsOfAFormerIncarnationAreReturned(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		first := true
		f.claim = func(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
			if first {
				first = false
				<-ctx.Done() // ends because the worker is reaped
				f.record(func(l *fakeStore) { l.workers[c.WorkerID] = time.Now() })
			}
			return f.fakeStore.claim(ctx, c)
		}
		b := startPool(f, nil, noop)
		sleepAndWait(time.Second)
		b.record(func(l *fakeStore) { clear(l.workers) })
		id := b.add(1, nil)[0]
		sleepAndWait(10 * time.Second)
		r := b.results(id)
		if len(r) != 2 || r[0].Outcome != belfry.OutcomeInterrupted || r[1].Outcome != belfry.OutcomeSucceeded {
			t.Errorf("results %v, want interrupted, then succeeded", r)
		}
		b.end(t)
	})
}

// A result outlives the incarnation that made it, but the next one does not
// hold its run.
func TestResultsOfAFormerIncarnationAreSentButNotListed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		var up atomic.Bool
		f.finish = func(ctx context.Context, rs []belfry.Result) ([]belfry.Verdict, error) {
			if !up.Load() {
				return nil, errors.New("down")
			}
			return f.fakeStore.finish(ctx, rs)
		}
		b := startPool(f, nil, noop)
		id := b.add(1, nil)[0]
		sleepAndWait(time.Second)
		b.record(func(l *fakeStore) { clear(l.workers) }) // reaped, its run not yet released
		sleepAndWait(50 * time.Second)
		listed := 0
		for _, heartbeat := range b.seenHeartbeats()[1:] {
			if heartbeat.Complete {
				listed++
			}
			if len(heartbeat.Held) != 0 {
				t.Errorf("the new incarnation lists %v", heartbeat.Held)
			}
		}
		up.Store(true)
		sleepAndWait(5 * time.Second)
		if got := b.outcome(t, id); listed == 0 || got.Outcome != belfry.OutcomeSucceeded {
			t.Errorf("after %d lists the run ended %s", listed, got.Outcome)
		}
		b.end(t)
	})
}

func TestUnknownRegistrationBacksOff(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		f.heartbeat = func(context.Context, belfry.Heartbeat) (belfry.HeartbeatReply, error) {
			return belfry.HeartbeatReply{Unknown: true}, nil
		}
		b := startPool(f, nil, noop)
		sleepAndWait(time.Minute)
		if n := len(b.seenHeartbeats()); n < 10 || n > 25 {
			t.Errorf("%d tries in a minute", n)
		}
		b.end(t)
	})
}

func TestExpiredLeaseStopsClaims(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		var up atomic.Bool
		up.Store(true)
		f.heartbeat = func(ctx context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error) {
			if !up.Load() {
				<-ctx.Done()
				return belfry.HeartbeatReply{}, ctx.Err()
			}
			time.Sleep(2 * time.Second) // the lease counts from when it was sent
			return f.fakeStore.heartbeat(ctx, b)
		}
		var cut atomic.Pointer[time.Time]
		f.claim = func(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
			runs, err := f.fakeStore.claim(ctx, c)
			if ctx.Err() != nil {
				now := time.Now()
				cut.Store(&now)
			}
			return runs, err
		}
		b := startPool(f, nil, noop)
		sleepAndWait(9 * time.Second) // heartbeats were sent at 0 and 5 s
		up.Store(false)
		sent := b.seenHeartbeats()[1].at
		sleepAndWait(time.Minute)
		if got := cut.Load().Sub(sent); got != leaseDuration {
			t.Errorf("the waiting claim was ended %s after the last good heartbeat was sent, want %s", got, leaseDuration)
		}
		claims := b.seenClaims()
		if last := claims[len(claims)-1].at; last.Sub(sent) >= leaseDuration {
			t.Errorf("claimed %s after the last good heartbeat", last.Sub(sent))
		}
		id := b.add(1, nil)[0]
		sleepAndWait(10 * time.Second)
		if n := len(b.results(id)); n != 0 {
			t.Error("a run was started without a lease")
		}
		up.Store(true)
		sleepAndWait(15 * time.Second)
		if got := b.outcome(t, id).Outcome; got != belfry.OutcomeSucceeded {
			t.Errorf("after the silence the run ended %s", got)
		}
		b.end(t)
	})
}

// A process that was frozen between claim and start wakes up with a claim that
// another worker may hold by now.
func TestRunsThatArriveAfterTheLeaseExpiredAreNotStarted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		var frozen atomic.Bool
		frozen.Store(true)
		f.claim = func(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
			runs, err := f.fakeStore.claim(ctx, c)
			if frozen.Load() {
				time.Sleep(16 * time.Second)
			}
			return runs, err
		}
		f.heartbeat = func(ctx context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error) {
			if !b.Register && frozen.Load() {
				<-ctx.Done()
				return belfry.HeartbeatReply{}, ctx.Err()
			}
			return f.fakeStore.heartbeat(ctx, b)
		}
		var started atomic.Int32
		b := startPool(f, nil, func(context.Context, *belfry.Run) error { started.Add(1); return nil })
		id := b.add(1, nil)[0]
		sleepAndWait(17 * time.Second)
		if r := b.outcome(t, id); r.Outcome != belfry.OutcomeInterrupted || started.Load() != 0 {
			t.Errorf("it ended %s after %d starts, want it returned", r.Outcome, started.Load())
		}
		frozen.Store(false)
		sleepAndWait(10 * time.Second)
		if started.Load() != 1 {
			t.Errorf("started %d times after the thaw", started.Load())
		}
		b.end(t)
	})
}
