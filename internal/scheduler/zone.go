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
	zoneUpdateDelay    = time.Second           // gathers shards, and lets due jobs fire first
	zoneUpdateBatch    = 500                   // plans in one step
	zoneUpdatePause    = 50 * time.Millisecond // between two steps
	zoneUpdateInterval = 24 * time.Hour        // for plans that an older node has written since
	zoneRetryMin       = time.Second           // after an error; doubled each time up to the maximum
	zoneRetryMax       = time.Minute
	maxMovesLogged     = 100 // in one update
)

// zoneUpdater replans jobs that were planned with an older release of the time-zone
// data than that of this program. It goes through the plans once per term of a shard, a
// few at a time. A plan that is fired or edited meanwhile has been replanned by that, so
// that the update of it is not applied.
type zoneUpdater struct {
	*Scheduler
	checked map[int]int64 // by shard: the epoch of the term in which it was checked
}

func newZoneUpdater(s *Scheduler) *zoneUpdater {
	return &zoneUpdater{Scheduler: s, checked: map[int]int64{}}
}

func (u *zoneUpdater) run(ctx context.Context) {
	repeat := time.NewTicker(zoneUpdateInterval)
	defer repeat.Stop()
	for {
		terms, changed := u.owned()
		if len(u.unchecked(terms)) > 0 {
			if !sleep(ctx, zoneUpdateDelay) {
				return
			}
			terms, _ := u.owned()
			if !u.update(ctx, terms) {
				return
			}
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-repeat.C:
			clear(u.checked)
		}
	}
}

// unchecked lists the shards whose plans were not checked in these terms.
func (u *zoneUpdater) unchecked(terms map[int]store.Term) []int {
	return slices.DeleteFunc(shardsOf(terms), func(shard int) bool {
		epoch, ok := u.checked[shard]
		return ok && epoch == terms[shard].Epoch
	})
}

// update goes through all plans of the unchecked shards. After an error it continues
// where it was. It returns false if ctx ended.
func (u *zoneUpdater) update(ctx context.Context, terms map[int]store.Term) bool {
	w := &zoneUpdate{zoneUpdater: u, shards: u.unchecked(terms), terms: terms, subjects: newSubjects(u.opts.Defaults)}
	for retry := zoneRetryMin; ; {
		more, err := w.step(ctx)
		wait := zoneUpdatePause
		if err != nil {
			u.warn(ctx, "plans could not be updated to newer time-zone data", err)
			wait, retry = retry, min(2*retry, zoneRetryMax)
		} else if retry = zoneRetryMin; !more {
			break
		}
		if !sleep(ctx, wait) {
			return false
		}
	}
	for _, shard := range w.shards {
		u.checked[shard] = terms[shard].Epoch
	}
	if w.moved > 0 {
		u.log.Info("newer time-zone data moved jobs", "release", schedule.ZoneVersion(), "jobs", w.moved)
	}
	return true
}

// zoneUpdate is one pass over the plans.
type zoneUpdate struct {
	*zoneUpdater
	shards   []int
	terms    map[int]store.Term
	subjects *subjects
	after    belfry.ID
	moved    int
}

// step updates some plans and reports whether there are more.
func (w *zoneUpdate) step(ctx context.Context) (more bool, err error) {
	dues, after, err := w.store.PlansForZoneUpdate(ctx, w.shards, schedule.ZoneVersion(), w.after, zoneUpdateBatch)
	if err != nil {
		return false, err
	}
	steps, moves := w.decide(dues)
	applied, err := w.apply(ctx, steps)
	w.reloadSteps(steps) // also after an error, whose outcome is unknown
	if err != nil {
		return false, err
	}
	for i := range steps {
		if !applied[i] || !moves[i] {
			continue
		}
		if w.moved++; w.moved <= maxMovesLogged {
			seen, next := &steps[i].Seen, &steps[i].Next
			w.log.Info("newer time-zone data moves a job", "job", seen.JobID, "from", seen.NominalAt, "to", next.NominalAt,
				"planned_with", seen.ZoneVersion, "release", next.ZoneVersion)
		}
	}
	w.after = after
	return !after.IsZero(), nil
}

// decide returns steps for plans, and which of them move their occurrence. A plan that
// does not move and is due soon is left to the loop: a step would make the loop's copy
// stale just when it is needed, and what the loop plans next is up to date.
func (w *zoneUpdate) decide(dues []store.Due) (steps []plan.Step, moves []bool) {
	now := w.store.Now()
	for _, d := range dues {
		subject, _, err := w.subjects.get(d)
		if err != nil {
			continue // the loop logs it
		}
		step, moved := plan.UpdateZone(*subject, d.Plan, now)
		if soon := now.Add(horizon); !moved && (step.Next == d.Plan || !d.Plan.NextAt.IsZero() && d.Plan.NextAt.Before(soon)) {
			continue
		}
		step.Epoch = w.terms[d.Plan.Shard].Epoch
		steps, moves = append(steps, step), append(moves, moved)
	}
	return steps, moves
}

// apply applies steps. If the store answers and still returns an error, a step is
// invalid: the batch is halved until that step is alone, and it is dropped.
func (w *zoneUpdate) apply(ctx context.Context, steps []plan.Step) (applied []bool, err error) {
	if len(steps) == 0 {
		return nil, nil
	}
	fired, err := w.store.Fire(ctx, w.opts.Owner, steps)
	if err == nil {
		return fired.Applied, nil
	}
	if ctx.Err() != nil || store.IsTrouble(err) || w.store.Ping(ctx) != nil {
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
	if fired, err = w.store.Fire(ctx, w.opts.Owner, steps); err == nil {
		return fired.Applied, nil // only the connection was lost
	}
	w.log.Error("a plan cannot be updated to newer time-zone data; it is left as it is", "job", steps[0].Seen.JobID, "error", err)
	return []bool{false}, nil
}

// reloadSteps has the loop read plans again that it may have in memory.
func (w *zoneUpdate) reloadSteps(steps []plan.Step) {
	soon := w.store.Now().Add(horizon)
	var jobs []belfry.ID
	for i := range steps {
		before, after := steps[i].Seen.NextAt, steps[i].Next.NextAt
		if !before.IsZero() && before.Before(soon) || !after.IsZero() && after.Before(soon) {
			jobs = append(jobs, steps[i].Seen.JobID)
		}
	}
	w.reloadPlans(jobs...)
}

// sleep waits for d. It returns false if ctx ended.
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
