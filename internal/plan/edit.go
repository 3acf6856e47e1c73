package plan

import (
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// Edit replaces the rule of a job, and leaves it paused or not. What the old rule
// named up to now is decided first, as of the subject before the edit: the latest
// occurrence runs and earlier ones were missed, but whatever fell into a pause is
// skipped. The new rule holds after that, and after whatever was decided before:
// a one-off that is not later than all of it leaves the job without a plan.
func Edit(s Subject, rule schedule.Rule, seen Plan, pause bool, now time.Time) Step {
	step := Step{Subject: s, Seen: seen, Next: seen}
	if at := seen.NominalAt; !at.IsZero() && !at.After(now) {
		latest, count := latestBefore(s.Policy.Rule, at, now.Add(1))
		switch {
		case seen.NextAt.IsZero():
			step.Skips = []Skip{newSkip(seen.JobID, at, latest, count, belfry.ReasonPaused)}
		case count > 1:
			step.Skips = []Skip{newSkip(seen.JobID, at, before(s.Policy.Rule, at, latest), count-1, belfry.ReasonMissed)}
			fallthrough
		default:
			step.Due = !seen.NextAt.After(now) // it runs in any case: nothing else will decide it
			step.Runs = []Run{s.scheduled(seen.JobID, latest)}
			step.Next.RunsMade++
		}
		step.Next.FiredFor = latest
	}
	step.Next.ZoneVersion = schedule.ZoneVersion()
	step.Next = step.Next.at(firstAfter(rule, step.Next.FiredFor, now)).notBefore(now)
	if pause {
		step.Next.NextAt = time.Time{}
	}
	return step
}

// firstAfter is the first occurrence of a rule that holds from now on and has
// nothing to say about what is decided. A one-off may be a little late.
func firstAfter(rule schedule.Rule, decided, now time.Time) time.Time {
	at, once := schedule.Once(rule)
	switch {
	case !once && decided.After(now):
		return rule.Next(decided)
	case !once:
		return rule.Next(now)
	case at.After(decided):
		return at
	}
	return time.Time{}
}
