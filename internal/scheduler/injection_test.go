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

// faultyStore passes calls on to a store, and injects a fault into the n-th one. After
// a crash every call fails.
type faultyStore struct {
	store.Store
	kind fault
	n    int

	mu      sync.Mutex
	calls   int
	name    string // of the call with the fault
	crashed bool
}

// inject makes a call, with the fault if its turn has come.
func inject[T any](f *faultyStore, name string, call func() (T, error)) (T, error) {
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

func (f *faultyStore) down() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.crashed
}

func (f *faultyStore) Upcoming(ctx context.Context, w store.Window) ([]store.Planned, error) {
	return inject(f, "Upcoming", func() ([]store.Planned, error) { return f.Store.Upcoming(ctx, w) })
}

func (f *faultyStore) PlansByJob(ctx context.Context, jobs []belfry.ID) ([]store.Due, error) {
	return inject(f, "PlansByJob", func() ([]store.Due, error) { return f.Store.PlansByJob(ctx, jobs) })
}

func (f *faultyStore) RecordOutages(ctx context.Context, outages []store.Outage) error {
	_, err := inject(f, "RecordOutages", func() (struct{}, error) { return struct{}{}, f.Store.RecordOutages(ctx, outages) })
	return err
}

func (f *faultyStore) Outages(ctx context.Context, shards []int) ([]store.Outage, error) {
	return inject(f, "Outages", func() ([]store.Outage, error) { return f.Store.Outages(ctx, shards) })
}

func (f *faultyStore) PlansForZoneUpdate(ctx context.Context, shards []int, release string, after belfry.ID, limit int) ([]store.Due, belfry.ID, error) {
	var next belfry.ID
	due, err := inject(f, "PlansForZoneUpdate", func() (due []store.Due, err error) {
		due, next, err = f.Store.PlansForZoneUpdate(ctx, shards, release, after, limit)
		return due, err
	})
	return due, next, err
}

func (f *faultyStore) PendingTriggers(ctx context.Context, shards []int, skip []belfry.ID, limit int) ([]store.PendingTrigger, error) {
	return inject(f, "PendingTriggers", func() ([]store.PendingTrigger, error) { return f.Store.PendingTriggers(ctx, shards, skip, limit) })
}

func (f *faultyStore) Fire(ctx context.Context, owner belfry.ID, steps []plan.Step, slots ...store.FreeSlots) (store.FireResult, error) {
	return inject(f, "Fire", func() (store.FireResult, error) { return f.Store.Fire(ctx, owner, steps, slots...) })
}

func (f *faultyStore) Promote(ctx context.Context, shards []int, limit int) (int, time.Time, error) {
	var next time.Time
	n, err := inject(f, "Promote", func() (n int, err error) {
		n, next, err = f.Store.Promote(ctx, shards, limit)
		return n, err
	})
	return n, next, err
}

func (f *faultyStore) Claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	return inject(f, "Claim", func() ([]*belfry.Run, error) { return f.Store.Claim(ctx, c) })
}

func (f *faultyStore) Heartbeat(ctx context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error) {
	return inject(f, "Heartbeat", func() (belfry.HeartbeatReply, error) { return f.Store.Heartbeat(ctx, b) })
}

func (f *faultyStore) Finish(ctx context.Context, results []belfry.Result) ([]belfry.Verdict, error) {
	return inject(f, "Finish", func() ([]belfry.Verdict, error) { return f.Store.Finish(ctx, results) })
}

func (f *faultyStore) Reap(ctx context.Context, silence time.Duration, limit int) ([]belfry.Result, error) {
	return inject(f, "Reap", func() ([]belfry.Result, error) { return f.Store.Reap(ctx, silence, limit) })
}

func (f *faultyStore) Ping(ctx context.Context) error {
	if f.down() {
		return errInjected
	}
	return f.Store.Ping(ctx)
}

// scenario is a minute and a half of every kind of run: recurring ones, one that
// fails twice, a one-off and a trigger. Faults are injected during it; it
// returns the number of store calls. Then the store recovers.
func (b *bubble) scenario(f *faultyStore) (calls int) {
	minutely := b.create("* * * * *", nil)
	flaky := b.create("2000-01-01T00:00:10Z", nil)
	once := b.create("2000-01-01T00:00:50Z", nil)
	triggered := b.create("0 12 * * *", nil)
	b.handlerResult = func(run *belfry.Run) error {
		if run.JobID == flaky && len(b.callsOf(run.ID)) < 3 {
			return errRefused
		}
		return nil
	}
	b.start(f)
	trigger := plan.Trigger{ID: belfry.NewID(time.Now()), Namespace: "default", JobID: triggered, Kind: belfry.KindManual, At: b.store.Now()}
	if err := b.store.Trigger(b.Context(), []plan.Trigger{trigger}, nil); err != nil {
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
	b.wantDecided("minutely", minutely, 4)
	b.wantDecided("flaky", flaky, 1)
	b.wantDecided("once", once, 1)
	b.wantDecided("triggered", triggered, 1)
	return calls
}

func (f *faultyStore) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

func (b *bubble) callsOf(run belfry.ID) []call {
	var calls []call
	for _, c := range b.handled() {
		if c.run.ID == run {
			calls = append(calls, c)
		}
	}
	return calls
}

// wantDecided checks that a job had exactly so many occurrences, each with one run
// that succeeded or, after a crash, part of a recorded skip.
func (b *bubble) wantDecided(name string, job belfry.ID, occurrences int) {
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
		for _, c := range b.callsOf(run.ID) {
			if c.at.Before(run.ScheduledAt) {
				b.Errorf("%s: the run of %s started early", name, run.ScheduledAt)
			}
		}
	}
	if decided != occurrences {
		b.Errorf("%s: %d occurrences were decided, want %d", name, decided, occurrences)
	}
}

// TestFaultAtEveryStoreCall counts the calls of a scenario and repeats it once
// for each call and fault.
func TestFaultAtEveryStoreCall(t *testing.T) {
	var total int
	inBubble(t, func(b *bubble) {
		f := &faultyStore{Store: b.store}
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
					f := &faultyStore{Store: b.store, kind: kind, n: n}
					b.scenario(f)
					if b.Failed() {
						b.Logf("%s call %d, %s", kind, n, f.name)
					}
					if kind == errorBefore || kind == errorAfter {
						b.wantNoRepeats()
					}
				})
			})
		}
	}
}

// wantNoRepeats checks that no handler was called more often than necessary: a process
// that does not crash loses no attempt that has started.
func (b *bubble) wantNoRepeats() {
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
