package plan

import (
	"fmt"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// Policy is a spec with its rule parsed. It is shared by all jobs with an equal
// spec and never changes.
type Policy struct {
	belfry.Spec
	Rule  schedule.Rule       // keeps to starts_at and ends_at
	Whole schedule.Rule       // as the text has it, for what package schedule tells of a rule; nil: the same
	Keys  *belfry.KeyTemplate // nil: none
	zone  *time.Location
}

// Compile parses the spec's schedule and its template of idempotency keys.
func Compile(spec belfry.Spec) (*Policy, error) {
	p := &Policy{Spec: spec}
	var err error
	if p.Whole, err = schedule.Parse(Text(spec), Options(spec)); err != nil {
		return nil, err
	}
	p.Rule = Within(p.Whole, spec.StartsAt, spec.EndsAt)
	if p.Keys, err = belfry.ParseKeyTemplate(spec.IdempotencyKeyTemplate); err != nil {
		return nil, fmt.Errorf("idempotency_key_template %w", err)
	}
	if p.Keys != nil {
		if p.zone, err = schedule.LoadZone(spec.Timezone); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Text is the schedule of a spec as package schedule reads it.
func Text(spec belfry.Spec) string {
	if spec.Resolved != "" {
		return spec.Resolved
	}
	return spec.Schedule
}

// Options are the settings beside the schedule of a spec.
func Options(spec belfry.Spec) schedule.Options {
	o := schedule.Options{Timezone: spec.Timezone, SkipGap: spec.SkipsGap(), Start: spec.StartsAt}
	switch spec.DSTOverlap {
	case belfry.OverlapFirst:
		o.Overlap = schedule.OverlapFirst
	case belfry.OverlapBoth:
		o.Overlap = schedule.OverlapBoth
	}
	return o
}

// whole is the rule as the text has it.
func (p *Policy) whole() schedule.Rule {
	if p.Whole == nil {
		return p.Rule
	}
	return p.Whole
}

// ReadyAt is when the run of an occurrence may start: so much later as its jitter
// says, which no other edit of the job changes.
func (p *Policy) ReadyAt(job belfry.ID, at time.Time) time.Time {
	if p.JitterSeconds <= 0 {
		return at
	}
	var gap time.Duration
	if next := p.whole().Next(at); !next.IsZero() {
		gap = next.Sub(at)
	}
	return at.Add(schedule.Jitter(job, at, time.Duration(p.JitterSeconds)*time.Second, gap))
}

// Spent reports whether so many scheduled runs are all that the job may have.
func (p *Policy) Spent(made int64) bool { return p.MaxRuns > 0 && made >= int64(p.MaxRuns) }

// plan puts an occurrence on a plan, unless there were runs enough.
func (p *Policy) plan(on Plan, at time.Time) Plan {
	if at.IsZero() || p.Spent(on.RunsMade) {
		at = time.Time{}
	}
	if on.NominalAt, on.NextAt = at, at; !at.IsZero() {
		on.NextAt = p.ReadyAt(on.JobID, at)
	}
	return on
}

// bounded is a rule that names nothing before one instant and after another.
type bounded struct {
	rule     schedule.Rule
	from, to time.Time // zero: no bound
}

// Within keeps a rule to its bounds. A one-off has none.
func Within(rule schedule.Rule, from, to time.Time) schedule.Rule {
	if _, once := schedule.Once(rule); once || from.IsZero() && to.IsZero() {
		return rule
	}
	return &bounded{rule, from, to}
}

func (b *bounded) Next(after time.Time) time.Time {
	after, _ = b.clip(after, after)
	next := b.rule.Next(after)
	if !b.to.IsZero() && next.After(b.to) {
		return time.Time{}
	}
	return next
}

// clip shortens the time after one instant and until another to what lies within
// the bounds.
func (b *bounded) clip(after, until time.Time) (time.Time, time.Time) {
	if !b.from.IsZero() {
		after = later(after, b.from.Add(-1))
	}
	if !b.to.IsZero() {
		until = earlier(until, b.to)
	}
	return after, until
}

// newest is schedule.Newest for a rule with bounds.
func newest(rule schedule.Rule, after, until time.Time, n int) (found []time.Time, older int64, atLeast bool) {
	if b, ok := rule.(*bounded); ok {
		after, until = b.clip(after, until)
		rule = b.rule
	}
	return schedule.Newest(rule, after, until, n)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
