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
	return p.plan(out, p.next(now))
}

// Decide decides a plan that is due at now. A scheduler has been running without a
// break since the given instant. Occurrences that were due before it, jitter
// included, were missed, and the missed-window policy decides about all of them. An
// occurrence after it is only late, and runs. A one-off always runs, unless its
// policy is skip.
func Decide(s Subject, seen Plan, since, now time.Time) Step {
	step := Step{Subject: s, Seen: seen, Next: seen, Due: true}
	p, at, end := s.Policy, seen.NominalAt, earlier(since, now)
	if !p.alwaysRuns() && seen.NextAt.Before(end) {
		d := p.dueBefore(seen, end, p.catchUpLimit(seen.RunsMade)+1)
		step.catchUp(d, p.catchUpCutoff(now), belfry.ReasonMissed, now)
		at = d.latest()
	} else {
		step.run(at)
	}
	step.advanceTo(at)
	step.planNext()
	return step
}

// decideDue decides everything that is due, for a caller that does not know since when
// a scheduler has been running: by the missed-window policy, except that the latest
// occurrence runs if it became due within lateTolerance. Something must be due.
func (step *Step) decideDue(now time.Time) {
	p, seen, recent := step.Policy, step.Seen, now.Add(-lateTolerance)
	d := p.dueBefore(seen, now.Add(1), p.catchUpLimit(seen.RunsMade)+1)
	at := d.latest()
	if p.alwaysRuns() || p.MissedWindow == belfry.MissedSkip && !step.readyAt(at).Before(recent) {
		step.skip(d.withoutNewest(1), belfry.ReasonMissed)
		step.run(at)
	} else {
		step.catchUp(d, earlier(p.catchUpCutoff(now), recent), belfry.ReasonMissed, now)
	}
	step.Next.FiredFor = at
}

// run adds the run of an occurrence.
func (step *Step) run(at time.Time) {
	job, p := step.Seen.JobID, step.Policy
	step.Runs = append(step.Runs, Run{
		ID:          belfry.RunID(job, belfry.KindScheduled, at, belfry.ID{}),
		Kind:        belfry.KindScheduled,
		ScheduledAt: at,
		ReadyAt:     p.ReadyAt(job, at),
		Serial:      p.Serial(),
		Queue:       p.QueueLimit(),
		Key:         step.key(job, at),
	})
	step.Next.RunsMade++
}

// advanceTo moves the high-water mark to an occurrence that the step decided, and
// records the wall times that the clock skipped before it.
func (step *Step) advanceTo(at time.Time) {
	step.Skips = append(step.Skips, step.Policy.gaps(step.Seen, at)...)
	step.Next.FiredFor = at
}

// planNext plans the first occurrence after the high-water mark.
func (step *Step) planNext() {
	step.Next.ZoneVersion = schedule.ZoneVersion()
	step.Next = step.Policy.plan(step.Next, step.Policy.next(step.Next.FiredFor))
}

// Fire turns triggers of one job into runs. The plan only gets its next version.
// Backfill runs of a serial job wait for each other, however many there are.
func Fire(s Subject, seen Plan, triggers []Trigger) Step {
	step := Step{Subject: s, Seen: seen, Next: seen}
	for _, t := range triggers {
		queue := s.Policy.QueueLimit()
		if t.Kind == belfry.KindBackfill {
			queue = NoQueueLimit
		}
		step.Runs = append(step.Runs, Run{
			ID:          t.RunID(),
			Kind:        t.Kind,
			Trigger:     t.ID,
			ScheduledAt: t.At,
			ReadyAt:     later(t.At, t.ReadyAt),
			Serial:      s.Policy.Serial(),
			Queue:       queue,
			Payload:     t.Payload,
			Key:         s.key(t.JobID, t.At),
		})
	}
	return step
}
