package plan

import (
	"time"

	"github.com/belfry-sh/belfry/internal/schedule"
)

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
