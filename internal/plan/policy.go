package plan

import (
	"cmp"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// Defaults are a server's settings for jobs that do not set them, and for what no job
// can set. A zero field has the default that its comment names.
type Defaults struct {
	// CatchUpWindow is how long ago a missed occurrence may have been due, jitter
	// included, to still run. Default: 30 minutes with run_all, no limit with
	// run_once.
	CatchUpWindow time.Duration

	// Ageing is how much longer a run of the lowest priority may wait than one of the
	// highest. Default: 10 minutes.
	Ageing time.Duration

	// LargeCatchUp is how many catch-up runs of one job at once cause no event.
	// Default: 10.
	LargeCatchUp int
}

// Policy is a spec with its rule parsed. Jobs with equal specs share it; it never
// changes.
type Policy struct {
	belfry.Spec
	Rule      schedule.Rule       // within starts_at and ends_at
	Unbounded schedule.Rule       // as parsed, for package schedule to describe; nil: the same as Rule
	Keys      *belfry.KeyTemplate // nil: none
	zone      *time.Location
	defaults  Defaults
	lane      atomic.Pointer[namespaceLane] // the last one that was asked for
}

type namespaceLane struct{ namespace, lane string }

// laneOf is the lane of the runs of a job in a namespace.
func (p *Policy) laneOf(namespace string) string {
	if l := p.lane.Load(); l != nil && l.namespace == namespace {
		return l.lane
	}
	l := &namespaceLane{namespace, p.Spec.Lane(namespace)}
	p.lane.Store(l)
	return l.lane
}

// Compile parses the spec's schedule and its template of idempotency keys.
func (d Defaults) Compile(spec belfry.Spec) (*Policy, error) {
	rule, err := schedule.Parse(Text(spec), Options(spec))
	if err != nil {
		return nil, err
	}
	return d.CompileRule(spec, rule)
}

// CompileRule is Compile for a spec whose schedule has been parsed.
func (d Defaults) CompileRule(spec belfry.Spec, rule schedule.Rule) (_ *Policy, err error) {
	p := &Policy{Spec: spec, Rule: Within(rule, spec.StartsAt, spec.EndsAt), Unbounded: rule, defaults: d}
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

// Compile parses a spec with the default settings of a server.
func Compile(spec belfry.Spec) (*Policy, error) { return Defaults{}.Compile(spec) }

// Weight is how many microseconds the job's priority adds to the rank of its runs;
// zero for normal priority.
func (p *Policy) Weight() int64 { return p.defaults.Weight(p.Priority) }

// Weight is Policy.Weight of a priority.
func (d Defaults) Weight(p belfry.Priority) int64 {
	ageing := cmp.Or(d.Ageing, 10*time.Minute)
	return int64(belfry.NormalPriority-p.Level()) * ageing.Microseconds() / (belfry.MaxPriority - belfry.MinPriority)
}

// oneOff reports whether the rule is a single instant.
func (p *Policy) oneOff() bool {
	_, once := schedule.Once(p.Rule)
	return once
}

// Text is the schedule of a spec as package schedule reads it.
func Text(spec belfry.Spec) string { return cmp.Or(spec.Resolved, spec.Schedule) }

// Options are the settings with which the schedule of a spec is parsed.
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

func (p *Policy) unbounded() schedule.Rule {
	if p.Unbounded == nil {
		return p.Rule
	}
	return p.Unbounded
}

// ReadyAt is when the run of an occurrence may start: the occurrence plus its jitter.
// It depends on no setting but the jitter and the schedule without its bounds.
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

// Spent reports whether the job has had all its runs after that many scheduled ones.
func (p *Policy) Spent(made int64) bool { return p.MaxRuns > 0 && made >= int64(p.MaxRuns) }

// next is the first occurrence after an instant; zero: none. It panics if the rule
// returns one that is not later: a plan that does not advance would fire for ever.
func (p *Policy) next(after time.Time) time.Time {
	at := p.Rule.Next(after)
	if !at.IsZero() && !at.After(after) {
		panic(fmt.Sprintf("the schedule returned %v as the next occurrence after %v", at, after))
	}
	return at
}

// plan puts an occurrence on a plan, unless the job has had all its runs.
func (p *Policy) plan(on Plan, at time.Time) Plan {
	if p.Spent(on.RunsMade) {
		at = time.Time{}
	}
	return p.planAt(on, at)
}

// planAt puts an occurrence on a plan; zero: none.
func (p *Policy) planAt(on Plan, at time.Time) Plan {
	on.Once = p.oneOff()
	if on.NominalAt, on.NextAt = at, at; !at.IsZero() {
		on.NextAt = p.ReadyAt(on.JobID, at)
	}
	return on
}

// earliest bounds the search for occurrences in the past: no job is older.
var earliest = time.Unix(-1, 0).UTC()

// Between returns the occurrences of the rule from one instant to another, both
// included, oldest first and at most limit of them, and whether there are more. It
// ignores max_runs and what was decided.
func (p *Policy) Between(from, to time.Time, limit int) (list []time.Time, more bool) {
	rule, after := p.Rule, from.Add(-1)
	if b, ok := rule.(*bounded); ok {
		after, to = b.clip(after, to)
		rule = b.rule
	}
	next := schedule.InOrder(rule)
	for at := next(after); !at.IsZero() && !at.After(to); at = next(at) {
		if len(list) >= limit {
			return list, true
		}
		list = append(list, at)
	}
	return list, false
}

// Around reports whether an instant is an occurrence of the rule, and returns the
// occurrences before and after it; zero: none. It ignores max_runs and what was
// decided.
func (p *Policy) Around(at time.Time) (is bool, before, after time.Time) {
	return p.next(at.Add(-1)).Equal(at), p.before(at), p.next(at)
}

// before is the latest occurrence before an instant; zero: none. It searches back in
// growing steps, so that a distant past is not enumerated.
func (p *Policy) before(at time.Time) time.Time {
	for back := time.Second; ; back *= 2 {
		from := at.Add(-back)
		last := back < 0 || from.Before(earliest) // back overflows after 292 years
		if last {
			from = earliest
		}
		if found, _, _ := newest(p.Rule, from, at.Add(-1), 1); len(found) > 0 {
			return found[0]
		}
		if last {
			return time.Time{}
		}
	}
}

// bounded is a rule without its occurrences before one instant and after another.
type bounded struct {
	rule     schedule.Rule
	from, to time.Time // zero: no bound
}

// Within limits a rule to its bounds. They do not apply to a one-off.
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

// clip limits a span of time to the bounds.
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
