package dispatch

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/metrics"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	maxReady        = 4000                  // runs of a lane that are looked at
	minAgain        = 5 * time.Second       // after which a run that is still ready is announced again
	maxDoublings    = 3                     // of that time
	minGap          = 10 * time.Millisecond // between two looks at the database
	gapPerRun       = 50 * time.Microsecond // the same for each ready run: if there are many, workers have enough to do
	announceTimeout = 3 * time.Second       // for a batch
	readTimeout     = 5 * time.Second       // for a look
	failurePause    = time.Second           // after one of them failed
	lanesInterval   = 5 * time.Second       // after which the lanes of workers are read again
)

// Announcer announces the ready runs of the shards that a node owns, in the order of their
// ranks. Run starts it.
type Announcer struct {
	Store   ReadyRuns
	Queue   Queue
	Owned   func() []int // the shards
	Log     *slog.Logger
	Metrics *metrics.Metrics

	lanes     map[string]int                        // that nodes serve, with the slots of the smallest
	lanesRead time.Time                             // when
	announced map[string]map[belfry.ID]announcement // ready runs by lane
	failing   bool
}

// ReadyRuns is what an Announcer uses of the store.
type ReadyRuns interface {
	store.Notifier
	CountReady(ctx context.Context, limit int) (map[string]int, error)
	ReadyRuns(ctx context.Context, lane string, shards []int, limit int) ([]belfry.ID, error)
	Workers(ctx context.Context) ([]store.Worker, error)
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
		started := time.Now()
		ready, err := a.announceReady(ctx)
		if ctx.Err() != nil {
			return
		}
		pause := max(minGap, time.Since(started), time.Duration(ready)*gapPerRun)
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

// announceReady announces the runs that are due for it, and says how many are ready.
func (a *Announcer) announceReady(ctx context.Context) (total int, err error) {
	shards := a.Owned()
	if len(shards) == 0 {
		return 0, nil
	}
	read, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if err := a.readLanes(read); err != nil {
		return 0, err
	}
	lanes, err := a.Store.CountReady(read, 1)
	if err != nil {
		return 0, err
	}
	maps.DeleteFunc(a.announced, func(lane string, _ map[belfry.ID]announcement) bool { return lanes[lane] == 0 })
	for lane := range lanes {
		_, served := belfry.LaneNamespace(lane)
		slots, known := a.lanes[served]
		if !known {
			continue
		}
		ready, err := a.Store.ReadyRuns(read, lane, shards, maxReady)
		if err == nil {
			err = a.announce(ctx, lane, served, slots, ready)
		}
		if total += len(ready); err != nil {
			return total, err
		}
	}
	return total, nil
}

// readLanes finds out which lanes nodes serve: those of the built-in handlers. Workers with
// handlers of a user, whose lanes have a namespace, claim over HTTP.
func (a *Announcer) readLanes(ctx context.Context) error {
	if time.Since(a.lanesRead) < lanesInterval {
		return nil
	}
	workers, err := a.Store.Workers(ctx)
	if err != nil {
		return err
	}
	a.lanes, a.lanesRead = map[string]int{}, time.Now()
	for _, w := range workers {
		for _, lane := range w.Lanes {
			if slots, known := a.lanes[lane]; !strings.Contains(lane, ":") && (!known || w.Slots < slots) {
				a.lanes[lane] = w.Slots
			}
		}
	}
	return nil
}

// announce announces runs of a lane to the workers that serve it.
func (a *Announcer) announce(ctx context.Context, lane, served string, slots int, ready []belfry.ID) error {
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
		err = a.Queue.Announce(call, served, slices.Collect(slices.Chunk(due, min(max(slots/slotsPerRun, 1), maxGroup))))
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
