package plan

import (
	"encoding/binary"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// Edit gives a job another rule, and pauses it if pause is set. What is due by the old rule
// is decided first, with the subject before the edit, as decideDue does; what became
// due during a pause is skipped. The new rule applies after everything that is
// decided: a one-off that is not later leaves the job without a plan. An occurrence
// that only waits for its jitter stays if the new rule has it too, and is skipped
// otherwise.
func Edit(s Subject, to *Policy, seen Plan, pause bool, now time.Time) Step {
	step := Step{Subject: s, Seen: seen, Next: seen}
	if s.Policy.isDue(seen, now) {
		if seen.NextAt.IsZero() {
			d := s.Policy.dueBefore(seen, now.Add(1), 1)
			step.skip(d, belfry.ReasonPaused)
			step.Next.FiredFor = d.latest()
		} else {
			step.Due = !seen.NextAt.After(now) // NextAt may lie after the occurrence; it is decided here all the same
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
		// Earlier gaps are not of the new rule; those of the old one are recorded.
		step.Next.FiredFor = later(step.Next.FiredFor, since)
	}
	step.Next.ZoneVersion = schedule.ZoneVersion()
	step.Next = to.plan(step.Next, at).notBefore(now)
	if pause {
		step.Next.NextAt = time.Time{}
	}
	return step
}

// keepsOccurrence reports whether a past occurrence that waits for its jitter is also
// one of the new policy, and will run by it.
func (p *Policy) keepsOccurrence(decided Plan, now time.Time) bool {
	at := decided.NominalAt
	return !at.IsZero() && !at.After(now) && !p.Spent(decided.RunsMade) && p.next(at.Add(-time.Microsecond)).Equal(at)
}

// firstAfterEdit is the first occurrence of a policy that applies from now on, after
// what is decided until the mark. A one-off may be in the past.
func (p *Policy) firstAfterEdit(mark, now time.Time) time.Time {
	if at, once := schedule.Once(p.Rule); !once {
		return p.next(later(mark, now))
	} else if at.After(mark) {
		return at
	}
	return time.Time{}
}

// Retime plans the occurrence that a step leaves on the plan by another policy that
// has the same rule but perhaps another jitter or max_runs. What is already due is
// delayed only by its new jitter.
func Retime(step Step, to *Policy, now time.Time) Step {
	step.NextIfSkipped = nil
	if was := step.Next.NextAt; !was.IsZero() {
		if step.Next = to.plan(step.Next, step.Next.NominalAt); was.After(now) {
			was = now
		}
		step.Next = step.Next.notBefore(was)
	}
	return step
}

// Pause decides what is already due, as decideDue does, and plans nothing more. The
// first undecided occurrence stays on the plan for Resume.
func Pause(s Subject, seen Plan, now time.Time) Step {
	step := Step{Subject: s, Seen: seen, Next: seen}
	if !seen.NextAt.IsZero() && !seen.NextAt.After(now) {
		step.Due = true
		step.decideDue(now)
		step.advanceTo(step.Next.FiredFor)
		step.planNext()
		if step.NextIfSkipped != nil {
			step.NextIfSkipped.NextAt = time.Time{}
		}
	}
	step.Next.NextAt = time.Time{}
	return step
}

// Resume plans the next occurrence. What became due during the pause is skipped; with
// catchUp it counts as missed, and the missed-window policy decides which of it runs. A
// one-off is never skipped: it is due at once if its time has passed.
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

// Cancel plans nothing more, as Delete does, and records the next occurrence if it is
// in the future. An edit may give the job another rule.
func Cancel(s Subject, seen Plan, now time.Time) Step {
	step := endPlan(s, seen, now, belfry.ReasonCancelled)
	if at := seen.NominalAt; at.After(now) {
		record := newNote(seen.JobID, at, 1, belfry.ReasonCancelled)
		record.ID = cancelID(seen)
		step.Skips = append(step.Skips, record)
	}
	return step
}

// cancelID is the id of the note of a cancelled future occurrence. The version is part
// of it, because the occurrence may be planned and cancelled again.
func cancelID(seen Plan) belfry.ID {
	var version belfry.ID
	binary.BigEndian.PutUint64(version[8:], uint64(seen.Version))
	return belfry.RunID(seen.JobID, belfry.RunKind(belfry.ReasonCancelled), seen.NominalAt, version)
}

// Delete plans nothing more. Past occurrences that are not decided are skipped, also
// those that only wait for their jitter. Those that became due during a pause are
// skipped as paused, as by Resume, except for a one-off.
func Delete(s Subject, seen Plan, now time.Time) Step {
	return endPlan(s, seen, now, belfry.ReasonDeleted)
}

func endPlan(s Subject, seen Plan, now time.Time, reason belfry.Reason) Step {
	step := Step{Subject: s, Seen: seen, Next: seen}
	p, next := s.Policy, seen.NominalAt
	if paused := seen.NextAt.IsZero(); paused && !p.oneOff() && p.isDue(seen, now) {
		d := p.dueBefore(seen, now.Add(1), 1)
		step.skip(d, belfry.ReasonPaused)
		step.Next.FiredFor = d.latest()
		next = p.Rule.Next(d.latest()) // not p.next, which panics: any job can be deleted
	}
	step.skipUndecided(next, now, reason)
	if !seen.NominalAt.IsZero() {
		step.Skips = append(step.Skips, p.gaps(seen, now)...)
	}
	step.Next.NextAt, step.Next.NominalAt = time.Time{}, time.Time{}
	return step
}

// skipUndecided skips the occurrences from the first undecided one until now, due or
// not. There are none if the first is the zero time or in the future.
func (step *Step) skipUndecided(first, now time.Time, reason belfry.Reason) {
	if first.After(step.Next.FiredFor) && !first.After(now) {
		d := step.Policy.occurrencesFrom(first, now, 1)
		step.skip(d, reason)
		step.Next.FiredFor = d.latest()
	}
}

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
