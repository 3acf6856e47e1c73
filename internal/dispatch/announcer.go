package dispatch

import (
	"context"
	"log/slog"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/metrics"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	maxReady        = 4000                 // runs of a lane that are looked at
	minAgain        = 5 * time.Second      // after which a run that is still ready is announced again
	maxDoublings    = 3                    // of that time
	minGap          = 5 * time.Millisecond // between two looks at the database
	readShare       = 10                   // one part of the time, at most, is spent looking
	announceTimeout = 3 * time.Second      // for a batch
	readTimeout     = 5 * time.Second      // for a look
	failurePause    = time.Second          // after one of them failed
)

// Announcer announces the ready runs of the shards that a node owns, in the order of their
// ranks. Run starts it.
type Announcer struct {
	Store   ReadyRuns
	Queue   Queue
	Lanes   []string
	Owned   func() []int // the shards
	Log     *slog.Logger
	Metrics *metrics.Metrics

	announced map[string]map[belfry.ID]announcement // ready runs by lane
	failing   bool
}

// ReadyRuns is what an Announcer uses of the store.
type ReadyRuns interface {
	store.Notifier
	ReadyRuns(ctx context.Context, lane string, shards []int, limit int) ([]belfry.ID, error)
}

// announcement is when and how often a run was announced.
type announcement struct {
	at    time.Time
	times int
}

// isDue reports whether to announce the run. One that stays ready for long is announced
// seldom: workers have no slot for it, and the broker keeps what it was told for a while.
func (a announcement) isDue(now time.Time) bool {
	return a.times == 0 || now.Sub(a.at) >= minAgain<<min(a.times-1, maxDoublings)
}

// Run announces until ctx ends.
func (a *Announcer) Run(ctx context.Context) {
	a.announced = map[string]map[belfry.ID]announcement{}
	wakeups := a.Store.Wakeups(ctx, store.TopicReady)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wakeups:
		case <-timer.C:
		}
		took, err := a.announceReady(ctx)
		if ctx.Err() != nil {
			return
		}
		pause := max(minGap, min(readShare*took, failurePause))
		if err != nil {
			pause = failurePause
		}
		a.report(err)
		sleep(ctx, pause)
		timer.Reset(max(a.Store.PollInterval()-pause, 0))
	}
}

// report logs the first of several failures, and their end.
func (a *Announcer) report(err error) {
	switch {
	case err != nil && !a.failing:
		a.Log.Warn("ready runs could not be announced over the broker; workers claim them from the database", "error", err)
	case err == nil && a.failing:
		a.Log.Info("ready runs are announced over the broker again")
	}
	a.failing = err != nil
}

// announceReady announces the runs that are due for it, and says how long it took to find
// them.
func (a *Announcer) announceReady(ctx context.Context) (took time.Duration, err error) {
	shards := a.Owned()
	for _, lane := range a.Lanes {
		started := time.Now()
		read, cancel := context.WithTimeout(ctx, readTimeout)
		ready, err := a.Store.ReadyRuns(read, lane, shards, maxReady)
		cancel()
		took += time.Since(started)
		if err == nil {
			err = a.announce(ctx, lane, ready)
		}
		if err != nil {
			return took, err
		}
	}
	return took, nil
}

func (a *Announcer) announce(ctx context.Context, lane string, ready []belfry.ID) error {
	now := time.Now()
	known := make(map[belfry.ID]announcement, len(ready)) // those that are not ready any more are forgotten
	var due []belfry.ID
	for _, id := range ready {
		run := a.announced[lane][id]
		if run.isDue(now) {
			due = append(due, id)
		} else {
			known[id] = run
		}
	}
	var err error
	if len(due) > 0 {
		call, cancel := context.WithTimeout(ctx, announceTimeout)
		defer cancel()
		err = a.Queue.Announce(call, lane, due)
	}
	if err == nil {
		a.Metrics.Dispatched(metrics.DispatchAnnounced, len(due))
		for _, id := range due {
			known[id] = announcement{at: now, times: a.announced[lane][id].times + 1}
		}
	}
	a.announced[lane] = known
	return err
}
