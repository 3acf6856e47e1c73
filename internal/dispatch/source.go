package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/metrics"
	"github.com/belfry-sh/belfry/worker"
)

const (
	pollInterval = time.Second            // how often the database is asked although the broker works
	lateAfter    = time.Second            // a run that was ready for so long should have been announced
	starvedAfter = 100 * time.Millisecond // a claim that waits for so long has received all that the broker has
	minBridge    = 3 * time.Second        // for how long the database is used although announcements arrive
	firstTrial   = 5 * time.Second        // after which the broker is tried again although none arrives
	lastTrial    = time.Minute            // the same after several trials
	failureLasts = 6 * time.Second        // how long a call that fails may take
	retryPause   = 500 * time.Millisecond // after a call to the broker that failed
)

// Source is a worker.Source that claims runs which a Queue announces. Once a second it claims
// from the database, lowest rank first, what was not announced, and again at once while such
// runs are late. If no announcement was of use since the last time, or if the broker fails, the
// database is the bridge: claims go there, as they do without a broker, until announcements
// arrive or it is time to try.
type Source struct {
	worker.Source // the database; its claims wait for notifications
	claims        Claims
	queue         Queue
	log           *slog.Logger
	metrics       *metrics.Metrics

	ctx      context.Context // ends listening
	listens  sync.Once
	demand   chan int         // a claim has so many free slots
	received chan []belfry.ID // announcements for a claim

	mu         sync.Mutex // guards the fields below
	mode       *mode
	rest       []belfry.ID // received, but more than a claim had slots for
	polledAt   time.Time
	hasClaimed bool          // an announced run was claimed since then
	isStarved  bool          // a claim waited in vain since then
	trialAfter time.Duration // how long the next bridge lasts at least, unless announcements arrive
	failedAt   time.Time     // when a call to the broker last failed
	hasWarned  bool          // of the bridge
}

// Claims is what a Source uses of the store; a claim does not wait.
type Claims interface {
	Claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error)
	ClaimRuns(ctx context.Context, c belfry.Claim, runs []belfry.ID) ([]*belfry.Run, error)
}

// mode is a time, until its context ends, in which the broker is used, or the database.
type mode struct {
	context.Context
	end       context.CancelFunc
	isBridged bool
	since     time.Time
}

// NewSource makes a source that listens until ctx ends. Database is the source without a
// broker; it also takes heartbeats and results.
func NewSource(ctx context.Context, database worker.Source, claims Claims, queue Queue, log *slog.Logger, m *metrics.Metrics) *Source {
	s := &Source{Source: database, claims: claims, queue: queue, log: log, metrics: m, ctx: ctx, demand: make(chan int), received: make(chan []belfry.ID), trialAfter: firstTrial}
	s.mode = s.newMode(false)
	return s
}

func (s *Source) newMode(isBridged bool) *mode {
	m := &mode{isBridged: isBridged, since: time.Now()}
	m.Context, m.end = context.WithCancel(s.ctx)
	return m
}

// Claim waits until it has runs or ctx ends. All claims are for the same lanes.
func (s *Source) Claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	s.listens.Do(func() {
		for _, lane := range c.Lanes {
			go s.listen(lane)
		}
	})
	for ctx.Err() == nil && s.ctx.Err() == nil {
		claim := s.claimAnnounced
		m := s.current()
		if m.isBridged {
			claim = s.claimBridged
		}
		if runs, err := claim(ctx, m, c); err != nil || len(runs) > 0 {
			return runs, err
		}
	}
	return nil, nil
}

func (s *Source) current() *mode {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mode
}

// claimBridged claims from the database until announcements arrive or it is time to try the
// broker.
func (s *Source) claimBridged(ctx context.Context, m *mode, c belfry.Claim) ([]*belfry.Run, error) {
	if s.tryBroker(m) {
		return nil, nil
	}
	call, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	defer context.AfterFunc(m, cancel)()
	return s.Source.Claim(call, c)
}

// tryBroker ends a bridge that lasted long enough, unless calls to the broker fail.
func (s *Source) tryBroker(m *mode) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(m.since) < s.trialAfter || time.Since(s.failedAt) < failureLasts {
		return false
	}
	s.trialAfter = min(2*s.trialAfter, lastTrial)
	s.unbridge(m)
	return true
}

// unbridge makes claims go to the broker; mu is held.
func (s *Source) unbridge(m *mode) {
	if s.mode == m && m.isBridged {
		s.mode, s.hasClaimed, s.isStarved, s.polledAt = s.newMode(false), false, false, time.Now()
		m.end()
	}
}

