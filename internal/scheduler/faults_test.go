package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// fault is what happens to one call to the store.
type fault string

const (
	errorBefore fault = "error before"       // nothing is done
	errorAfter  fault = "execute then error" // done, but the caller cannot know
	crashBefore fault = "crash before"       // the process ends; nothing is done
	crashAfter  fault = "crash after"        // done, and the process ends
)

var errInjected = errors.New("injected fault")

// faulty passes calls on to a store and makes the n-th one go wrong. From a
// crash on, nothing gets through any more.
type faulty struct {
	store.Store
	kind fault
	n    int

	mu      sync.Mutex
	calls   int
	name    string // of the call that went wrong
	crashed bool
}

// through makes a call, or what the fault makes of it.
func through[T any](f *faulty, name string, call func() (T, error)) (T, error) {
	var zero T
	f.mu.Lock()
	if f.crashed {
		f.mu.Unlock()
		return zero, errInjected
	}
	f.calls++
	hit := f.calls == f.n
	if hit {
		f.name = name
		f.crashed = f.kind == crashBefore || f.kind == crashAfter
	}
	f.mu.Unlock()
	if !hit {
		return call()
	}
	if f.kind == errorAfter || f.kind == crashAfter {
		call()
	}
	return zero, errInjected
}

func (f *faulty) down() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.crashed
}

func (f *faulty) Upcoming(ctx context.Context, w store.Window) ([]store.Due, error) {
	return through(f, "Upcoming", func() ([]store.Due, error) { return f.Store.Upcoming(ctx, w) })
}

func (f *faulty) Overdue(ctx context.Context, shards []int, before time.Time, limit int) ([]store.Due, error) {
	return through(f, "Overdue", func() ([]store.Due, error) { return f.Store.Overdue(ctx, shards, before, limit) })
}

func (f *faulty) Find(ctx context.Context, jobs []belfry.ID) ([]store.Due, error) {
	return through(f, "Find", func() ([]store.Due, error) { return f.Store.PlansByJob(ctx, jobs) })
}

func (f *faulty) Outdated(ctx context.Context, shards []int, release string, after belfry.ID, limit int) ([]store.Due, belfry.ID, error) {
	var next belfry.ID
	due, err := through(f, "Outdated", func() (due []store.Due, err error) {
		due, next, err = f.Store.PlansForZoneUpdate(ctx, shards, release, after, limit)
		return due, err
	})
	return due, next, err
}

func (f *faulty) Triggers(ctx context.Context, shards []int, limit int) ([]store.PendingTrigger, error) {
	return through(f, "Triggers", func() ([]store.PendingTrigger, error) { return f.Store.PendingTriggers(ctx, shards, limit) })
}

func (f *faulty) Fire(ctx context.Context, owner belfry.ID, steps []plan.Step, slots store.FreeSlots) (store.FireResult, error) {
	return through(f, "Fire", func() (store.FireResult, error) { return f.Store.Fire(ctx, owner, steps, slots) })
}

func (f *faulty) Promote(ctx context.Context, shards []int, limit int) (int, time.Time, error) {
	var next time.Time
	n, err := through(f, "Promote", func() (n int, err error) {
		n, next, err = f.Store.Promote(ctx, shards, limit)
		return n, err
	})
	return n, next, err
}

func (f *faulty) Claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	return through(f, "Claim", func() ([]*belfry.Run, error) { return f.Store.Claim(ctx, c) })
}

func (f *faulty) Heartbeat(ctx context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error) {
	return through(f, "Heartbeat", func() (belfry.HeartbeatReply, error) { return f.Store.Heartbeat(ctx, b) })
}

func (f *faulty) Finish(ctx context.Context, results []belfry.Result) ([]belfry.Verdict, error) {
	return through(f, "Finish", func() ([]belfry.Verdict, error) { return f.Store.Finish(ctx, results) })
}

func (f *faulty) Reap(ctx context.Context, shards []int, silence time.Duration, limit int) (int, error) {
	return through(f, "Reap", func() (int, error) { return f.Store.Reap(ctx, shards, silence, limit) })
}

func (f *faulty) Ping(ctx context.Context) error {
	if f.down() {
		return errInjected
	}
	return f.Store.Ping(ctx)
}

