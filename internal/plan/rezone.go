package plan

import (
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// Rezone looks at a plan that was made with an older release of the zone database
// and says where its occurrence is now. What moved leaves a record at its old
// instant; if it moved into the past it is due at once. A step whose Next equals
// Seen is not worth applying: nothing is planned, the occurrence is due already,
// or the plan was not made with an older release.
func UpdateZone(s Subject, seen Plan, now time.Time) (step Step, moved bool) {
	step = Step{Subject: s, Seen: seen, Next: seen}
	paused, at := seen.NextAt.IsZero(), seen.NominalAt
	switch {
	case at.IsZero(), seen.ZoneVersion >= schedule.ZoneVersion():
		return step, false
	case paused && s.Policy.isDue(seen, now), !paused && !seen.NextAt.After(now):
		return step, false
	}
	to := s.Policy.currentOccurrence(seen, now)
	if moved = !to.Equal(at); moved {
		step.Skips = []Skip{newNote(seen.JobID, at, 1, belfry.ReasonZoneChange)}
	}
	step.Next.ZoneVersion = schedule.ZoneVersion()
	step.Next = s.Policy.plan(step.Next, to).notBefore(now)
	if paused {
		step.Next.NextAt = time.Time{}
	}
	return step, moved
}

// rezoned is where the occurrence of a plan is by the zone database of this
// program: the first after the mark. If that has passed, the rule may have come
// after it, or the occurrence may have moved there; then it is the one next to
// where it was.
func (p *Policy) currentOccurrence(seen Plan, now time.Time) time.Time {
	was, mark := seen.NominalAt, seen.decidedUntil()
	if at, once := schedule.Once(p.Rule); once {
		if at.After(seen.FiredFor) {
			return at
		}
		return was
	}
	next := p.next(mark)
	if next.IsZero() {
		return next
	}
	near := nearest(p.Rule, mark, was)
	again := !seen.FiredFor.IsZero() && next.Sub(mark) <= distance(near, was)
	switch {
	case next.After(now) && again && near.After(next):
		return near // The wall time that was decided last shows again.
	case next.After(now):
		return next
	case near.After(now):
		return p.next(now)
	}
	return near
}

// nearest is the occurrence after a mark that is nearest to an instant after it;
// there must be one.
func nearest(rule schedule.Rule, mark, was time.Time) time.Time {
	next := rule.Next(was)
	found, _, _ := newest(rule, mark, was, 1)
	switch {
	case len(found) == 0:
		return next
	case next.IsZero() || distance(found[0], was) <= distance(next, was):
		return found[0]
	}
	return next
}

func distance(a, b time.Time) time.Duration { return a.Sub(b).Abs() }
