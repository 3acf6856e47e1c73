// Package validate checks jobs as people declare them and brings them into the form
// that is stored. It needs no server, so the command line uses it too.
//
// What the tags of a field say is checked by package schema. This package checks what
// depends on several fields or must be parsed: schedules, time zones, payloads,
// handlers, retries, key templates and masked secrets.
package validate

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schema"
)

// Input is a manifest as a request declares it. A zero field means its default. For an
// edit it is the manifest of the job with the given fields replaced.
type Input struct {
	belfry.Manifest
	Fields schema.FieldSet     // fields that the request sets; nil: those that are not zero
	Errors []belfry.FieldError // found while it was decoded; more errors of the same fields are left out
}

// unreadable reports an error without a field: there is nothing to validate.
func (in Input) unreadable() bool {
	return slices.ContainsFunc(in.Errors, func(e belfry.FieldError) bool { return e.Field == "" })
}

// Result is a normalized manifest with its compiled policy.
type Result struct {
	Manifest belfry.Manifest
	Paused   bool
	Policy   *plan.Policy // nil if an edit leaves the schedule as it was
}

// Validator validates manifests as of one instant. It keeps the schedules that it
// parsed, so that many jobs with one schedule cost little. It is not safe for
// concurrent use.
type Validator struct {
	now      time.Time
	defaults plan.Defaults
	parsed   map[scheduleKey]parsedSchedule
}

// New returns a Validator. The defaults are those of the server that fires the jobs.
func New(now time.Time, d plan.Defaults) *Validator {
	return &Validator{now: now.UTC(), defaults: d, parsed: map[scheduleKey]parsedSchedule{}}
}

// Create validates a new job that will have the id. It returns every error.
func (v *Validator) Create(id belfry.ID, in Input) (Result, []belfry.FieldError) {
	if in.unreadable() {
		return Result{}, in.Errors
	}
	c := check{Validator: v, fields: in.Fields, errors: slices.Clone(in.Errors)}
	return c.manifest(id, in.Manifest), c.errors
}

// Edit validates what a job is edited to or replaced by. The job has its true payload:
// masked secrets in the input stay what they are.
//
// Fields that are not given follow those that are: a job that is no longer of type
// worker loses its handler, a schedule that names its time zone replaces the one
// before, and delays and backoff replace each other.
func (v *Validator) Edit(before belfry.Job, in Input) (Result, []belfry.FieldError) {
	c := check{Validator: v, before: &before, fields: in.Fields, errors: slices.Clone(in.Errors)}
	return c.manifest(before.ID, in.Manifest), c.errors
}

// check collects the errors of one manifest.
type check struct {
	*Validator
	before  *belfry.Job // nil for a new job
	fields  schema.FieldSet
	preview bool // a one-off may have passed
	errors  []belfry.FieldError
}

func (c *check) manifest(id belfry.ID, m belfry.Manifest) Result {
	m.Name = c.name(m.Name)
	m.Tags = c.tags(m.Tags)
	m.Schedule, m.Resolved = strings.TrimSpace(m.Schedule), ""
	c.add(schema.Check(&m)...)
	c.target(&m)
	c.retries(&m.Spec)
	m.Spec = m.Spec.WithDefaults()
	c.longestDelay(m.Spec)
	changed := c.schedule(&m.Spec, id)
	m.Payload = c.payload(m.Payload, m.Type)
	c.priority(&m.Spec)
	c.keyTemplate(&m.Spec)
	r := Result{Manifest: m, Paused: m.Status == belfry.StatusPaused}
	if m.Status == "" && c.before != nil && !c.fields.Has("status") {
		r.Paused = c.before.State == belfry.JobPaused
	}
	if changed && len(c.errors) == 0 {
		r.Policy = c.compile(m.Spec)
	}
	return r
}

// compile parses a spec as it will be stored.
func (c *check) compile(spec belfry.Spec) *plan.Policy {
	policy, err := c.defaults.Compile(spec)
	if err != nil {
		c.add(scheduleError(err))
	}
	return policy
}

// fail adds an error, unless the field has one already.
func (c *check) fail(field, format string, args ...any) {
	if !c.failed(field) {
		c.errors = append(c.errors, belfry.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
}

func (c *check) add(errors ...belfry.FieldError) {
	for _, e := range errors {
		c.fail(e.Field, "%s", e.Message)
	}
}

func (c *check) failed(field string) bool {
	return slices.ContainsFunc(c.errors, func(e belfry.FieldError) bool { return e.Field == field })
}

// sets reports whether the request gives a field, whose value is not zero.
func (c *check) sets(field string) bool { return c.fields == nil || c.fields.Has(field) }

// priority brings a priority that was not decoded from JSON into its usual form.
func (c *check) priority(s *belfry.Spec) {
	priority, err := belfry.ParsePriority(string(s.Priority))
	if err != nil {
		c.fail("priority", "%s", err)
	}
	s.Priority = priority
}

// keyTemplate checks the template of idempotency keys and brings it into its normal
// form.
func (c *check) keyTemplate(s *belfry.Spec) {
	const field = "idempotency_key_template"
	template, err := belfry.ParseKeyTemplate(strings.TrimSpace(s.IdempotencyKeyTemplate))
	if err != nil {
		c.fail(field, "%s", err)
		return
	}
	s.IdempotencyKeyTemplate = template.String()
	if c.before != nil && s.IdempotencyKeyTemplate == c.before.IdempotencyKeyTemplate {
		return
	}
	for _, m := range bracedWord.FindAllStringSubmatch(s.IdempotencyKeyTemplate, -1) {
		if _, err := belfry.ParseKeyTemplate("{{" + m[1] + "}}"); err == nil && !strings.HasPrefix(m[0], "{{") {
			c.fail(field, "has %s, which would be the same in every key; write {{%s}}", m[0], m[1])
		}
	}
}

// bracedWord finds words in braces. Those of a template have two.
var bracedWord = regexp.MustCompile(`\{+ *(\w+) *\}+`)
