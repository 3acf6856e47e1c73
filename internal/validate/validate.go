// Package validate checks jobs as people declare them and brings them into the form
// that is stored. It needs no server, so the command line uses it too.
//
// What the tags of a field say is checked by package schema, and types with a JSON form
// of their own, such as belfry.Priority and belfry.Delays, refuse what is wrong when
// they are decoded. This package checks what depends on several fields or must be
// parsed: schedules, time zones, payloads, handlers, retries, key templates and masked
// secrets.
package validate

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
	"github.com/belfry-sh/belfry/internal/schema"
)

// Input is a manifest as a request declares it. A zero field means its default. For an
// edit it is the manifest of the job with the given fields replaced.
type Input struct {
	belfry.Manifest
	Fields schema.FieldSet     // fields that the request sets; nil: those that are not zero
	Errors []belfry.FieldError // found while it was decoded; more errors of the same fields are left out
	Replan bool                // plan a cancelled job again, even if its schedule stays

	// Decoded says that the manifest was decoded from a text that was checked: its payload
	// is valid JSON without duplicate names.
	Decoded bool
}

// Result is a normalized manifest with its compiled policy.
type Result struct {
	Manifest belfry.Manifest
	Paused   bool
	Replan   bool         // a cancelled job is planned again
	Policy   *plan.Policy // nil if an edit leaves the schedule as it was
}

// Validator validates manifests as of one instant. It keeps the schedules that it
// parsed and the specs that were valid, so that many jobs that are alike cost little. It is
// not safe for concurrent use.
type Validator struct {
	now      time.Time
	defaults plan.Defaults
	parsed   map[scheduleKey]parsedSchedule
	compiled map[belfry.Spec]*plan.Policy // of new jobs, by what was declared

	// Messages says what is wrong with a message that only a server knows: that there is no
	// such connection. Nil: that is not known.
	Messages func(belfry.MessagePayload) []belfry.FieldError

	RefuseShell bool // the server lets no job give text for a shell

	Namespace   string        // of the jobs
	MinInterval time.Duration // that the namespace allows between two occurrences; 0: any
}

// New returns a Validator. The defaults are those of the server that fires the jobs.
func New(now time.Time, d plan.Defaults) *Validator {
	return &Validator{now: now.UTC(), defaults: d, parsed: map[scheduleKey]parsedSchedule{}, compiled: map[belfry.Spec]*plan.Policy{}}
}

// Create validates a new job that will have the id. It returns every error.
func (v *Validator) Create(id belfry.ID, input Input) (Result, []belfry.FieldError) {
	c := check{Validator: v, fields: input.Fields, decoded: input.Decoded, errors: slices.Clone(input.Errors)}
	if c.failed("") { // It could not be read: there is nothing to validate.
		return Result{}, input.Errors
	}
	return c.manifest(id, input.Manifest), c.errors
}

// Edit validates what a job is edited to or replaced by. The job has its true payload:
// masked secrets in the input stay what they are.
//
// Fields that are not given follow those that are: a job that is no longer of type
// worker loses its handler, a schedule that names its time zone replaces the one
// before, and delays and backoff replace each other.
func (v *Validator) Edit(before belfry.Job, input Input) (Result, []belfry.FieldError) {
	c := check{Validator: v, before: &before, fields: input.Fields, errors: slices.Clone(input.Errors)}
	r := c.manifest(before.ID, input.Manifest)
	r.Replan = input.Replan || input.Status == belfry.StatusActive || input.Status == belfry.StatusScheduled
	return r, c.errors
}

// check collects the errors of one manifest.
type check struct {
	*Validator
	before  *belfry.Job // nil for a new job
	fields  schema.FieldSet
	preview bool // a one-off may have passed
	errors  []belfry.FieldError

	decoded      bool // see Input
	validPayload bool // it is JSON
}

func (c *check) manifest(id belfry.ID, m belfry.Manifest) Result {
	m.Name = c.name(m.Name)
	m.Tags = c.tags(m.Tags)
	m.Schedule, m.Resolved = strings.TrimSpace(m.Schedule), ""
	c.add(schema.Check(&m)...)
	m.Payload = c.compact(m.Payload)
	c.target(&m)
	policy := c.spec(&m.Spec, id)
	m.Payload = c.payload(m.Payload, m.Type)
	r := Result{Manifest: m, Paused: m.Status == belfry.StatusPaused, Policy: policy}
	if m.Status == "" && c.before != nil && !c.fields.Has("status") {
		r.Paused = c.before.State == belfry.JobPaused
	}
	return r
}

