package scheduler

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// Options say how a scheduler works. Zero fields mean the stated default.
type Options struct {
	Owner     belfry.ID     // the node's incarnation
	Local     *Local        // hands runs to the node's own worker; nil: there is none
	Retention time.Duration // of history; default 90 days
	Defaults  plan.Defaults // for jobs that do not say it themselves
	Log       *slog.Logger
}

// Scheduler fires the shards that it is given.
type Scheduler struct {
	store store.Store
	opts  Options
	log   *slog.Logger

	loads  chan []store.Due // from the loader to the loop
	reloads chan []belfry.ID // from the loop to the loader: plans to read again
	triggers chan struct{}    // from the loader to the loop: look for triggers

	mu    sync.Mutex
	terms map[int]store.Term
	changed chan struct{} // closed and replaced when the terms change
}

// New makes a scheduler that owns nothing yet.
func New(s store.Store, o Options) *Scheduler {
	if o.Retention == 0 {
		o.Retention = 90 * 24 * time.Hour
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Scheduler{
		store:  s,
		opts:   o,
		log:    o.Log,
		loads:  make(chan []store.Due, 4),
		reloads: make(chan []belfry.ID, 64),
		triggers: make(chan struct{}, 1),
		terms:  map[int]store.Term{},
		changed:  make(chan struct{}),
	}
}

// Lead owns a shard for as long as ctx, the life of its term, lasts.
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

// owned gives the current terms and a channel that is closed when they change.
func (s *Scheduler) owned() (map[int]store.Term, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	terms := make(map[int]store.Term, len(s.terms))
	for shard, term := range s.terms {
		terms[shard] = term
	}
	return terms, s.changed
}

// shardsOf lists the shards of some terms in order.
func shardsOf(terms map[int]store.Term) []int {
	shards := make([]int, 0, len(terms))
	for shard := range terms {
		shards = append(shards, shard)
	}
	slices.Sort(shards)
	return shards
}

// Run works until ctx ends.
func (s *Scheduler) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	parts.Go(func() { newLoader(s).run(ctx) })
	parts.Go(func() { newSweeper(s).run(ctx) })
	parts.Go(func() { newZoneUpdater(s).run(ctx) })
	newLoop(s).run(ctx)
	parts.Wait()
	return nil
}
