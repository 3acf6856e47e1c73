package validate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
	"github.com/belfry-sh/belfry/internal/schema"
)

const (
	maxLate      = 30 * time.Minute // how long ago the instant of a new one-off may be
	maxParsed    = 10_000           // schedules that a Validator keeps
	defaultCount = 10               // occurrences that a preview lists
)

// scheduleKey is everything that the meaning of a schedule depends on.
type scheduleKey struct {
	text    string
	options schedule.Options
}

// parsedSchedule is a rule with what is stored beside it, or what is wrong.
type parsedSchedule struct {
	rule   schedule.Rule
	start  time.Time // the default that it counts from; zero if it needs none
	errors []belfry.FieldError
}

// schedule checks the schedule and its bounds and fills in what is stored. It returns
// the rule, or nil if it is invalid or unchanged: a schedule that an edit leaves alone
// is not checked again, since it may have ended by now.
func (c *check) schedule(s *belfry.Spec, id belfry.ID) schedule.Rule {
	c.bounds(s)
	named, _ := schedule.NamedZone(s.Schedule)
	if c.before != nil {
		if c.unchanged(s, cmp.Or(s.Timezone, named, "UTC")) {
			return nil
		}
		if named != "" && s.Schedule != c.before.Schedule && !c.sets("timezone") {
			s.Timezone = "" // That of the job does not apply to a new schedule that names its own.
		}
	}
	p, resolved := c.parse(*s, id)
	if c.add(p.errors...); len(p.errors) > 0 {
		return nil
	}
	s.Resolved, s.Timezone = resolved, cmp.Or(s.Timezone, named, "UTC")
	if s.StartsAt.IsZero() {
		s.StartsAt = p.start
	}
	if at, once := schedule.Once(p.rule); once {
		c.oneOff(s, at)
	} else {
		c.fires(s, p.rule)
		c.interval(s, p.rule)
	}
	return p.rule
}

// bounds checks when the schedule starts and ends. A wrong bound is dropped, so that
// nothing else is reported about it.
func (c *check) bounds(s *belfry.Spec) {
	s.StartsAt, s.EndsAt = c.bound("starts_at", s.StartsAt), c.bound("ends_at", s.EndsAt)
	if !s.StartsAt.IsZero() && !s.EndsAt.IsZero() && !s.EndsAt.After(s.StartsAt) {
		c.fail("ends_at", "must be after starts_at, which is %s", s.StartsAt.Format(time.RFC3339Nano))
		s.EndsAt = time.Time{}
	}
}

func (c *check) bound(field string, at time.Time) time.Time {
	if at.IsZero() {
		return time.Time{}
	}
	at = at.UTC().Truncate(time.Microsecond)
	if err := schema.CheckYear(at); err != nil {
		c.fail(field, "%s", err)
		return time.Time{}
	}
	return at
}

// parse parses the schedule of a spec for the job of that id. Resolved is the text with
// every H replaced; empty without one.
func (c *check) parse(s belfry.Spec, id belfry.ID) (p parsedSchedule, resolved string) {
	text, hashed, err := schedule.Resolve(s.Schedule, id)
	if err != nil {
		text = s.Schedule
	}
	key := scheduleKey{text, plan.Options(s)}
	p, known := c.parsed[key]
	if !known {
		p = parseSchedule(text, key.options, c.now, err)
		if len(c.parsed) >= maxParsed {
			clear(c.parsed)
		}
		if !hashed {
			c.parsed[key] = p
		}
	}
	if hashed {
		resolved = strings.TrimSpace(text)
	}
	return p, resolved
}

// parseSchedule parses a schedule and loads its time zone, and reports the error that
// its text led to before.
func parseSchedule(text string, o schedule.Options, now time.Time, err error) (p parsedSchedule) {
	if o.Timezone != "" {
		if _, err := schedule.LoadZone(o.Timezone); err != nil {
			p.errors = append(p.errors, scheduleError(err))
			o.Timezone = ""
		}
	}
	if text == "" {
		p.errors = append(p.errors, belfry.FieldError{Field: "schedule", Message: `is missing; for example "30 9 * * MON-FRI" or "2030-03-01T09:00:00Z"`})
		return p
	}
	if o.Start.IsZero() {
		p.start = schedule.DefaultStart(text, now)
		o.Start = p.start
	}
	o.Now = now
	if err == nil {
		p.rule, err = schedule.Parse(text, o)
	}
	if err != nil {
		if e := scheduleError(err); len(p.errors) == 0 || e.Field != p.errors[0].Field {
			p.errors = append(p.errors, e)
		}
		return p
	}
	return p
}

// scheduleError is an error of package schedule about a field.
func scheduleError(err error) belfry.FieldError {
	var e *schedule.Error
	if !errors.As(err, &e) {
		return belfry.FieldError{Field: "schedule", Message: "cannot be parsed"}
	}
	message := e.Message
	if e.Column > 0 {
		message = fmt.Sprintf("column %d: %s", e.Column, message)
	}
	if e.Example != "" && !strings.Contains(message, "did you mean") {
		message = fmt.Sprintf("%s; for example %q", message, e.Example)
	}
	return belfry.FieldError{Field: e.Field, Message: message}
}

// unchanged reports whether an edit leaves the schedule of the job and its zone as they
// were, and then fills in what is stored beside it.
func (c *check) unchanged(s *belfry.Spec, zone string) bool {
	before := c.before.Spec
	if s.Schedule != before.Schedule {
		return false
	}
	if s.StartsAt.IsZero() && schedule.NeedsStart(plan.Text(before)) {
		s.StartsAt = before.StartsAt
	}
	if zone != before.Timezone || s.SkipsGap() != before.SkipsGap() || s.DSTOverlap != before.DSTOverlap ||
		!s.StartsAt.Equal(before.StartsAt) || !s.EndsAt.Equal(before.EndsAt) {
		return false
	}
	s.Resolved, s.Timezone = before.Resolved, zone
	if at, once := c.onceBefore(); once && s.MaxRuns != 0 {
		c.oneOff(s, at)
	}
	return true
}