// spec checks what depends on several fields or must be parsed, and fills in what is
// stored. It returns the policy, or nil if the spec is invalid or its schedule unchanged.
func (c *check) spec(s *belfry.Spec, id belfry.ID) *plan.Policy {
	declared := *s
	if p := c.compiled[declared]; p != nil && c.before == nil && len(c.errors) == 0 {
		*s = p.Spec
		return p
	}
	c.retries(s)
	*s = s.WithDefaults()
	c.longestDelay(*s)
	rule := c.schedule(s, id)
	c.keyTemplate(s)
	if rule == nil || len(c.errors) > 0 {
		return nil
	}
	p, err := c.defaults.CompileRule(*s, rule)
	if err != nil {
		c.add(scheduleError(err))
		return nil
	}
	if c.before == nil && s.Resolved == "" { // an H depends on the id
		if len(c.compiled) >= maxParsed {
			clear(c.compiled)
		}
		c.compiled[declared] = p
	}
	return p
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

// retries settles what depends on each other in a retry policy: a list of delays has a
// backoff of its own and says how many retries there are, another backoff replaces the
// list, and a longer first delay raises the longest one, unless the request sets those
// itself. Fields that are unset get their defaults afterwards.
func (c *check) retries(s *belfry.Spec) {
	delays := s.RetryDelays != "" && c.sets("retry_delays")
	backoff := s.RetryBackoff != "" && c.sets("retry_backoff")
	switch {
	case delays:
		if !backoff {
			s.RetryBackoff = belfry.BackoffList
		}
		if s.MaxRetries.IsZero() || !c.sets("max_retries") {
			s.MaxRetries = belfry.Some(len(s.RetryDelays.Seconds()))
		}
	case backoff && s.RetryBackoff != belfry.BackoffList:
		s.RetryDelays = ""
	case !backoff && s.RetryBackoff == belfry.BackoffList && s.RetryDelays == "":
		s.RetryBackoff = ""
	}
	switch list := s.RetryBackoff == belfry.BackoffList; {
	case list && s.RetryDelays == "":
		c.fail("retry_delays", "is missing: backoff %q needs the seconds to wait before each retry, for example [10, 60, 600]", belfry.BackoffList)
	case !list && s.RetryDelays != "" && !c.failed("retry_backoff"):
		c.fail("retry_delays", "needs backoff %q, not %q; leave one of them out", belfry.BackoffList, s.RetryBackoff)
	}
	if base, ok := s.RetryBaseSeconds.Get(); ok && c.sets("retry_base_seconds") && (s.RetryCapSeconds.IsZero() || !c.sets("retry_cap_seconds")) {
		if s.RetryCapSeconds.IsZero() {
			s.RetryCapSeconds = belfry.DefaultSpec().RetryCapSeconds
		}
		s.RetryCapSeconds = belfry.Some(max(s.RetryCapSeconds.Value(), base))
	}
}

// longestDelay checks that the longest delay is not shorter than the first one.
func (c *check) longestDelay(s belfry.Spec) {
	if s.RetryBackoff == belfry.BackoffImmediate || s.RetryBackoff == belfry.BackoffList || c.failed("retry_base_seconds") || c.failed("retry_cap_seconds") {
		return
	}
	if base := s.RetryBaseSeconds.Value(); base > s.RetryCapSeconds.Value() {
		c.fail("retry_cap_seconds", "must be at least retry_base_seconds, which is %v", base)
	}
}

func (c *check) name(name string) string {
	trimmed := strings.TrimSpace(name)
	switch {
	case name == "":
	case trimmed == "":
		c.fail("name", "must not be blank; leave it out for a job without a name")
	default:
		if problem := Name(trimmed); problem != "" {
			c.fail("name", "%s", problem)
		}
	}
	return trimmed
}

// tags returns the tags sorted, each once.
func (c *check) tags(tags []string) []string {
	var out []string
	for i, tag := range tags {
		tag = strings.TrimSpace(tag)
		if problem := checkTag(tag); problem != "" {
			c.fail(fmt.Sprintf("tags[%d]", i), "%s", problem)
		}
		out = append(out, tag)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func checkTag(tag string) string {
	switch n := utf8.RuneCountInString(tag); {
	case n == 0:
		return "must not be empty"
	case n > maxTag:
		return fmt.Sprintf(tooLong, n, maxTag)
	case schema.CheckVisible(tag) != "":
		return schema.CheckVisible(tag)
	case !utf8.ValidString(tag) || strings.ContainsFunc(tag, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && !strings.ContainsRune("._:/=@-", r)
	}):
		return "may contain letters, digits and . _ : / = @ -"
	}
	return ""
}

const (
	maxTag     = 100 // characters
	maxHandler = 200
	tooLong    = "has %d characters, the maximum is %d"
)

var namespaces = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

// Namespace reports whether a namespace may have this name: 1 to 63 lower case
// letters, digits and hyphens.
func Namespace(name string) bool { return namespaces.MatchString(name) }

// Name says what is wrong with the name of a job, in words that follow the name of a
// field; "" if nothing is.
func Name(name string) string {
	switch _, err := belfry.ParseID(name); {
	case err == nil:
		return "must not look like an id, since either finds it"
	case name == "." || name == "..":
		return "must not be . or .., which cannot be part of an address"
	}
	return schema.CheckText(name, belfry.MaxName, false)
}

// Handler says what is wrong with the name of a user's handler; "" if nothing is.
func Handler(name string) string {
	switch {
	case name == "":
		return "must not be empty"
	case strings.TrimSpace(name) != name:
		return "must not start or end with blanks"
	case strings.Contains(name, "/"):
		return `must not contain "/"`
	case slices.ContainsFunc(belfry.ReservedHandlers, func(own string) bool { return strings.EqualFold(own, name) }):
		return strings.ToLower(name) + " is run by Belfry itself; choose another name"
	}
	return schema.CheckText(name, maxHandler, false)
}

// Queue says what is wrong with the name of a queue; "" if nothing is.
func Queue(name string) string {
	if queueField.Pattern.MatchString(name) {
		return ""
	}
	return cmp.Or(schema.CheckVisible(name), queueField.PatternDoc)
}

var queueField = schema.For[belfry.Spec]().Field("queue")

// Monitor validates a monitor as of an instant and brings it into the form that is stored.
// It adds to the errors that were found while it was decoded.
func Monitor(m belfry.Monitor, now time.Time, decoding []belfry.FieldError) (belfry.Monitor, []belfry.FieldError) {
	c := check{errors: slices.Clone(decoding)}
	m.Name = c.name(m.Name)
	m.Tags = c.tags(m.Tags)
	m.Cron, m.Timezone = strings.TrimSpace(m.Cron), strings.TrimSpace(m.Timezone)
	c.add(schema.Check(&m)...)
	schema.SetImplicit(&m)
	switch {
	case m.EverySeconds == 0 && m.Cron == "" && !c.failed("cron"):
		c.fail("every_seconds", "is missing: the longest time between two pings, for example 86400; or set cron")
	case m.EverySeconds != 0 && m.Cron != "":
		c.fail("cron", "cannot be combined with every_seconds; leave one of them out")
	case m.Cron == "" && m.Timezone != "":
		c.fail("timezone", "is the time zone of cron; leave it out, or set cron")
	case m.Cron != "" && len(strings.Fields(m.Cron)) < 5 && m.Cron[0] != '@':
		c.fail("cron", "is not a cron expression; for example %q. For an interval set every_seconds", "0 3 * * *")
	case m.Cron != "":
		if _, err := parseMonitor(m, now); err != nil {
			e := scheduleError(err)
			if e.Field == "schedule" {
				e.Field = "cron"
			}
			c.add(e)
		}
	}
	return m, c.errors
}

// MonitorSchedule returns when a ping is expected after an instant, of a monitor as it is
// stored.
func MonitorSchedule(m belfry.Monitor) (next func(after time.Time) time.Time, err error) {
	if m.Cron == "" {
		return func(after time.Time) time.Time { return after.Add(time.Duration(m.EverySeconds) * time.Second) }, nil
	}
	rule, err := parseMonitor(m, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("the schedule of monitor %s: %w", m.ID, err)
	}
	return rule.Next, nil
}

func parseMonitor(m belfry.Monitor, now time.Time) (schedule.Rule, error) {
	text, _, err := schedule.Resolve(m.Cron, m.ID)
	if err != nil {
		return nil, err
	}
	return schedule.Parse(text, schedule.Options{Timezone: m.Timezone, Now: now})
}
