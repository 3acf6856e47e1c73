package plan

import (
	"encoding/binary"
	"time"

	"github.com/belfry-sh/belfry"
)

// Pause decides what is due already, as settle does, and plans nothing more. The
// first undecided occurrence stays on the plan for Resume.
func Pause(s Subject, seen Plan, now time.Time) Step {
	step := Step{Subject: s, Seen: seen, Next: seen}
	if !seen.NextAt.IsZero() && !seen.NextAt.After(now) {
		step.Due = true
		step.decideDue(now)
		step.advanceTo(step.Next.FiredFor)
		step.planNext()
	}
	step.Next.NextAt = time.Time{}
	return step
}

// Resume plans the next occurrence. What became due in the pause is skipped; with
// catchUp the policy for missed windows decides which of it runs after all. A
// one-off is never dropped: it is due at once if its time has passed.
func Resume(s Subject, seen Plan, catchUp bool, now time.Time) Step {
	step := Step{Subject: s, Seen: seen, Next: seen}
	p := s.Policy
	if p.oneOff() || !p.isDue(seen, now) {
		step.Next = p.plan(seen, seen.NominalAt).notBefore(now)
		return step
	}
	d := p.dueBefore(seen, now.Add(1), p.catchUpLimit(seen.RunsMade)+1)
	if catchUp {
		step.catchUp(d, p.catchUpCutoff(now), belfry.ReasonPaused, now)
	} else {
		step.skip(d, belfry.ReasonPaused)
	}
	step.advanceTo(d.latest())
	step.planNext()
	return step
}

// Cancel plans nothing more, as Delete does, and records what was planned next if
// that is still to come. An edit may give the job another rule.
func Cancel(s Subject, seen Plan, now time.Time) Step {
	step := endPlan(s, seen, now, belfry.ReasonCancelled)
	if at := seen.NominalAt; at.After(now) {
		record := newNote(seen.JobID, at, 1, belfry.ReasonCancelled)
		record.ID = cancelID(seen)
		step.Skips = append(step.Skips, record)
	}
	return step
}

// cancelID is the id of the record of an occurrence that was cancelled before its
// time. The occurrence may be planned and cancelled again, as another version.
func cancelID(seen Plan) belfry.ID {
	var version belfry.ID
	binary.BigEndian.PutUint64(version[8:], uint64(seen.Version))
	return belfry.RunID(seen.JobID, belfry.RunKind(belfry.ReasonCancelled), seen.NominalAt, version)
}

// Delete plans nothing more. What has passed and was not yet decided is skipped,
// also if it only waited for its jitter; what became due in a pause would have been
// skipped by Resume, but for a one-off.
func Delete(s Subject, seen Plan, now time.Time) Step { return endPlan(s, seen, now, belfry.ReasonDeleted) }

func endPlan(s Subject, seen Plan, now time.Time, reason belfry.Reason) Step {
	step := Step{Subject: s, Seen: seen, Next: seen}
	p, next := s.Policy, seen.NominalAt
	if paused := seen.NextAt.IsZero(); paused && !p.oneOff() && p.isDue(seen, now) {
		d := p.dueBefore(seen, now.Add(1), 1)
		step.skip(d, belfry.ReasonPaused)
		step.Next.FiredFor = d.latest()
		next = p.Rule.Next(d.latest()) // A job can be got rid of however odd its rule is.
	}
	step.skipUndecided(next, now, reason)
	if !seen.NominalAt.IsZero() {
		step.Skips = append(step.Skips, p.gaps(seen, now)...)
	}
	step.Next.NextAt, step.Next.NominalAt = time.Time{}, time.Time{}
	return step
}

// withdraw skips the occurrences from the first that is not decided until now, due
// or not. There are none if the first is the zero time or still to come.
func (step *Step) skipUndecided(first, now time.Time, reason belfry.Reason) {
	if first.After(step.Next.FiredFor) && !first.After(now) {
		d := step.Policy.occurrencesFrom(first, now, 1)
		step.skip(d, reason)
		step.Next.FiredFor = d.latest()
	}
}
