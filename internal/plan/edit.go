package plan

import (
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// Edit gives a job another rule, and leaves it paused or not. What is due by the
// old one is decided first, as of the subject before the edit and as settle does,
// but whatever fell into a pause is skipped. The new rule holds after that, and
// after whatever was decided before: a one-off that is not later than all of it
// leaves the job without a plan. An occurrence that only waits for its jitter stays
// if the new rule names it too, and is skipped otherwise.
func Edit(s Subject, to *Policy, seen Plan, pause bool, now time.Time) Step {
	step := Step{Subject: s, Seen: seen, Next: seen}
	if s.Policy.isDue(seen, now) {
		if seen.NextAt.IsZero() {
			d := s.Policy.dueBefore(seen, now.Add(1), 1)
			step.skip(d, belfry.ReasonPaused)
			step.Next.FiredFor = d.latest()
		} else {
			step.Due = !seen.NextAt.After(now) // it is decided in any case: nothing else will do it
			step.decideDue(now)
		}
		step.Next = s.Policy.plan(step.Next, s.Policy.next(step.Next.FiredFor))
	}
	at, since := step.Next.NominalAt, now
	if to.keepsOccurrence(step.Next, now) {
		since = at.Add(-time.Microsecond)
	} else {
		step.skipUndecided(at, now, belfry.ReasonEdited)
		at = to.firstAfterEdit(step.Next.FiredFor, now)
	}
	if to.oneOff() {
		since = now
	}
	switch {
	case seen.NominalAt.IsZero():
	case s.Policy.Spent(step.Next.RunsMade):
		step.Skips = append(step.Skips, s.Policy.gaps(seen, step.Next.FiredFor)...)
	default:
		step.Skips = append(step.Skips, s.Policy.gaps(seen, since)...)
	}
	if to.SkipsGap() && !to.oneOff() {
		// The gaps before are not the new rule's, and recorded if they were the old one's.
		step.Next.FiredFor = later(step.Next.FiredFor, since)
	}
	step.Next.ZoneVersion = schedule.ZoneVersion()
	step.Next = to.plan(step.Next, at).notBefore(now)
	if pause {
		step.Next.NextAt = time.Time{}
	}
	return step
}

// takesOver tells whether an occurrence that has passed and waits for its jitter is
// one of a policy that comes now, and will run by it.
func (p *Policy) keepsOccurrence(decided Plan, now time.Time) bool {
	at := decided.NominalAt
	return !at.IsZero() && !at.After(now) && !p.Spent(decided.RunsMade) && p.next(at.Add(-time.Microsecond)).Equal(at)
}

// from is the first occurrence of a policy that holds from now on and has nothing to
// say about what is decided, up to a mark. A one-off may be a little late.
func (p *Policy) firstAfterEdit(mark, now time.Time) time.Time {
	if at, once := schedule.Once(p.Rule); !once {
		return p.next(later(mark, now))
	} else if at.After(mark) {
		return at
	}
	return time.Time{}
}

// Retime plans the occurrence that a step leaves on the plan as another policy has
// it, which differs in its jitter, its number of runs and what is no concern of
// time. What is due already is not due later for it, unless its jitter says so.
func Retime(step Step, to *Policy, now time.Time) Step {
	if was := step.Next.NextAt; !was.IsZero() {
		if step.Next = to.plan(step.Next, step.Next.NominalAt); was.After(now) {
			was = now
		}
		step.Next = step.Next.notBefore(was)
	}
	return step
}
