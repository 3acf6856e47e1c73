package scheduler

import (
	"context"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	zoneUpdateDelay  = time.Second           // gathers shards, and lets what is due go first
	zoneUpdateBatch  = 500                   // plans in one step of the walk
	zoneUpdatePause  = 50 * time.Millisecond // between two steps
	zoneUpdateInterval  = 24 * time.Hour        // for what an older node has written since
	zoneRetryMin  = time.Second           // after an error; doubled each time
	zoneRetryMax = time.Minute
	maxMovesLogged = 100 // in the log, for one walk
)

// rezoner moves the plans that an older release of the zone database has put
// elsewhere than the one in this program does. It walks over them once for each
// term of a shard, a little at a time. Whoever fires or edits a plan plans with
// the database that it has, so that a plan which changed meanwhile is left alone.
type zoneUpdater struct {
	*Scheduler
	checked map[int]int64 // by shard: the epoch of the term in which it was
}

func newZoneUpdater(s *Scheduler) *zoneUpdater {
	return &zoneUpdater{Scheduler: s, checked: map[int]int64{}}
}

func (r *zoneUpdater) run(ctx context.Context) {
	again := time.NewTicker(zoneUpdateInterval)
	defer again.Stop()
	for {
		terms, moved := r.owned()
		if len(r.unchecked(terms)) > 0 {
			if !sleep(ctx, zoneUpdateDelay) {
				return
			}
			terms, _ := r.owned()
			if !r.walk(ctx, terms) {
				return
			}
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-moved:
		case <-again.C:
			clear(r.checked)
		}
	}
}

// unchecked lists the shards whose plans were not looked at in these terms.
func (r *zoneUpdater) unchecked(terms map[int]store.Term) []int {
	return slices.DeleteFunc(shardsOf(terms), func(shard int) bool {
		epoch, ok := r.checked[shard]
		return ok && epoch == terms[shard].Epoch
	})
}

// walk looks at all plans of the shards that were not looked at yet. It tries
// again after an error, from where it was; false means that everything ends.
func (r *zoneUpdater) walk(ctx context.Context, terms map[int]store.Term) bool {
	w := &zoneUpdate{zoneUpdater: r, shards: r.unchecked(terms), terms: terms, subjects: newSubjects(r.opts.Defaults), retry: zoneRetryMin}
	for more := true; more; {
		var err error
		wait := zoneUpdatePause
		if more, err = w.step(ctx); err != nil {
			r.warn(ctx, "plans could not be brought up to the zone database", err)
			wait, w.retry = w.retry, min(2*w.retry, zoneRetryMax)
			more = true
		} else {
			w.retry = zoneRetryMin
		}
		if more && !sleep(ctx, wait) {
			return false
		}
	}
	for _, shard := range w.shards {
		r.checked[shard] = terms[shard].Epoch
	}
	if w.moved > 0 {
		r.log.Info("a newer zone database moved jobs", "release", schedule.ZoneVersion(), "jobs", w.moved)
	}
	return true
}

// rezoning is one walk.
type zoneUpdate struct {
	*zoneUpdater
	shards   []int
	terms    map[int]store.Term
	subjects *subjects
	after    belfry.ID
	retry    time.Duration
	moved    int
}

// step looks at some plans and says whether there are more.
func (w *zoneUpdate) step(ctx context.Context) (more bool, err error) {
	dues, next, err := w.store.PlansForZoneUpdate(ctx, w.shards, schedule.ZoneVersion(), w.after, zoneUpdateBatch)
	if err != nil {
		return false, err
	}
	steps, moves := w.decide(dues)
	applied, err := w.apply(ctx, steps)
	w.reloadPlans(ctx, steps) // even if there was an error: perhaps it was done all the same
	if err != nil {
		return false, err
	}
	for i := range steps {
		if applied[i] && moves[i] {
			w.logMove(&steps[i])
		}
	}
	w.after = next
	return !next.IsZero(), nil
}

// decide makes steps of plans and says which of them move their plan. One that
// stays where it is and is due soon is left to the loop, whose copy of the plan
// would be outdated just when it is needed: what it plans next is up to date.
func (w *zoneUpdate) decide(dues []store.Due) (steps []plan.Step, moves []bool) {
	now := w.store.Now()
	for _, d := range dues {
		subject, _, err := w.subjects.get(d)
		if err != nil {
			continue // the loop says so
		}
		step, moved := plan.UpdateZone(*subject, d.Plan, now)
		if soon := now.Add(horizon + refill); !moved && (step.Next == d.Plan || !d.Plan.NextAt.IsZero() && d.Plan.NextAt.Before(soon)) {
			continue
		}
		step.Epoch = w.terms[d.Plan.Shard].Epoch
		steps, moves = append(steps, step), append(moves, moved)
	}
	return steps, moves
}

// apply writes steps. If the store is there and still refuses, one of them is
// bad: they are halved until that one is alone, and it is left as it is.
func (w *zoneUpdate) apply(ctx context.Context, steps []plan.Step) (applied []bool, err error) {
	if len(steps) == 0 {
		return nil, nil
	}
	fired, err := w.store.Fire(ctx, w.opts.Owner, steps, store.FreeSlots{})
	if err == nil {
		return fired.Applied, nil
	}
	if ctx.Err() != nil || belfry.CodeOf(err) == belfry.Unavailable || w.store.Ping(ctx) != nil {
		return nil, err
	}
	if len(steps) > 1 {
		half := len(steps) / 2
		first, err := w.apply(ctx, steps[:half])
		if err != nil {
			return nil, err
		}
		second, err := w.apply(ctx, steps[half:])
		return append(first, second...), err
	}
	if fired, err = w.store.Fire(ctx, w.opts.Owner, steps, store.FreeSlots{}); err == nil {
		return fired.Applied, nil // only the connection was lost
	}
	w.log.Error("a plan cannot be brought up to the zone database; it is left as it is", "job", steps[0].Seen.JobID, "error", err)
	return []bool{false}, nil
}

// note says in the log where a job went, unless there are too many to name.
func (w *zoneUpdate) logMove(step *plan.Step) {
	if w.moved++; w.moved > maxMovesLogged {
		return
	}
	w.log.Info("a newer zone database moves a job", "job", step.Seen.JobID, "from", step.Seen.NominalAt, "to", step.Next.NominalAt,
		"planned_with", step.Seen.ZoneVersion, "release", step.Next.ZoneVersion)
}

// tell has the loop read plans again that it may have in memory.
func (w *zoneUpdate) reloadPlans(ctx context.Context, steps []plan.Step) {
	soon := w.store.Now().Add(horizon + refill)
	var jobs []belfry.ID
	for i := range steps {
		was, is := steps[i].Seen.NextAt, steps[i].Next.NextAt
		if !was.IsZero() && was.Before(soon) || !is.IsZero() && is.Before(soon) {
			jobs = append(jobs, steps[i].Seen.JobID)
		}
	}
	if len(jobs) == 0 {
		return
	}
	select {
	case w.reloads <- jobs:
	case <-ctx.Done():
	}
}

// pause lets time pass; false means that everything ends.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