// claimAnnounced claims what is announced next, or from the database if it is time to.
func (s *Source) claimAnnounced(ctx context.Context, m *mode, c belfry.Claim) ([]*belfry.Run, error) {
	wait := s.untilPoll()
	if wait <= 0 {
		runs, err := s.claims.Claim(ctx, c)
		if err == nil {
			s.judge(m, runs)
		}
		return runs, err
	}
	if ids := s.take(nil, c.Limit); len(ids) > 0 {
		return s.claimRuns(ctx, c, ids)
	}
	timer, starved := time.NewTimer(wait), time.NewTimer(starvedAfter)
	defer timer.Stop()
	defer starved.Stop()
	for {
		select {
		case s.demand <- c.Limit:
			continue
		case <-starved.C:
			s.mu.Lock()
			s.isStarved = true
			s.mu.Unlock()
			continue
		case ids := <-s.received:
			return s.claimRuns(ctx, c, s.take(ids, c.Limit))
		case <-timer.C:
		case <-m.Done():
		case <-ctx.Done():
		}
		return nil, nil
	}
}

// untilPoll is when to ask the database; zero: now, and others need not.
func (s *Source) untilPoll() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if wait := s.polledAt.Add(pollInterval).Sub(now); wait > 0 {
		return wait
	}
	s.polledAt = now
	return 0
}

// take returns received announcements, as many as there are slots, and keeps the rest.
func (s *Source) take(received []belfry.ID, slots int) []belfry.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := append(s.rest, received...)
	n := min(len(all), slots)
	s.rest = all[n:]
	return all[:n:n]
}

func (s *Source) claimRuns(ctx context.Context, c belfry.Claim, ids []belfry.ID) ([]*belfry.Run, error) {
	runs, err := s.claims.ClaimRuns(ctx, c, ids)
	if err != nil {
		return nil, err
	}
	s.metrics.Dispatched(metrics.DispatchClaimed, len(runs))
	s.metrics.Dispatched(metrics.DispatchStale, max(len(ids)-len(runs), 0))
	if len(runs) > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hasClaimed, s.trialAfter = true, firstTrial
		if s.hasWarned {
			s.hasWarned = false
			s.log.Info("ready runs are announced over the broker again")
		}
	}
	return runs, nil
}

// judge decides by runs that the database had whether the broker brings work. If workers are
// busy runs are late too, but then claims do not wait for announcements.
func (s *Source) judge(m *mode, runs []*belfry.Run) {
	late := slices.ContainsFunc(runs, func(r *belfry.Run) bool {
		ready := r.ReadyAt
		if r.FiredAt.After(ready) {
			ready = r.FiredAt
		}
		return r.StartedAt.Sub(ready) > lateAfter
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !late || !s.isStarved:
		s.isStarved = false
	case s.hasClaimed:
		s.polledAt = time.Time{} // again
	default:
		s.bridge(m, errLate)
	}
	s.hasClaimed = false
}

var errLate = errors.New("runs were ready for a second, and no announcement came")

// bridge makes claims go to the database; mu is held.
func (s *Source) bridge(m *mode, why error) {
	if s.mode != m || m.isBridged || s.ctx.Err() != nil {
		return
	}
	if !s.hasWarned {
		s.hasWarned = true
		s.log.Warn("ready runs are not announced over the broker; they are claimed from the database", "error", why)
	}
	s.mode, s.rest = s.newMode(true), nil
	m.end()
}

// listen receives announcements of a lane: for a claim that has free slots, and while claims
// go to the database to see whether the broker works again.
func (s *Source) listen(lane string) {
	for s.ctx.Err() == nil {
		m, slots := s.current(), 1
		if !m.isBridged {
			select {
			case slots = <-s.demand:
			case <-m.Done():
				continue
			}
		}
		ids, err := s.queue.Receive(s.ctx, lane, slots)
		if err != nil {
			s.mu.Lock()
			s.failedAt = time.Now()
			s.bridge(s.mode, err)
			s.mu.Unlock()
			sleep(s.ctx, retryPause)
			continue
		}
		s.metrics.Dispatched(metrics.DispatchReceived, len(ids))
		if m = s.arrived(); m.isBridged {
			s.metrics.Dispatched(metrics.DispatchStale, len(ids))
			continue
		}
		select {
		case s.received <- ids:
		case <-m.Done():
		}
	}
}

// arrived records that announcements arrive: the broker is used again after a while.
func (s *Source) arrived() *mode {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.mode.since) >= minBridge {
		s.unbridge(s.mode)
	}
	return s.mode
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