// onceBefore is the instant of the job before the edit, if it was a one-off.
func (c *check) onceBefore() (time.Time, bool) {
	if c.before == nil {
		return time.Time{}, false
	}
	rule, err := schedule.Parse(plan.Text(c.before.Spec), plan.Options(c.before.Spec))
	if err != nil {
		return time.Time{}, false
	}
	return schedule.Once(rule)
}

// oneOff checks a single instant. One that has passed is accepted if the job had the
// same before, in another notation.
func (c *check) oneOff(s *belfry.Spec, at time.Time) {
	if before, once := c.onceBefore(); c.now.Sub(at) >= maxLate && !(once && before.Equal(at)) && !c.preview {
		c.fail("schedule", "%s has passed: it is %s now, and an instant may be at most %.0f minutes ago",
			at.Format(time.RFC3339Nano), c.now.Format(time.RFC3339), maxLate.Minutes())
	}
	const hint = "leave it out: the schedule is a single instant"
	if c.before != nil && s.StartsAt.Equal(c.before.StartsAt) {
		s.StartsAt = time.Time{} // It may be a default of the schedule before.
	}
	if !s.StartsAt.IsZero() {
		c.fail("starts_at", hint)
	}
	if !s.EndsAt.IsZero() {
		c.fail("ends_at", hint)
	}
	if s.MaxRuns > 0 {
		c.fail("max_runs", hint)
	}
}

// fires checks that a rule, which fires without its bounds, fires within them.
func (c *check) fires(s *belfry.Spec, rule schedule.Rule) {
	if !plan.Within(rule, s.StartsAt, s.EndsAt).Next(c.now).IsZero() {
		return
	}
	next := plan.Within(rule, s.StartsAt, time.Time{}).Next(c.now)
	switch {
	case next.IsZero():
		c.fail("starts_at", "the schedule never fires: it has ended by then")
	case !s.EndsAt.After(c.now):
		c.fail("ends_at", "the schedule never fires: it is %s now", c.now.Format(time.RFC3339))
	default:
		c.fail("ends_at", "the schedule never fires: its next occurrence is %s", next.Format(time.RFC3339Nano))
	}
}

// interval checks that occurrences are as far apart as the namespace wants.
func (c *check) interval(s *belfry.Spec, rule schedule.Rule) {
	if c.MinInterval == 0 {
		return
	}
	if first, second := schedule.CloseTimes(rule, c.now, s.StartsAt, s.EndsAt, c.MinInterval); !second.IsZero() {
		c.fail("schedule", "fires %g seconds after an occurrence (at %s and %s), and the quota min_interval_seconds of the namespace %s is %g; choose a longer interval, or ask an admin of all namespaces to change the quota",
			second.Sub(first).Seconds(), first.UTC().Format(time.RFC3339), second.UTC().Format(time.RFC3339), c.Namespace, c.MinInterval.Seconds())
	}
}

// Preview returns what a schedule means, and its occurrences after an instant. It
// refuses what Create would refuse at that instant, except a one-off that has passed. If
// ctx ends, occurrences are missing.
func (v *Validator) Preview(ctx context.Context, r belfry.PreviewRequest) (belfry.Preview, []belfry.FieldError) {
	if r.After.IsZero() {
		r.After = v.now
	}
	at := *v
	at.now = r.After.UTC()
	at.parsed = map[scheduleKey]parsedSchedule{}
	c := check{Validator: &at, preview: true}
	r.Schedule = strings.TrimSpace(r.Schedule)
	c.add(schema.Check(&r)...)
	if err := schema.CheckYear(r.After); err != nil {
		c.fail("after", "%s", err)
	}
	spec := belfry.Spec{Schedule: r.Schedule, Timezone: r.Timezone, DSTGap: r.DSTGap, DSTOverlap: r.DSTOverlap, StartsAt: r.StartsAt, EndsAt: r.EndsAt}
	rule := c.schedule(&spec, r.JobID)
	if len(c.errors) > 0 {
		return belfry.Preview{}, c.errors
	}
	p := belfry.Preview{
		RuleSummary: belfry.RuleSummary{Schedule: spec.Schedule, Resolved: spec.Resolved, Timezone: spec.Timezone, Description: schedule.Describe(rule)},
		StartsAt:    spec.StartsAt,
		ZoneVersion: schedule.ZoneVersion(),
		Warnings:    append([]string{}, schedule.Warnings(rule, r.After)...),
		Next:        []belfry.Occurrence{},
	}
	if spec.Resolved != "" && r.JobID.IsZero() {
		p.Warnings = append(p.Warnings, "the value of H depends on the job: this is an example")
	}
	if r.StartsAt.IsZero() && !spec.StartsAt.IsZero() {
		p.Warnings = append(p.Warnings, "it counts from starts_at, by default the time of creation: this is an example from "+spec.StartsAt.Format(time.RFC3339)+" on")
	}
	for _, o := range schedule.Preview(ctx, rule, r.After, spec.StartsAt, spec.EndsAt, cmp.Or(r.Count, defaultCount)) {
		p.Next = append(p.Next, belfry.Occurrence{At: o.At, Local: o.Local.Format(time.RFC3339Nano), Weekday: o.Local.Weekday().String(), Note: o.Note})
	}
	return p, nil
}
