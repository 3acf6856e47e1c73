package scheduler

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/metrics"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlite"
	"github.com/belfry-sh/belfry/worker"
)

// bubble is a node without its API in a synctest bubble: a real SQLite store, a
// scheduler, a pool. Its clock starts at 2000-01-01 00:00:00 UTC.
type bubble struct {
	*testing.T
	dir       string
	store     store.Store
	slots     int
	log       *slog.Logger
	retention time.Duration // of history; zero: the default
	downSince time.Time     // when the process before stopped; zero: unknown
	drain     time.Duration // of the pool
	maxPlans  int           // in the wheel; zero: the default
	metrics   *metrics.Metrics

	mu            sync.Mutex
	calls         []call
	handlerTime   time.Duration               // how long the handler works
	handlerResult func(run *belfry.Run) error // what it answers

	scheduler *Scheduler // the last that was started
	stop      func()
}

// call is one attempt, as its handler saw it.
type call struct {
	run belfry.Run
	at  time.Time
}

func inBubble(t *testing.T, test func(b *bubble)) {
	dir := memoryDir(t)
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{T: t, dir: dir, slots: 10, drain: 30 * time.Second}
		b.open()
		test(b)
		if b.stop != nil {
			b.stop()
		}
		if err := b.store.Close(); err != nil {
			t.Error(err)
		}
	})
}

// memoryDir is a directory where syncing costs nothing, if there is one: virtual
// days hold more commits than a disk likes.
func memoryDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "belfry-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (b *bubble) open() {
	s, err := sqlite.Open(context.Background(), sqlite.Options{Dir: b.dir, Shards: 4})
	if err != nil {
		b.Fatal(err)
	}
	b.store = s
}

// testStore is what a node in a bubble uses of its store.
type testStore interface {
	Store
	LocalStore
	store.Sharding
}

// start runs a scheduler and a pool on a store: that of the bubble, or one that wraps
// it.
func (b *bubble) start(s testStore) {
	ctx, cancel := context.WithCancel(context.Background())
	local := NewLocal(ctx, s)
	sched := New(s, Options{Owner: belfry.NewID(time.Now()), Local: local, Log: b.log, Retention: b.retention, Metrics: b.metrics})
	b.scheduler = sched
	if b.maxPlans > 0 {
		sched.maxPlanned = b.maxPlans
	}
	mux := worker.NewMux()
	mux.HandleFunc(belfry.TypeHTTP, b.handle)
	pool := worker.New(local, mux, worker.Node("bubble"), worker.Concurrency(b.slots), worker.DrainTimeout(b.drain))
	var parts sync.WaitGroup
	parts.Go(func() { sched.Run(ctx) })
	parts.Go(func() { pool.Run(ctx) })
	for shard := range s.Shards() {
		parts.Go(func() { sched.Lead(ctx, store.Term{Shard: shard, Since: s.Now(), DownSince: b.downSince}) })
	}
	b.stop = func() {
		cancel()
		parts.Wait()
		b.stop = nil
	}
}

// crash ends everything as a killed process would, and opens the store again.
// The directory's lock proves the old process dead.
func (b *bubble) crash() {
	b.stop()
	if err := b.store.Close(); err != nil {
		b.Fatal(err)
	}
	b.open()
}

func (b *bubble) handle(ctx context.Context, run *belfry.Run) error {
	b.mu.Lock()
	b.calls = append(b.calls, call{*run, time.Now().UTC()})
	fail := b.handlerResult
	b.mu.Unlock()
	select {
	case <-time.After(b.handlerTime):
	case <-ctx.Done():
		return ctx.Err()
	}
	if fail != nil {
		return fail(run)
	}
	return nil
}

func (b *bubble) handled() []call {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.calls)
}

// create makes a job; change may alter its spec first.
func (b *bubble) create(schedule string, change func(*belfry.Spec)) belfry.ID {
	b.Helper()
	spec := belfry.DefaultSpec()
	spec.Type, spec.Schedule = belfry.TypeHTTP, schedule
	if change != nil {
		change(&spec)
	}
	policy, err := plan.Compile(spec)
	if err != nil {
		b.Fatal(err)
	}
	now := b.store.Now()
	id := belfry.NewID(now)
	job := store.NewJob{
		Job: belfry.Job{ID: id, Namespace: "default", Revision: 1, State: belfry.JobActive, CreatedAt: now,
			Manifest: belfry.Manifest{Spec: spec, Payload: []byte(`{}`)}},
		Plan: plan.First(id, belfry.ShardOf(id, b.store.Shards()), policy, now),
	}
	if err := b.store.CreateJobs(b.Context(), one(job), nil); err != nil {
		b.Fatal(err)
	}
	return id
}

func one(job store.NewJob) iter.Seq2[store.NewJob, error] {
	return func(yield func(store.NewJob, error) bool) { yield(job, nil) }
}

// runs lists all runs and skips of a job, oldest occurrence first.
func (b *bubble) runs(job belfry.ID) []belfry.Run {
	b.Helper()
	runs, _, err := b.store.JobRuns(b.Context(), "default", job, belfry.JobRunFilter{}, store.Page{Limit: 100_000})
	if err != nil {
		b.Fatal(err)
	}
	slices.Reverse(runs)
	return runs
}

// sleep lets virtual time pass and everything settle.
func (b *bubble) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

var errRefused = errors.New("refused")
