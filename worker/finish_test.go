package worker

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

func TestFinishBatchesResults(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startPool(slowFinish(100*time.Millisecond), with(Concurrency(8000)), func(_ context.Context, run *belfry.Run) error {
			if run.Namespace == "first" {
				return nil
			}
			time.Sleep(50 * time.Millisecond)
			return nil
		})
		sleepAndWait(0)
		b.add(1, func(r *belfry.Run) { r.Namespace = "first" })
		b.add(6000, nil)
		sleepAndWait(time.Second)
		var sizes []int
		for _, batch := range b.sent {
			sizes = append(sizes, len(batch))
		}
		// The first at once, alone; then all that came meanwhile, four thousand at most.
		if want := []int{1, 4000, 2000}; !slices.Equal(sizes, want) {
			t.Errorf("batches of %v, want %v", sizes, want)
		}
		b.end(t)
	})
}

// slowFinish is a source that takes a while to accept results.
func slowFinish(took time.Duration) *fakeSource {
	f := newFakeSource()
	f.finish = func(ctx context.Context, rs []belfry.Result) ([]belfry.Verdict, error) {
		time.Sleep(took)
		return f.fakeStore.finish(ctx, rs)
	}
	return f
}

// While results come quickly, a call waits a few milliseconds for more. Otherwise none does.
func TestFinishGathersResultsThatComeQuickly(t *testing.T) {
	for _, tt := range []struct{ perMillisecond, most, least int }{{20, 300, 270}, {5, 60, 40}} {
		inBubble(t, func(t *testing.T) {
			var started atomic.Int64
			b := startPool(slowFinish(10*time.Millisecond), with(Concurrency(1000)), func(context.Context, *belfry.Run) error {
				time.Sleep(time.Duration(started.Add(1)-1) * time.Millisecond / time.Duration(tt.perMillisecond))
				return nil
			})
			sleepAndWait(0)
			b.add(900, nil)
			sleepAndWait(time.Second)
			if third := len(b.sent[2]); third < tt.least || third > tt.most || b.settled() != 900 {
				t.Errorf("%d results a millisecond: the third call has %d, want %d to %d; %d of 900 are settled", tt.perMillisecond, third, tt.least, tt.most, b.settled())
			}
			b.end(t)
		})
	}
}

// A burst that follows another one after a pause is sent in one call, although its results
// do not come at once.
func TestFinishGathersTheNextBurst(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var started atomic.Int64
		b := startPool(slowFinish(10*time.Millisecond), with(Concurrency(1000)), func(context.Context, *belfry.Run) error {
			time.Sleep(time.Duration(started.Add(1)%300) * 10 * time.Microsecond)
			return nil
		})
		sleepAndWait(0)
		b.add(300, nil)
		sleepAndWait(time.Second)
		first := len(b.sent)
		b.add(300, nil)
		sleepAndWait(time.Second)
		if calls := len(b.sent) - first; first < 2 || calls != 1 || b.settled() != 600 {
			t.Errorf("%d results were sent, in %d calls and %d calls, want 600, several and one", b.settled(), first, calls)
		}
		b.end(t)
	})
}

func TestFinishBatchesAreBoundedInBytes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startPool(newFakeSource(), with(Concurrency(500)), func(_ context.Context, run *belfry.Run) error {
			run.Report.Output = make([]byte, belfry.MaxOutput)
			return nil
		})
		b.add(500, nil)
		sleepAndWait(time.Second)
		for _, batch := range b.sent {
			if len(batch)*belfry.MaxOutput > maxBatchBytes {
				t.Errorf("a batch carries %d outputs", len(batch))
			}
		}
		if b.settled() != 500 {
			t.Errorf("%d of 500 settled", b.settled())
		}
		b.end(t)
	})
}

func TestFailingFinishKeepsResultsInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		var accepted []belfry.ID
		tries := 0
		f.finish = func(ctx context.Context, rs []belfry.Result) ([]belfry.Verdict, error) {
			tries++
			switch {
			case tries < 10 && tries%2 == 0: // done, but the answer is lost
				_, _ = f.fakeStore.finish(ctx, rs)
				return nil, errors.New("the reply was lost")
			case tries < 10:
				return nil, errors.New("down")
			}
			for _, r := range rs {
				accepted = append(accepted, r.RunID)
			}
			return f.fakeStore.finish(ctx, rs)
		}
		var order []belfry.ID
		b := startPool(f, with(Concurrency(1)), func(_ context.Context, run *belfry.Run) error {
			order = append(order, run.ID)
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		ids := b.add(50, nil)
		sleepAndWait(time.Minute)
		for _, id := range ids {
			if r := b.outcome(t, id); r.Outcome != belfry.OutcomeSucceeded || r.Attempt != 1 {
				t.Errorf("attempt %d %s", r.Attempt, r.Outcome)
			}
		}
		if !slices.Equal(accepted, order) {
			t.Error("results were not accepted in the order they were made")
		}
		b.end(t)
	})
}

func TestFinishOutageBoundsUnsentResults(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		var up atomic.Bool
		f.finish = func(ctx context.Context, rs []belfry.Result) ([]belfry.Verdict, error) {
			if !up.Load() {
				return nil, errors.New("down")
			}
			return f.fakeStore.finish(ctx, rs)
		}
		var calls atomic.Int32
		b := startPool(f, with(Concurrency(10)), func(context.Context, *belfry.Run) error {
			calls.Add(1)
			time.Sleep(time.Millisecond)
			return nil
		})
		b.add(1000, nil)
		sleepAndWait(time.Hour)
		if s := b.pool.Stats(); s.Unsent != 20 || s.Busy != 0 || calls.Load() != 20 {
			t.Errorf("stats %+v after %d calls, want 20 results kept and no more started", s, calls.Load())
		}
		up.Store(true)
		sleepAndWait(5 * time.Second)
		if b.settled() != 1000 {
			t.Errorf("%d of 1000 settled", b.settled())
		}
		b.end(t)
	})
}

