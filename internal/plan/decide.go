package plan

import (
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// First plans a new job. A one-off whose instant has passed is due at once.
func First(job belfry.ID, shard int, p *Policy, now time.Time) Plan {
	out := Plan{JobID: job, Shard: shard, Version: 1, ZoneVersion: schedule.ZoneVersion()}
	if at, once := schedule.Once(p.Rule); once {
		return p.plan(out, at).notBefore(now)
	}
	return p.plan(out, p.Rule.Next(now))
}

// Decide says what becomes of a plan that is due at now. Occurrences whose time,
// jitter included, came before since, the instant from which somebody was in
// charge without a break, were missed: the latest of them runs and the others are
// skipped. An occurrence after that is merely late, and runs.
func Decide(s Subject, seen Plan, since, now time.Time) Step {
	step := Step{Subject: s, Seen: seen, Next: seen, Due: true}
	at := seen.NominalAt
	if at.Before(since) { // If it was only waiting for its jitter then, it is the latest.
		d := s.Policy.dueBefore(seen, earlier(since, now))
		step.Skips, at = d.missed(), d.latest
	}
	step.run(at)
	step.passed(at)
	step.goOn()
	return step
}

// run makes a run of an occurrence.
func (step *Step) run(at time.Time) {
	step.Runs = []Run{step.scheduled(step.Seen.JobID, at)}
	step.Next.RunsMade++
}

// passed moves the mark to an occurrence that the step decided, with the wall times
// that the clock skipped on the way.
func (step *Step) passed(at time.Time) {
	step.Skips = append(step.Skips, step.Policy.gaps(step.Seen, at)...)
	step.Next.FiredFor = at
}

// goOn plans the occurrence after the mark.
func (step *Step) goOn() {
	step.Next.ZoneVersion = schedule.ZoneVersion()
	step.Next = step.Policy.plan(step.Next, step.Policy.Rule.Next(step.Next.FiredFor))
}

// scheduled is the run for an occurrence.
func (s Subject) scheduled(job belfry.ID, at time.Time) Run {
	return Run{
		ID:          belfry.RunID(job, belfry.KindScheduled, at, belfry.ID{}),
		Kind:        belfry.KindScheduled,
		ScheduledAt: at,
		ReadyAt:     s.Policy.ReadyAt(job, at),
		Limit:       s.Policy.Overlap.Limit(),
		Key:         s.key(job, at),
	}
}

// Fire turns triggers of one job into runs, whatever its plan says. The plan
// only moves to its next version.
func Fire(s Subject, seen Plan, triggers []Trigger) Step {
	step := Step{Subject: s, Seen: seen, Next: seen}
	for _, t := range triggers {
		step.Runs = append(step.Runs, Run{
			ID:          t.RunID(),
			Kind:        t.Kind,
			Trigger:     t.ID,
			ScheduledAt: t.At,
			ReadyAt:     t.At,
			Limit:       s.Policy.Overlap.Limit(),
			Payload:     t.Payload,
			Key:         s.key(t.JobID, t.At),
		})
	}
	return step
}

// Pause decides what is due already and plans nothing more. The first
// undecided occurrence stays on the plan for Resume.
func Pause(s Subject, seen Plan, since, now time.Time) Step {
	step := Step{Subject: s, Seen: seen, Next: seen}
	if !seen.NextAt.IsZero() && !seen.NextAt.After(now) {
		step = Decide(s, seen, since, now)
	}
	step.Next.NextAt = time.Time{}
	return step
}

// Resume skips what became due in the pause and plans the next occurrence. A
// one-off is never dropped: it is due at once if its time has passed.
func Resume(s Subject, seen Plan, now time.Time) Step {
	step := Step{Subject: s, Seen: seen, Next: seen}
	if _, once := schedule.Once(s.Policy.Rule); once || !s.Policy.isDue(seen, now) {
		step.Next = s.Policy.plan(seen, seen.NominalAt).notBefore(now)
		return step
	}
	d := s.Policy.dueBefore(seen, now.Add(1))
	step.Skips = d.all(belfry.ReasonPaused)
	step.passed(d.latest)
	step.goOn()
	return step
}

// Delete plans nothing more; what was due and not yet decided is skipped. What
// fell into a pause would have been skipped by Resume, but for a one-off.
func Delete(s Subject, seen Plan, now time.Time) Step {
	step := Step{Subject: s, Seen: seen, Next: seen}
	if s.Policy.isDue(seen, now) {
		reason := belfry.ReasonDeleted
		if _, once := schedule.Once(s.Policy.Rule); seen.NextAt.IsZero() && !once {
			reason = belfry.ReasonPaused
		}
		d := s.Policy.dueBefore(seen, now.Add(1))
		step.Skips = d.all(reason)
		step.Next.FiredFor = d.latest
	}
	if !seen.NominalAt.IsZero() {
		step.Skips = append(step.Skips, s.Policy.gaps(seen, now)...)
	}
	step.Next.NextAt, step.Next.NominalAt = time.Time{}, time.Time{}
	return step
}

// notBefore keeps a plan out of the past, so that whoever looks only ahead finds
// it.
func (p Plan) notBefore(now time.Time) Plan {
	if !p.NextAt.IsZero() && p.NextAt.Before(now) {
		p.NextAt = now
	}
	return p
}
