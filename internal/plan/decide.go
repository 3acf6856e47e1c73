package plan

import (
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// maxCounted bounds the walk that counts skipped occurrences; a count this
// large means "at least".
const maxCounted = 100_000

// First plans a new job. A one-off whose instant has passed is due at once.
func First(job belfry.ID, shard int, p *Policy, now time.Time) Plan {
	out := Plan{JobID: job, Shard: shard, Version: 1, ZoneVersion: schedule.ZoneVersion()}
	if at, once := schedule.Once(p.Rule); once {
		return out.at(at).notBefore(now)
	}
	return out.at(p.Rule.Next(now))
}

// Decide says what becomes of a plan that is due at now. Occurrences before
// since, the instant from which somebody was in charge without a break, were
// missed: the latest of them runs and the others are skipped. An occurrence
// after that is merely late, and runs.
func Decide(s Subject, seen Plan, since, now time.Time) Step {
	step := Step{Subject: s, Seen: seen, Due: true}
	at := seen.NominalAt
	if at.Before(since) {
		latest, count := latestBefore(s.Policy.Rule, at, earlier(since, now))
		if count > 1 {
			step.Skips = append(step.Skips, newSkip(seen.JobID, at, before(s.Policy.Rule, at, latest), count-1, belfry.ReasonMissed))
		}
		at = latest
	}
	step.Runs = []Run{s.scheduled(seen.JobID, at)}
	step.Next = seen.after(at, s.Policy.Rule)
	step.Next.RunsMade++
	return step
}

// scheduled is the run for an occurrence.
func (s Subject) scheduled(job belfry.ID, at time.Time) Run {
	return Run{
		ID:          belfry.RunID(job, belfry.KindScheduled, at, belfry.ID{}),
		Kind:        belfry.KindScheduled,
		ScheduledAt: at,
		ReadyAt:     at,
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
	step.Next.RunsMade += int64(len(triggers))
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

// Resume skips what fell into the pause and plans the next occurrence. A
// one-off is never dropped: it is due at once if its instant has passed.
func Resume(s Subject, seen Plan, now time.Time) Step {
	step := Step{Subject: s, Seen: seen, Next: seen}
	at := seen.NominalAt
	if _, once := schedule.Once(s.Policy.Rule); once || at.IsZero() || at.After(now) {
		step.Next = seen.at(at).notBefore(now)
		return step
	}
	latest, count := latestBefore(s.Policy.Rule, at, now.Add(1))
	step.Skips = []Skip{newSkip(seen.JobID, at, latest, count, belfry.ReasonPaused)}
	step.Next = seen.after(latest, s.Policy.Rule)
	return step
}

// Delete plans nothing more; what was due and not yet decided is skipped. What
// fell into a pause would have been skipped by Resume, but for a one-off.
func Delete(s Subject, seen Plan, now time.Time) Step {
	step := Step{Subject: s, Seen: seen, Next: seen}
	if at := seen.NominalAt; !at.IsZero() && !at.After(now) {
		reason := belfry.ReasonDeleted
		if _, once := schedule.Once(s.Policy.Rule); seen.NextAt.IsZero() && !once {
			reason = belfry.ReasonPaused
		}
		latest, count := latestBefore(s.Policy.Rule, at, now.Add(1))
		step.Skips = []Skip{newSkip(seen.JobID, at, latest, count, reason)}
		step.Next.FiredFor = latest
	}
	step.Next.NextAt, step.Next.NominalAt = time.Time{}, time.Time{}
	return step
}

// at plans the given occurrence.
func (p Plan) at(t time.Time) Plan {
	p.NominalAt, p.NextAt = t, t
	return p
}

// notBefore keeps a plan out of the past, so that whoever looks only ahead finds
// it.
func (p Plan) notBefore(now time.Time) Plan {
	if !p.NextAt.IsZero() && p.NextAt.Before(now) {
		p.NextAt = now
	}
	return p
}

// after plans the occurrence that follows the one just decided.
func (p Plan) after(decided time.Time, rule schedule.Rule) Plan {
	p.FiredFor = decided
	p.ZoneVersion = schedule.ZoneVersion()
	return p.at(rule.Next(decided))
}

func newSkip(job belfry.ID, from, to time.Time, count int64, reason belfry.Reason) Skip {
	id := belfry.RunID(job, belfry.KindScheduled, from, belfry.ID{})
	return Skip{ID: id, From: from, To: to, Count: min(count, maxCounted), Reason: reason}
}

// latestBefore gives the latest occurrence before end, counting from first,
// which is one itself and before end. It stops counting one beyond maxCounted.
func latestBefore(rule schedule.Rule, first, end time.Time) (latest time.Time, count int64) {
	latest, count = first, 1
	for count <= maxCounted {
		next := rule.Next(latest)
		if next.IsZero() || !next.Before(end) {
			return latest, count
		}
		latest, count = next, count+1
	}
	return before(rule, latest, end), count
}

// before gives the latest occurrence strictly before end; first is one before it,
// whether or not the rule still names it. It bisects, so that its cost depends
// neither on how dense the rule is nor on how far away first is.
func before(rule schedule.Rule, first, end time.Time) time.Time {
	latest, none := first, end // between none and end there is no occurrence
	for span := none.Sub(latest); span > 0; span = none.Sub(latest) {
		middle := latest.Add(span / 2)
		if next := rule.Next(middle); !next.IsZero() && next.Before(end) {
			latest = next
		} else {
			none = middle
		}
	}
	return latest
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