// scenario is a minute and a half of every kind of run: recurring ones, one that
// fails twice, a one-off and a trigger. Whatever goes wrong goes wrong then; it
// gives the number of store calls so far. Then everything heals.
func (b *bubble) scenario(f *faulty) (calls int) {
	minutely := b.create("* * * * *", nil)
	flaky := b.create("2000-01-01T00:00:10Z", nil)
	once := b.create("2000-01-01T00:00:50Z", nil)
	wished := b.create("0 12 * * *", nil)
	b.fail = func(run *belfry.Run) error {
		if run.JobID == flaky && len(b.of(run.ID)) < 3 {
			return errRefused
		}
		return nil
	}
	b.start(f)
	wish := plan.Trigger{ID: belfry.NewID(time.Now()), Namespace: "default", JobID: wished, Kind: belfry.KindManual, At: b.store.Now()}
	if err := b.store.Trigger(b.Context(), []plan.Trigger{wish}, nil); err != nil {
		b.Fatal(err)
	}
	for until := 15 * time.Second; until <= 240*time.Second; until += 15 * time.Second {
		b.sleep(15 * time.Second)
		if f.down() && b.store == f.Store {
			b.crash()
			b.start(b.store)
		}
		if until == 90*time.Second {
			calls = f.count()
		}
	}
	b.sleep(time.Second)
	b.expect("minutely", minutely, 4)
	b.expect("flaky", flaky, 1)
	b.expect("once", once, 1)
	b.expect("wished", wished, 1)
	return calls
}

func (f *faulty) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// of gives the calls of a run.
func (b *bubble) of(run belfry.ID) []call {
	var calls []call
	for _, c := range b.handled() {
		if c.run.ID == run {
			calls = append(calls, c)
		}
	}
	return calls
}

// expect checks that a job had exactly so many occurrences, each with one run
// that succeeded or, after a crash, part of a recorded skip.
func (b *bubble) expect(name string, job belfry.ID, occurrences int) {
	b.Helper()
	seen := map[time.Time]bool{}
	decided := 0
	for _, run := range b.runs(job) {
		if seen[run.ScheduledAt] {
			b.Errorf("%s: two decisions for %s", name, run.ScheduledAt)
		}
		seen[run.ScheduledAt] = true
		switch run.Status {
		case belfry.RunSucceeded:
			decided++
		case belfry.RunSkipped:
			decided += int(run.SkippedCount)
		default:
			b.Errorf("%s: the run of %s is still %s", name, run.ScheduledAt, run.Status)
		}
		for _, c := range b.of(run.ID) {
			if c.at.Before(run.ScheduledAt) {
				b.Errorf("%s: the run of %s started early", name, run.ScheduledAt)
			}
		}
	}
	if decided != occurrences {
		b.Errorf("%s: %d occurrences were decided, want %d", name, decided, occurrences)
	}
}

// TestEveryStoreCallMayGoWrong counts the calls of a scenario and repeats it once
// for each call and fault.
func TestEveryStoreCallMayGoWrong(t *testing.T) {
	var total int
	inBubble(t, func(b *bubble) {
		f := &faulty{Store: b.store}
		total = b.scenario(f)
	})
	if t.Failed() {
		t.Fatal("the scenario fails without faults")
	}
	stride := 1
	if testing.Short() {
		stride = 7
	}
	t.Logf("%d store calls", total)
	for _, kind := range []fault{errorBefore, errorAfter, crashBefore, crashAfter} {
		for n := 1; n <= total; n += stride {
			t.Run(fmt.Sprintf("%s %d", kind, n), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(b *bubble) {
					f := &faulty{Store: b.store, kind: kind, n: n}
					b.scenario(f)
					if b.Failed() {
						b.Logf("%s call %d, %s", kind, n, f.name)
					}
					if kind == errorBefore || kind == errorAfter {
						b.onceEach()
					}
				})
			})
		}
	}
}

// onceEach checks that no handler was called more often than it had to be: a
// process that lives loses no attempt that has begun.
func (b *bubble) onceEach() {
	b.Helper()
	counts := map[belfry.ID]int{}
	for _, c := range b.handled() {
		counts[c.run.ID]++
	}
	for id, n := range counts {
		if n != 1 && n != 3 {
			b.Errorf("run %s was executed %d times", id, n)
		}
	}
}
