package scheduler

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/belfry-sh/belfry/internal/store"
)

const (
	// A hand-over or a quick restart makes occurrences late, but not missed, and so does a
	// short failure of the store, whose end is noticed when the next run is fired.
	minOutage  = 3 * time.Second
	minFailure = 10 * time.Second
)

// beginTerms makes the given terms those of the loop. It records the outages that new
// ones ended, so that later owners of the shards know of them too, and reads those that
// were recorded before. If the store fails, new terms begin with a later call.
func (l *loop) beginTerms(ctx context.Context, terms map[int]store.Term) {
	if maps.Equal(terms, l.terms) {
		return
	}
	begun, fresh := map[int]store.Term{}, map[int]store.Term{}
	var ended []store.Outage
	for shard, term := range terms {
		if l.terms[shard] == term {
			begun[shard] = term
			continue
		}
		fresh[shard] = term
		if term.Since.Sub(term.DownSince) >= minOutage {
			ended = append(ended, store.Outage{Shard: shard, From: term.DownSince, To: term.Since})
		}
	}
	l.terms = begun
	if len(fresh) == 0 {
		return
	}
	outages, err := l.exchangeOutages(ctx, shardsOf(fresh), ended)
	if err != nil {
		l.storeFailed(ctx, "outages could not be read; new shards wait", err)
		return
	}
	for shard := range fresh {
		delete(l.outages, shard)
	}
	for _, o := range outages {
		l.outages[o.Shard] = append(l.outages[o.Shard], o)
	}
	l.terms = terms
	l.storeRecovered(ctx)
}

// exchangeOutages records outages, and reads all those of some shards.
func (l *loop) exchangeOutages(ctx context.Context, shards []int, ended []store.Outage) ([]store.Outage, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if len(ended) > 0 {
		if err := l.store.RecordOutages(call, ended); err != nil {
			return nil, err
		}
	}
	return l.store.Outages(call, shards)
}

// addOutage records an outage of all shards that the loop has.
func (l *loop) addOutage(ctx context.Context, from, to time.Time) {
	var added []store.Outage
	for shard := range l.terms {
		o := store.Outage{Shard: shard, From: from, To: to}
		l.outages[shard] = append(l.outages[shard], o)
		added = append(added, o)
	}
	if len(added) == 0 {
		return
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := l.store.RecordOutages(call, added); err != nil {
		l.warn(ctx, "an outage could not be recorded", err)
	}
}

// storeFailed records that the store has failed.
func (l *loop) storeFailed(ctx context.Context, what string, err error) {
	if !l.failing {
		l.warn(ctx, what, err)
		l.failedAt = l.store.Now()
	}
	l.failing = true
}

// storeRecovered records that the store answers again.
func (l *loop) storeRecovered(ctx context.Context) {
	if l.failing {
		l.failing = false
		if now := l.store.Now(); now.Sub(l.failedAt) >= minFailure {
			l.addOutage(ctx, l.failedAt, now)
		}
		l.log.Info("the store answers again")
	}
}

// missedIn is the outage in which a plan of the shard was due; zero: there was none. What
// was due before an outage is late. An outage that ends in the future was recorded before
// the clock was set back.
func (l *loop) missedIn(shard int, at, now time.Time) store.Outage {
	for _, o := range slices.Backward(l.outages[shard]) {
		if !at.Before(o.To) {
			break // they are ordered by their end
		}
		if !at.Before(o.From) && !o.To.After(now) {
			return o
		}
	}
	return store.Outage{}
}
