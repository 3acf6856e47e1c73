package control

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
)

// Limits on what a spec may ask for.
const (
	maxTimeoutSeconds = 24 * 60 * 60
	maxRetries        = 100
	maxBaseSeconds    = 24 * 60 * 60
	maxCapSeconds     = 7 * 24 * 60 * 60
	maxJitter         = 0.25
	mostMissed        = 1000
	maxCatchUpSeconds = 10 * 366 * 24 * 60 * 60
	mostQueued        = 10_000
	maxRetentionDays  = 36_500
)

var queues = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,100}$`)

// examiner brings drafts into the form that is stored and finds all that is wrong
// with them, as of one instant.
type examiner struct {
	now      time.Time
	defaults plan.Defaults
	rules    map[ruleText]reading // schedules that were read already
}

func (c *Control) examiner(now time.Time) *examiner {
	return &examiner{now: now, defaults: c.defaults, rules: map[ruleText]reading{}}
}

// passed is a draft that was examined. The policy is nil if the job has the same
// rule as before the edit.
type passed struct {
	Draft
	policy  *plan.Policy
	catchUp bool // what fell into a pause that ends is made up for
}

// fresh examines the draft of a new job that will have the id.
func (x *examiner) fresh(d Draft, id belfry.ID) (passed, []belfry.FieldError) {
	e := examination{examiner: x}
	return e.examine(d, id), e.faults
}

// edited examines the draft that a job is edited to. Its secrets may be masked
// where the job has them.
func (x *examiner) edited(d Draft, job belfry.Job) (passed, []belfry.FieldError) {
	e := examination{examiner: x, job: &job}
	return e.examine(d, job.ID), e.faults
}

// examination collects what is wrong with one draft.
type examination struct {
	*examiner
	job     *belfry.Job // before the edit; nil for a new one
	lenient bool        // it does not matter whether an instant has passed
	faults  []belfry.FieldError
}

func (e *examination) examine(d Draft, id belfry.ID) passed {
	d.Name = e.name(d.Name)
	known := e.target(&d)
	d.Tags = e.tags(d.Tags)
	e.missed(&d.Spec)
	another := e.schedule(&d.Spec, id)
	d.Payload = e.payload(d.Payload, d.Spec.Type, known)
	e.delivery(&d.Spec)
	e.retries(&d.Spec)
	e.keys(&d.Spec)
	p := passed{Draft: d}
	if another && len(e.faults) == 0 {
		p.policy = e.compile(d.Spec)
	}
	return p
}

// compile reads a spec again as it will be stored.
func (e *examination) compile(spec belfry.Spec) *plan.Policy {
	policy, err := e.defaults.Compile(spec)
	if err != nil {
		var r reading
		r.refused(err)
		e.faults = append(e.faults, r.faults...)
	}
	return policy
}

func (e *examination) fault(field, format string, args ...any) {
	e.faults = append(e.faults, belfry.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

func (e *examination) between(field string, value, low, high float64) {
	if !(value >= low && value <= high) {
		e.fault(field, "must be from %s to %s, not %s", plain(low), plain(high), plain(value))
	}
}

// missed checks what becomes of occurrences at which nobody was in charge. What the
// clock skips may follow it.
func (e *examination) missed(s *belfry.Spec) {
	s.MissedWindow = choose(e, "missed_window", s.MissedWindow, []belfry.MissedWindow{belfry.MissedSkip, belfry.MissedRunOnce, belfry.MissedRunAll})
	e.atMost("max_missed", s.MaxMissed, mostMissed)
	e.atMost("catch_up_window_seconds", s.CatchUpSeconds, maxCatchUpSeconds)
}

// delivery checks when and how a run reaches a worker, and how long it is kept.
func (e *examination) delivery(s *belfry.Spec) {
	if !queues.MatchString(s.Queue) {
		e.fault("queue", "must have 1 to 100 letters, digits, dots, underscores and hyphens")
	}
	if s.Priority != belfry.PriorityNormal {
		priority, err := belfry.ParsePriority(string(s.Priority))
		if err != nil {
			e.fault("priority", "%s", err)
		}
		s.Priority = priority
	}
	s.Overlap = choose(e, "overlap", s.Overlap, []belfry.Overlap{belfry.OverlapSkip, belfry.OverlapQueue, belfry.OverlapParallel})
	e.atMost("max_queued", s.MaxQueued, mostQueued)
	e.between("timeout_seconds", float64(s.TimeoutSeconds), 1, maxTimeoutSeconds)
	e.atMost("retention_days", s.RetentionDays, maxRetentionDays)
}

// atMost checks a number that is at least one where it is given.
func (e *examination) atMost(field string, value, most int) {
	if value != 0 {
		e.between(field, float64(value), 1, float64(most))
	}
}

// keys checks the template of idempotency keys and brings it into its normal form.
func (e *examination) keys(s *belfry.Spec) {
	template, err := belfry.ParseKeyTemplate(strings.TrimSpace(s.IdempotencyKeyTemplate))
	if err != nil {
		e.fault("idempotency_key_template", "%s", err)
		return
	}
	s.IdempotencyKeyTemplate = template.String()
	if e.job != nil && s.IdempotencyKeyTemplate == e.job.IdempotencyKeyTemplate {
		return
	}
	for _, m := range braced.FindAllStringSubmatch(s.IdempotencyKeyTemplate, -1) {
		if _, err := belfry.ParseKeyTemplate("{{" + m[1] + "}}"); err == nil && !strings.HasPrefix(m[0], "{{") {
			e.fault("idempotency_key_template", "has %s, which would be the same in every key; write {{%s}}", m[0], m[1])
		}
	}
}

// braced finds words in braces. Those of a template have two.
var braced = regexp.MustCompile(`\{+ *(\w+) *\}+`)

// plain writes a number as people do, without an exponent.
func plain(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
