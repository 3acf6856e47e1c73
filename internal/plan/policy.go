package plan

import (
	"fmt"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// Defaults are what a server says for the jobs that do not say it themselves, and
// for all of them where no job can. A zero field means what is stated last.
type Defaults struct {
	// CatchUpWindow is how long ago a missed occurrence may have been due, jitter
	// included, to be made up for: 30 minutes where each is, and any time where only
	// the latest is.
	CatchUpWindow time.Duration

	// Ageing is how much longer than a run of the highest priority one of the lowest
	// may wait: 10 minutes.
	Ageing time.Duration

	// LargeCatchUp is how many runs of one job at once are nothing to tell of: 10.
	LargeCatchUp int
}

// Policy is a spec with its rule parsed. It is shared by all jobs with an equal
// spec and never changes.
type Policy struct {
	belfry.Spec
	Rule      schedule.Rule       // keeps to starts_at and ends_at
	Unbounded schedule.Rule       // as the text has it, for what package schedule tells of a rule; nil: the same
	Keys      *belfry.KeyTemplate // nil: none
	zone      *time.Location
	defaults  Defaults
}

// Compile parses the spec's schedule and its template of idempotency keys.
func (d Defaults) Compile(spec belfry.Spec) (*Policy, error) {
	p := &Policy{Spec: spec, defaults: d}
	var err error
	if p.Unbounded, err = schedule.Parse(Text(spec), Options(spec)); err != nil {
		return nil, err
	}
	p.Rule = Within(p.Unbounded, spec.StartsAt, spec.EndsAt)
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

// Compile parses a spec where nothing else is said.
func Compile(spec belfry.Spec) (*Policy, error) { return Defaults{}.Compile(spec) }

// Weight is how many microseconds later than it is a run seems to be ready, for the
// sake of its priority; none for the normal one.
func (p *Policy) Weight() int64 { return p.defaults.Weight(p.Priority) }

// Weight is Policy.Weight of a priority.
func (d Defaults) Weight(p belfry.Priority) int64 {
	ageing := d.Ageing
	if ageing == 0 {
		ageing = 10 * time.Minute
	}
	return int64(belfry.NormalPriority-p.Level()) * ageing.Microseconds() / (belfry.MaxPriority - belfry.MinPriority)
}

// once tells whether the rule is a single instant.
func (p *Policy) once() bool {
	_, once := schedule.Once(p.Rule)
	return once
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
	case belfry.DSTFirst:
		o.Overlap = schedule.DSTFirst
	case belfry.DSTBoth:
		o.Overlap = schedule.DSTBoth
	}
	return o
}

// whole is the rule as the text has it.
func (p *Policy) unbounded() schedule.Rule {
	if p.Unbounded == nil {
		return p.Rule
	}
	return p.Unbounded
}

// ReadyAt is when the run of an occurrence may start: so much later as its jitter
// says, which no other edit of the job changes.
func (p *Policy) ReadyAt(job belfry.ID, at time.Time) time.Time {
	if p.JitterSeconds <= 0 {
		return at
	}
	var gap time.Duration
	if next := p.unbounded().Next(at); !next.IsZero() {
		gap = next.Sub(at)
	}
	return at.Add(schedule.Jitter(job, at, time.Duration(p.JitterSeconds)*time.Second, gap))
}

// Spent reports whether so many scheduled runs are all that the job may have.
func (p *Policy) Spent(made int64) bool { return p.MaxRuns > 0 && made >= int64(p.MaxRuns) }

// next is the first occurrence after an instant; zero: none. It panics if the rule
// names one that is not after it: a job whose plan does not go on would be fired for
// ever.
func (p *Policy) next(after time.Time) time.Time {
	at := p.Rule.Next(after)
	if !at.IsZero() && !at.After(after) {
		panic(fmt.Sprintf("the schedule names %v after %v", at, after))
	}
	return at
}

// plan puts an occurrence on a plan, unless there were runs enough.
func (p *Policy) plan(on Plan, at time.Time) Plan {
	if at.IsZero() || p.Spent(on.RunsMade) {
		at = time.Time{}
	}
	on.Once = p.once()
	if on.NominalAt, on.NextAt = at, at; !at.IsZero() {
		on.NextAt = p.ReadyAt(on.JobID, at)
	}
	return on
}
