package plan

import (
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// Edit gives a job another rule, and leaves it paused or not. What is due by the
// old one is decided first, as of the subject before the edit: the latest
// occurrence runs and earlier ones were missed, but whatever fell into a pause is
// skipped. The new rule holds after that, and after whatever was decided before:
// a one-off that is not later than all of it leaves the job without a plan. An
// occurrence that only waits for its jitter stays if the new rule names it too.
func Edit(s Subject, to *Policy, seen Plan, pause bool, now time.Time) Step {
	step := Step{Subject: s, Seen: seen, Next: seen}
	if s.Policy.isDue(seen, now) {
		d := s.Policy.dueBefore(seen, now.Add(1))
		if seen.NextAt.IsZero() {
			step.Skips = d.all(belfry.ReasonPaused)
		} else {
			step.Due = !seen.NextAt.After(now) // it runs in any case: nothing else will decide it
			step.Skips = d.missed()
			step.run(d.latest)
		}
		step.Next.FiredFor = d.latest
		step.Next = s.Policy.plan(step.Next, s.Policy.Rule.Next(d.latest))
	}
	at, since := to.from(step.Next, now)
	switch {
	case seen.NominalAt.IsZero():
	case s.Policy.Spent(step.Next.RunsMade):
		step.Skips = append(step.Skips, s.Policy.gaps(seen, step.Next.FiredFor)...)
	default:
		step.Skips = append(step.Skips, s.Policy.gaps(seen, since)...)
	}
	if _, once := schedule.Once(to.Rule); to.SkipsGap() && !once {
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

// from is the first occurrence of a policy that holds from now on and has nothing
// to say about what is decided, and the instant after which it holds. A one-off
// may be a little late.
func (p *Policy) from(decided Plan, now time.Time) (at, since time.Time) {
	mark, waits := decided.FiredFor, decided.NominalAt
	if at, once := schedule.Once(p.Rule); once {
		if at.After(mark) {
			return at, now
		}
		return time.Time{}, now
	}
	if waits.After(mark) && !waits.After(now) {
		if before := waits.Add(-time.Microsecond); p.Rule.Next(before).Equal(waits) {
			return waits, before
		}
	}
	return p.Rule.Next(later(mark, now)), now
}

// Retime plans the occurrence that a step leaves on the plan as another policy has
// it, which differs in its jitter, its number of runs and what is no concern of
// time. What is due already is not due later for it, unless
// its jitter says so.
func Retime(step Step, to *Policy, now time.Time) Step {
	if was := step.Next.NextAt; !was.IsZero() {
		if step.Next = to.plan(step.Next, step.Next.NominalAt); was.After(now) {
			was = now
		}
		step.Next = step.Next.notBefore(was)
	}
	return step
}
