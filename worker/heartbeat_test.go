package worker

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

func TestWorkerRegistersWithWhatItServes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := start(newFake(), with(Node("a"), Queues("mail", "default"), Concurrency(9)), nothing)
		after(0)
		beat := b.seenBeats()[0]
		if !beat.Register || beat.WorkerID.IsZero() || beat.Node != "a" || beat.Slots != 9 ||
			!slices.Equal(beat.Lanes, []string{"mail/work", "default/work"}) {
			t.Errorf("registered as %+v", beat.Heartbeat)
		}
		if c := b.seenClaims(); len(c) != 1 || c[0].WorkerID != beat.WorkerID || !slices.Equal(c[0].Lanes, beat.Lanes) {
			t.Errorf("claims %+v", c)
		}
		b.end(t)
	})
}

func TestRegistrationIsRetriedAndNothingClaimedBefore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		var up atomic.Bool
		f.heartbeat = func(ctx context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error) {
			if !up.Load() {
				return belfry.HeartbeatReply{}, errors.New("down")
			}
			return f.ledger.heartbeat(ctx, b)
		}
		b := start(f, nil, nothing)
		after(30 * time.Second)
		beats := b.seenBeats()
		if len(beats) < 9 || len(b.seenClaims()) != 0 {
			t.Errorf("%d tries and %d claims in 30s, want several and none", len(beats), len(b.seenClaims()))
		}
		for _, beat := range beats {
			if !beat.Register || beat.WorkerID != beats[0].WorkerID {
				t.Errorf("a try was %+v", beat.Heartbeat)
			}
		}
		up.Store(true)
		after(6 * time.Second)
		if len(b.seenClaims()) == 0 {
			t.Error("nothing was claimed once registered")
		}
		b.end(t)
	})
}

func TestWorkerThatNeverRegisteredStopsCleanly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		f.heartbeat = func(context.Context, belfry.Heartbeat) (belfry.HeartbeatReply, error) {
			return belfry.HeartbeatReply{}, errors.New("down")
		}
		b := start(f, nil, nothing)
		after(time.Second)
		began := time.Now()
		b.end(t)
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %s to stop", took)
		}
	})
}

func TestHeartbeatsComeEveryFiveSecondsAndListEveryThirty(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		f.heartbeat = func(ctx context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error) {
			time.Sleep(time.Second) // a slow answer does not slow the beat
			return f.ledger.heartbeat(ctx, b)
		}
		b := start(f, nil, func(ctx context.Context, _ *belfry.Run) error { <-ctx.Done(); return nil })
		after(2 * time.Second)
		id := b.add(1, func(r *belfry.Run) { r.Spec.TimeoutSeconds = 600 })[0]
		after(119 * time.Second)
		beats := b.seenBeats()
		if len(beats) != 25 {
			t.Errorf("%d beats in 121s, want 25", len(beats))
		}
		for i, beat := range beats {
			if want := i > 0 && i%6 == 0; beat.Complete != want {
				t.Errorf("beat %d lists: %v, want %v", i, beat.Complete, want)
			}
			if beat.Complete && !slices.Equal(beat.Held, []belfry.HeldAttempt{{RunID: id, Attempt: 1}}) {
				t.Errorf("beat %d lists %v", i, beat.Held)
			}
		}
		b.stop()
		after(0)
		b.note(func(l *ledger) { l.release(func(*entry) bool { return true }) })
		if err := <-b.done; err != nil {
			t.Error(err)
		}
	})
}

// A result that is made but not accepted is still held: to leave it out of the
// list would give its run to somebody else.
func TestUnsentResultsAreListed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		var up atomic.Bool
		f.finish = func(ctx context.Context, rs []belfry.Result) ([]belfry.Verdict, error) {
			if !up.Load() {
				return nil, errors.New("down")
			}
			return f.ledger.finish(ctx, rs)
		}
		b := start(f, nil, nothing)
		id := b.add(1, nil)[0]
		after(65 * time.Second)
		beats := b.seenBeats()
		if last := beats[12]; !last.Complete || !slices.Equal(last.Held, []belfry.HeldAttempt{{RunID: id, Attempt: 1}}) {
			t.Errorf("the beat lists %v", last.Held)
		}
		up.Store(true)
		after(3 * time.Second)
		if r := b.outcome(t, id); r.Attempt != 1 || r.Outcome != belfry.OutcomeSucceeded {
			t.Errorf("attempt %d %s was accepted", r.Attempt, r.Outcome)
		}
		b.end(t)
	})
}

func TestLostAttemptsAreCancelledAndSendNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var causes []error
		b := start(newFake(), nil, func(ctx context.Context, run *belfry.Run) error {
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			return nil // even success is not sent
		})
		b.add(1, func(r *belfry.Run) { r.Spec.TimeoutSeconds = 600 })
		after(time.Second)
		b.note(func(l *ledger) { l.order[0].worker = belfry.NewID(time.Now()) }) // somebody else has it
		after(31 * time.Second)
		if len(causes) != 1 || causes[0] != ErrLeaseLost {
			t.Errorf("the attempt ended by %v, want %v", causes, ErrLeaseLost)
		}
		if s := b.pool.Stats(); s.Busy != 0 || s.Unsent != 0 || len(b.sent) != 0 {
			t.Errorf("stats %+v, sent %v", s, b.sent)
		}
		b.end(t)
	})
}

func TestWorkerGivenUpStartsOverAsAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		causes := make(chan error, 10)
		b := start(newFake(), nil, func(ctx context.Context, run *belfry.Run) error {
			if run.Attempt == 1 {
				<-ctx.Done()
				causes <- context.Cause(ctx)
			}
			return nil
		})
		ids := b.add(3, func(r *belfry.Run) { r.Spec.TimeoutSeconds = 600 })
		after(time.Second)
		b.note(func(l *ledger) { clear(l.workers) })
		b.reap()
		after(5 * time.Second)
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
		beats := b.seenBeats()
		if len(beats) != 3 || !beats[2].Register || beats[2].WorkerID == beats[0].WorkerID || beats[2].at != beats[1].at {
			t.Errorf("beats %+v", beats)
		}
		claims := b.seenClaims()
		if last := claims[len(claims)-1]; last.WorkerID != beats[2].WorkerID {
			t.Errorf("the last claim was in the name of %s", last.WorkerID)
		}
		b.end(t)
	})
}

// What a Claim brings for an incarnation that is over is handed back.
func TestClaimOfAFormerIncarnationIsHandedBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		first := true
		f.claim = func(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
			if first {
				first = false
				<-ctx.Done() // ends because the worker is given up
				f.note(func(l *ledger) { l.workers[c.WorkerID] = time.Now() })
			}
			return f.ledger.claim(ctx, c)
		}
		b := start(f, nil, nothing)
		after(time.Second)
		b.note(func(l *ledger) { clear(l.workers) })
		id := b.add(1, nil)[0]
		after(10 * time.Second)
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
	bubble(t, func(t *testing.T) {
		f := newFake()
		var up atomic.Bool
		f.finish = func(ctx context.Context, rs []belfry.Result) ([]belfry.Verdict, error) {
			if !up.Load() {
				return nil, errors.New("down")
			}
			return f.ledger.finish(ctx, rs)
		}
		b := start(f, nil, nothing)
		id := b.add(1, nil)[0]
		after(time.Second)
		b.note(func(l *ledger) { clear(l.workers) }) // given up, its run not yet released
		after(50 * time.Second)
		listed := 0
		for _, beat := range b.seenBeats()[1:] {
			if beat.Complete {
				listed++
			}
			if len(beat.Held) != 0 {
				t.Errorf("the new incarnation lists %v", beat.Held)
			}
		}
		up.Store(true)
		after(5 * time.Second)
		if got := b.outcome(t, id); listed == 0 || got.Outcome != belfry.OutcomeSucceeded {
			t.Errorf("after %d lists the run ended %s", listed, got.Outcome)
		}
		b.end(t)
	})
}

func TestRegistrationThatIsRefusedBacksOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		f.heartbeat = func(context.Context, belfry.Heartbeat) (belfry.HeartbeatReply, error) {
			return belfry.HeartbeatReply{Unknown: true}, nil
		}
		b := start(f, nil, nothing)
		after(time.Minute)
		if n := len(b.seenBeats()); n < 10 || n > 25 {
			t.Errorf("%d tries in a minute", n)
		}
		b.end(t)
	})
}

func TestSilenceStopsClaimingUntilAHeartbeatSucceeds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		var up atomic.Bool
		up.Store(true)
		f.heartbeat = func(ctx context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error) {
			if !up.Load() {
				<-ctx.Done()
				return belfry.HeartbeatReply{}, ctx.Err()
			}
			time.Sleep(2 * time.Second) // trust counts from when it was sent
			return f.ledger.heartbeat(ctx, b)
		}
		var cut time.Time
		f.claim = func(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
			runs, err := f.ledger.claim(ctx, c)
			if ctx.Err() != nil {
				cut = time.Now()
			}
			return runs, err
		}
		b := start(f, nil, nothing)
		after(9 * time.Second) // beats were sent at 0 and 5 s
		up.Store(false)
		sent := b.seenBeats()[1].at
		after(time.Minute)
		if got := cut.Sub(sent); got != leaseDuration {
			t.Errorf("the waiting claim was cut %s after the last good heartbeat was sent, want %s", got, leaseDuration)
		}
		claims := b.seenClaims()
		if last := claims[len(claims)-1].at; last.Sub(sent) >= leaseDuration {
			t.Errorf("claimed %s after the last good heartbeat", last.Sub(sent))
		}
		id := b.add(1, nil)[0]
		after(10 * time.Second)
		if n := len(b.results(id)); n != 0 {
			t.Error("a run was started in silence")
		}
		up.Store(true)
		after(15 * time.Second)
		if got := b.outcome(t, id).Outcome; got != belfry.OutcomeSucceeded {
			t.Errorf("after the silence the run ended %s", got)
		}
		b.end(t)
	})
}

// A process that was frozen between claim and start wakes up with a claim that
// may be somebody else's by now.
func TestRunsThatArriveAfterSilenceAreNotStarted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		var frozen atomic.Bool
		frozen.Store(true)
		f.claim = func(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
			runs, err := f.ledger.claim(ctx, c)
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
			return f.ledger.heartbeat(ctx, b)
		}
		var started atomic.Int32
		b := start(f, nil, func(context.Context, *belfry.Run) error { started.Add(1); return nil })
		id := b.add(1, nil)[0]
		after(17 * time.Second)
		if r := b.outcome(t, id); r.Outcome != belfry.OutcomeInterrupted || started.Load() != 0 {
			t.Errorf("it ended %s after %d starts, want it handed back", r.Outcome, started.Load())
		}
		frozen.Store(false)
		after(10 * time.Second)
		if started.Load() != 1 {
			t.Errorf("started %d times after the thaw", started.Load())
		}
		b.end(t)
	})
}
