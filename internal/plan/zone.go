package plan

import (
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// UpdateZone replans a plan that was made with an older release of the time-zone data.
// An occurrence that moved leaves a note at its old instant; if it moved into the past
// it is due at once. A step whose Next equals Seen need not be applied: nothing is
// planned, the occurrence is already due, or the plan was not made with an older
// release.
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

// currentOccurrence is the occurrence of a plan by the time-zone data of this program:
// the first after the high-water mark. If that is in the past, the rule may be newer
// than it, or the occurrence may have moved there; then it is the one nearest to where
// it was.
func (p *Policy) currentOccurrence(seen Plan, now time.Time) time.Time {
	was, decided := seen.NominalAt, seen.decidedUntil()
	if at, once := schedule.Once(p.Rule); once {
		if at.After(seen.FiredFor) {
			return at
		}
		return was
	}
	next := p.next(decided)
	if next.IsZero() {
		return next
	}
	near := nearest(p.Rule, decided, was)
	repeated := !seen.FiredFor.IsZero() && next.Sub(decided) <= distance(near, was)
	switch {
	case next.After(now) && repeated && near.After(next):
		return near // next is the wall time that was decided last, again
	case next.After(now):
		return next
	case near.After(now):
		return p.next(now)
	}
	return near
}

// nearest is the occurrence after one instant that is nearest to a later one; there
// must be one.
func nearest(rule schedule.Rule, after, at time.Time) time.Time {
	next := rule.Next(at)
	found, _, _ := newest(rule, after, at, 1)
	switch {
	case len(found) == 0:
		return next
	case next.IsZero() || distance(found[0], at) <= distance(next, at):
		return found[0]
	}
	return next
}

func distance(a, b time.Time) time.Duration { return a.Sub(b).Abs() }
