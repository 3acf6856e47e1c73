// Package scheduler turns plans into runs: one loop per node, for all the shards that
// the node owns.
//
// Five parts share the work. The loader reads plans from the store: those within the
// horizon, those that a notification names as changed and, as the guarantee behind
// both, those that are overdue and unknown to the loop. The loop keeps them in a timing
// wheel, decides each at its instant and fires the decisions in batches. The sweeper
// makes due retries ready, reaps silent workers, archives ended one-offs and prunes old
// history. The zone updater replans what was planned with older time-zone data. Local
// delivers fired runs to the node's own worker.
//
// No part waits for another, and no call to the store lasts for ever: a scheduler whose
// loop makes no progress says so, and is to give its shards to others.
//
// Correctness does not depend on this package. What is in memory is a cache of the
// store: a step of a node that wrongly believes that it owns a shard, or that fires a
// stale plan, is not applied, and the plan is read again.
package scheduler

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/metrics"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// Store is what a scheduler uses of the store.
type Store interface {
	store.Plans
	store.Outages
	store.Clock
	store.Notifier
	store.Pinger
	Workers(ctx context.Context) ([]store.Worker, error)
	Reap(ctx context.Context, silence time.Duration, limit int) ([]belfry.Result, error)
	Prune(ctx context.Context, retention time.Duration) (int, error)
	store.AuditPruner
	Shards() int
}

// Options say how a scheduler works. Zero fields have the default in their comment.
type Options struct {
	Owner     belfry.ID     // the node's incarnation
	Local     *Local        // delivers runs to the node's own worker; default: one without a worker
	Retention time.Duration // of history; default 90 days

	AuditRetention time.Duration // of audit entries; zero: they are not pruned

	Defaults plan.Defaults // settings of the server for jobs
	Log      *slog.Logger
	Metrics  *metrics.Metrics // nil: nothing is measured
}

// Scheduler fires the jobs of the shards that it owns.
type Scheduler struct {
	store Store
	opts  Options
	log   *slog.Logger

	loads    chan []loadedPlan    // from the loader to the loop
	overdue  chan []store.Planned // to the loop: overdue plans, which it may not know
	triggers chan struct{}        // from the loader to the loop: read pending triggers
	progress atomic.Pointer[time.Time]
	subjects *subjects // of the plans that the loop fires

	maxPlanned int          // plans that the loop keeps
	planned    atomic.Int64 // plans that it has

	mu      sync.Mutex
	reach   time.Duration // how far ahead plans are loaded: the horizon, or less if it has too many plans
	dropped time.Time     // from when on the loop has dropped plans, to be read again; zero: none
	terms   map[int]store.Term
	changed chan struct{}      // closed and replaced when the terms change
	reloads map[belfry.ID]bool // plans to read again; nil: all
	reload  chan struct{}      // signals that there are some
}

// New makes a scheduler that owns no shard.
func New(s Store, o Options) *Scheduler {
	if o.Retention == 0 {
		o.Retention = 90 * 24 * time.Hour
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Local == nil {
		o.Local = &Local{}
	}
	return &Scheduler{
		store:      s,
		opts:       o,
		log:        o.Log,
		loads:      make(chan []loadedPlan, 4),
		overdue:    make(chan []store.Planned),
		triggers:   make(chan struct{}, 1),
		subjects:   newSubjects(o.Defaults),
		maxPlanned: maxPlanned,
		reach:      horizon,
		terms:      map[int]store.Term{},
		changed:    make(chan struct{}),
		reloads:    map[belfry.ID]bool{},
		reload:     make(chan struct{}, 1),
	}
}

// noteProgress records that the store has answered the loop.
func (s *Scheduler) noteProgress() {
	now := time.Now()
	s.progress.Store(&now)
}

// Stalled is for how long the store has not answered the loop, if that is too long for
// the scheduler to own shards; otherwise zero.
func (s *Scheduler) Stalled() time.Duration {
	last := s.progress.Load()
	if last == nil {
		return 0
	}
	if since := time.Since(*last); since > stallPolls*s.store.PollInterval() {
		return since
	}
	return 0
}

// Of PollIntervals: how often the loop asks the store something at least, and how long
// it may go without an answer.
const (
	probePolls = 6
	stallPolls = 20
)

// reloadPlans has plans read again.
func (s *Scheduler) reloadPlans(jobs ...belfry.ID) {
	if len(jobs) == 0 {
		return
	}
	s.mu.Lock()
	for _, job := range jobs {
		if s.reloads != nil {
			s.reloads[job] = true
		}
	}
	s.mu.Unlock()
	wake(s.reload)
}

// reloadAll has all plans read again.
func (s *Scheduler) reloadAll() {
	s.mu.Lock()
	s.reloads = nil
	s.mu.Unlock()
	wake(s.reload)
}

func (s *Scheduler) currentReach() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reach
}

// keepUntil is until when plans are kept in memory. The loader will read those after it.
// It is later than what was loaded, also if the store's clock was adjusted a little.
func (s *Scheduler) keepUntil(now time.Time) time.Time { return now.Add(s.currentReach() + soon) }

// shortenReach says that plans from an instant on were dropped.
func (s *Scheduler) shortenReach(from, now time.Time) {
	s.mu.Lock()
	s.reach = min(s.reach, from.Sub(now))
	if s.dropped.IsZero() || from.Before(s.dropped) {
		s.dropped = from
	}
	s.mu.Unlock()
	wake(s.reload)
}

// extendReach doubles a reach that was shortened, up to the horizon.
func (s *Scheduler) extendReach() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reach = min(2*s.reach, horizon)
}

// Lead owns a shard until ctx, the lifetime of its term, ends.
func (s *Scheduler) Lead(ctx context.Context, term store.Term) {
	s.changeTerms(func() { s.terms[term.Shard] = term })
	<-ctx.Done()
	s.changeTerms(func() {
		if s.terms[term.Shard] == term {
			delete(s.terms, term.Shard)
		}
	})
}

func (s *Scheduler) changeTerms(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// owned returns the current terms and a channel that is closed when they change.
func (s *Scheduler) owned() (map[int]store.Term, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.terms), s.changed
}

// Owned lists the shards that the scheduler owns now.
func (s *Scheduler) Owned() []int {
	terms, _ := s.owned()
	return shardsOf(terms)
}

// shardsOf lists the shards of some terms in order.
func shardsOf(terms map[int]store.Term) []int {
	shards := slices.AppendSeq(make([]int, 0, len(terms)), maps.Keys(terms))
	slices.Sort(shards)
	return shards
}

// Run schedules until ctx ends.
func (s *Scheduler) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	parts.Go(func() { newLoader(s).run(ctx) })
	parts.Go(func() { newZoneUpdater(s).run(ctx) })
	for _, d := range append(newSweeper(s).duties(ctx), newOverdueSearch(s).duty()) {
		parts.Go(func() { s.runDuty(ctx, d) })
	}
	newLoop(s).run(ctx)
	parts.Wait()
	return nil
}