func TestFinishWithoutVerdictsIsRetried(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		tries := 0
		f.finish = func(ctx context.Context, rs []belfry.Result) ([]belfry.Verdict, error) {
			switch tries++; tries {
			case 1:
				<-ctx.Done() // a black hole
				return nil, ctx.Err()
			case 2:
				return nil, nil // no verdicts at all
			}
			return f.fakeStore.finish(ctx, rs)
		}
		b := startPool(f, nil, noop)
		id := b.add(1, nil)[0]
		sleepAndWait(finishTimeout + time.Second)
		if got := b.outcome(t, id).Outcome; got != belfry.OutcomeSucceeded {
			t.Errorf("it ended %s", got)
		}
		b.end(t)
	})
}

func TestRejectedResultDoesNotBlockOthers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		var fat, bad belfry.ID
		f.finish = func(ctx context.Context, rs []belfry.Result) ([]belfry.Verdict, error) {
			time.Sleep(10 * time.Millisecond)
			for _, r := range rs {
				if r.RunID == bad || r.RunID == fat && r.Output != "" {
					return nil, belfry.Errorf(belfry.Invalid, "this cannot be stored")
				}
			}
			return f.fakeStore.finish(ctx, rs)
		}
		hold := make(chan struct{})
		b := startPool(f, nil, func(_ context.Context, run *belfry.Run) error {
			<-hold
			run.Report.Output = []byte("hello")
			return nil
		})
		ids := b.add(64, nil)
		fat, bad = ids[20], ids[40]
		close(hold)
		sleepAndWait(time.Second)
		for _, id := range ids {
			if id == bad {
				continue
			}
			if r := b.outcome(t, id); (r.Output == "") != (id == fat) {
				t.Errorf("output %q", r.Output)
			}
		}
		if n := len(b.results(bad)); n != 0 || b.pool.Stats().Unsent != 0 {
			t.Errorf("the refused result: %d accepted, stats %+v", n, b.pool.Stats())
		}
		b.end(t)
	})
}

// A result that fails for reasons that may pass is kept, behind the others.
func TestFailingResultDoesNotBlockOthers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		var bad belfry.ID
		var mended atomic.Bool
		f.finish = func(ctx context.Context, rs []belfry.Result) ([]belfry.Verdict, error) {
			for _, r := range rs {
				if r.RunID == bad && !mended.Load() {
					return nil, errors.New("a proxy does not let this pass")
				}
			}
			return f.fakeStore.finish(ctx, rs)
		}
		hold := make(chan struct{})
		b := startPool(f, nil, func(context.Context, *belfry.Run) error {
			<-hold
			return nil
		})
		ids := b.add(64, nil)
		bad = ids[0]
		close(hold)
		sleepAndWait(10 * time.Second)
		if n := b.settled(); n != 63 || b.pool.Stats().Unsent != 1 {
			t.Errorf("%d of 63 runs ended, stats %+v", n, b.pool.Stats())
		}
		mended.Store(true)
		sleepAndWait(5 * time.Second)
		if got := b.outcome(t, bad).Outcome; got != belfry.OutcomeSucceeded {
			t.Errorf("it ended %s", got)
		}
		b.end(t)
	})
}

func TestLateResultIsLoggedAndDropped(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var log bytes.Buffer
		b := startPool(newFakeSource(), with(Log(slog.New(slog.NewTextHandler(&log, nil)))), func(context.Context, *belfry.Run) error {
			time.Sleep(time.Second)
			return nil
		})
		id := b.add(1, nil)[0]
		sleepAndWait(0)
		b.record(func(l *fakeStore) {
			l.order[0].worker = belfry.NewID(time.Now())
			l.order[0].run.Token = belfry.NewToken()
		})
		sleepAndWait(2 * time.Second)
		if n := len(b.results(id)); n != 0 || b.pool.Stats().Unsent != 0 {
			t.Errorf("%d accepted, stats %+v", n, b.pool.Stats())
		}
		b.end(t)
		if !strings.Contains(log.String(), "came too late") || !strings.Contains(log.String(), id.String()) {
			t.Errorf("the log says: %s", log.String())
		}
	})
}

func TestOutageIsLoggedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		var up atomic.Bool
		up.Store(true)
		down := errors.New("down")
		f.claim = func(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
			if !up.Load() {
				return nil, down
			}
			sleep(ctx, time.Second)
			return nil, nil
		}
		f.heartbeat = func(ctx context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error) {
			if !up.Load() && !b.Register {
				return belfry.HeartbeatReply{}, down
			}
			return f.fakeStore.heartbeat(ctx, b)
		}
		var log bytes.Buffer
		b := startPool(f, with(Log(slog.New(slog.NewTextHandler(&log, nil)))), noop)
		for range 2 {
			sleepAndWait(time.Minute)
			up.Store(!up.Load())
		}
		sleepAndWait(time.Minute)
		b.end(t)
		for _, line := range []string{"level=WARN", "the source fails", "call=claim", "the source answers again"} {
			if n := strings.Count(log.String(), line); n != 1 {
				t.Errorf("%q was logged %d times, want once", line, n)
			}
		}
	})
}
