package belfry

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Spec is how a job runs: everything that can be set except its name, description,
// tags and payload. Jobs with equal specs share one parsed rule in a scheduler's
// memory. Its JSON form is what is stored and what the API shows. Zero fields have
// their defaults.
type Spec struct {
	Description string `json:"description,omitempty" maxlen:"2000" multiline:"true" example:"Sends the sales report of the day to finance." doc:"What the job is for, for people: free text of up to 2,000 characters. Searches look at it."`

	Type     string `json:"type,omitempty" enum:"http,worker,command,message" example:"http" doc:"What a run is: an HTTP request ('http'), a call of a handler in a program of your own ('worker'), a command that the operator of a worker has named in a file ('command'), or a message to a broker ('message'). Default: 'http' if the payload has a 'url', otherwise 'worker'."`
	Handler  string `json:"handler,omitempty" doc:"Name of the handler that runs a job of type 'worker'. Default: the name of the job. For type 'command' it is set: 'command.' and the name of the command."`
	Schedule string `json:"schedule,omitempty" required:"true" example:"30 2 * * *" doc:"When the job runs: a cron expression, a calendar rule (RFC 5545), an interval (ISO 8601) or an instant. Cron has five fields, six with seconds first or seven with the year last, '@daily' and the like, '@every 90s', and 'H' for a value that depends on the job, as in 'H 3 * * *'. A calendar rule is such as 'FREQ=WEEKLY;BYDAY=MO,WE;BYHOUR=9', optionally with DTSTART, RDATE and EXDATE. An interval is such as 'PT15M' or 'R5/2027-03-01T09:00:00Z/P1D', an instant such as '2027-01-31T09:00:00Z'."`
	Resolved string `json:"resolved_schedule,omitempty" readonly:"true" doc:"The schedule with every 'H' replaced by its value. Missing without an 'H'."`
	Timezone string `json:"timezone,omitempty" implicit:"UTC" example:"Europe/Paris" doc:"IANA time zone of the schedule. Default: the zone that the schedule itself names, otherwise UTC."`

	DSTGap     DSTGap     `json:"dst_gap,omitempty" doc:"What happens to a wall time that the clock skips when summer time begins. Default: 'skip' if 'missed_window' is 'skip', otherwise 'run'."`
	DSTOverlap DSTOverlap `json:"dst_overlap,omitempty" zero:"auto" doc:"When a wall time runs that the clock shows twice when summer time ends."`
	StartsAt   time.Time  `json:"starts_at,omitzero" doc:"Nothing runs before this instant. Intervals and calendar rules without a start of their own count from it. Default for those: the time of creation."`
	EndsAt     time.Time  `json:"ends_at,omitzero" doc:"Nothing runs after this instant."`
	MaxRuns    int        `json:"max_runs,omitempty" min:"0" max:"1000000000" doc:"How many scheduled runs the job has in all; triggers do not count. Default: no limit."`

	JitterSeconds  int          `json:"jitter_seconds,omitempty" min:"0" max:"86400" doc:"Scheduled runs become ready later than their occurrence by a delay from 0 to this, so that jobs that are due together do not start together. The delay depends only on the job and the occurrence, and ends a second before the next occurrence. Triggered and backfilled runs have none."`
	MissedWindow   MissedWindow `json:"missed_window,omitempty" default:"run_once" doc:"What happens to occurrences that were missed because no scheduler was running. Being late because workers are busy is not missed. A one-off runs however late, unless this is 'skip'."`
	MaxMissed      int          `json:"max_missed,omitempty" min:"0" max:"1000" implicit:"100" doc:"How many missed occurrences run at most with 'missed_window' 'run_all': the newest."`
	CatchUpSeconds int          `json:"catch_up_window_seconds,omitempty" min:"0" max:"316224000" example:"3600" doc:"How old a missed occurrence may be to still run. Default: set by the server, normally 30 minutes for 'run_all' and no limit for 'run_once'."`

	Queue          string   `json:"queue,omitempty" default:"default" pattern:"^[a-zA-Z0-9._-]{1,100}$" patterndoc:"must have 1 to 100 letters, digits, dots, underscores and hyphens" doc:"Queue of the runs of the job. Workers serve queues."`
	Priority       Priority `json:"priority,omitempty" default:"normal" doc:"Which runs in a queue start first when workers are busy: 'high' before 'normal' before 'low', or a number from 0 to 9, where 9 is first. Waiting runs gain priority over time, so that none starves."`
	Overlap        Overlap  `json:"overlap,omitempty" default:"skip" doc:"What happens to an occurrence, or a triggered run, while an earlier run of the job is alive. Catch-up and backfill runs wait for each other unless this is 'parallel'."`
	MaxQueued      int      `json:"max_queued,omitempty" min:"0" max:"10000" implicit:"100" doc:"How many runs may wait for an earlier one with 'overlap' 'queue'."`
	TimeoutSeconds int      `json:"timeout_seconds,omitempty" default:"60" min:"1" max:"86400" doc:"How long one attempt may take."`

	MaxRetries       Optional[int]     `json:"max_retries,omitzero" default:"3" min:"0" max:"100" doc:"How often a failed run is attempted again. Default with 'retry_delays': one retry per delay."`
	RetryOn          RetryOn           `json:"retry_on,omitempty" zero:"all" doc:"Which failures are retried."`
	RetryBackoff     Backoff           `json:"retry_backoff,omitempty" default:"exponential" doc:"How the delay between attempts grows. A target can ask for another delay with 'Retry-After' on 429 and 503."`
	RetryBaseSeconds Optional[float64] `json:"retry_base_seconds,omitzero" default:"5" min:"0" max:"86400" doc:"Delay before the first retry."`
	RetryCapSeconds  Optional[float64] `json:"retry_cap_seconds,omitzero" default:"1800" min:"0" max:"604800" doc:"Longest delay before a retry; at least 'retry_base_seconds'."`
	RetryJitter      Optional[float64] `json:"retry_jitter,omitzero" default:"0.25" min:"0" max:"0.25" doc:"Fraction of a delay, up to 0.25, that is randomly added or removed, so that failed runs do not retry all at once."`
	RetryDelays      Delays            `json:"retry_delays,omitempty" maxitems:"100" example:"[5, 30, 120]" doc:"Delays in seconds, one per retry; the last one repeats. Sets 'retry_backoff' to 'list'."`

	RetentionDays          int    `json:"retention_days,omitempty" min:"0" max:"36500" example:"30" doc:"How many days the history of the runs is kept. Default: set by the server."`
	IdempotencyKeyTemplate string `json:"idempotency_key_template,omitempty" maxlen:"200" doc:"Template of the idempotency keys of scheduled runs, with '{{job_id}}', '{{name}}', '{{scheduled_at}}', '{{unix}}', '{{date}}', '{{week}}', '{{month}}', '{{year}}' and '{{hour}}' in the time zone of the job. Default: '{{job_id}}:{{unix}}'."`
}

// DefaultSpec is the spec of a job that sets nothing: the default of every field that
// has one.
func DefaultSpec() Spec { return defaultSpec }

// defaultSpec is read from the default tags, and defaultFields are the fields that have
// one.
var defaultSpec, defaultFields = func() (s Spec, fields []int) {
	t := reflect.TypeFor[Spec]()
	for i := range t.NumField() {
		f := t.Field(i)
		value, ok := f.Tag.Lookup("default")
		if !ok {
			continue
		}
		if f.Type.Kind() == reflect.String {
			value = `"` + value + `"`
		}
		if err := json.Unmarshal([]byte(value), reflect.ValueOf(&s).Elem().Field(i).Addr().Interface()); err != nil {
			panic("belfry: default of " + f.Name + ": " + err.Error())
		}
		fields = append(fields, i)
	}
	return s, fields
}()

// WithDefaults sets every field that is unset and has a default.
func (s Spec) WithDefaults() Spec {
	v, d := reflect.ValueOf(&s).Elem(), reflect.ValueOf(&defaultSpec).Elem()
	for _, i := range defaultFields {
		if v.Field(i).IsZero() {
			v.Field(i).Set(d.Field(i))
		}
	}
	return s
}

// HandlerName is the handler that runs a job with this spec: the one that it names, or
// else its type.
func (s Spec) HandlerName() string {
	if s.namesHandler() {
		return s.Handler
	}
	return s.Type
}

// namesHandler reports whether the handler is one that workers bring. A command has one,
// unless it is text for the shell of a node.
func (s Spec) namesHandler() bool {
	return s.Type == TypeWorker || s.Type == TypeCommand && s.Handler != ""
}

// Lane is the queue and handler of the runs of a job with this spec, as the store and
// its workers name it. The namespace is part of it, so that the runs of one namespace never
// stand before those of another; a built-in handler has none in the default namespace.
func (s Spec) Lane(namespace string) string {
	if s.namesHandler() {
		return NamespaceLane(namespace, Lane(s.Queue, s.Handler))
	}
	return BuiltinLane(namespace, Lane(s.Queue, s.Type))
}

// Lane names a handler in a queue: a worker claims runs by lane.
func Lane(queue, handler string) string { return queue + "/" + handler }

// NamespaceLane is the lane of a user's handler. Other namespaces may have handlers of the
// same name.
func NamespaceLane(namespace, lane string) string { return namespace + ":" + lane }

// BuiltinLane is the lane of a built-in handler, which serves all namespaces, for one of them.
func BuiltinLane(namespace, lane string) string {
	if namespace == DefaultNamespace || namespace == "" {
		return lane
	}
	return namespace + "::" + lane
}

// LaneNamespace returns the namespace of a lane, and the lane that workers name which serve
// it: that of a built-in handler has no namespace.
func LaneNamespace(lane string) (namespace, served string) {
	namespace, rest, found := strings.Cut(lane, ":")
	if !found {
		return DefaultNamespace, lane
	}
	if rest, builtin := strings.CutPrefix(rest, ":"); builtin {
		return namespace, rest
	}
	return namespace, lane
}

// ServesLane reports whether a worker that names some lanes serves a lane.
func ServesLane(lanes []string, lane string) bool {
	_, served := LaneNamespace(lane)
	return slices.Contains(lanes, served)
}

// SplitLane returns the queue and the handler of a lane.
func SplitLane(lane string) (queue, handler string) {
	_, lane = LaneNamespace(lane)
	if _, rest, found := strings.Cut(lane, ":"); found {
		lane = rest
	}
	queue, handler, _ = strings.Cut(lane, "/")
	return queue, handler
}

// LaneType returns the queue of a lane and the type of its jobs.
func LaneType(lane string) (queue, kind string) {
	_, lane = LaneNamespace(lane)
	queue, kind = SplitLane(lane)
	if handler := kind; strings.Contains(lane, ":") { // of a user's handler
		if kind = TypeWorker; strings.HasPrefix(handler, CommandPrefix) {
			kind = TypeCommand
		}
	}
	return queue, kind
}

// Timeout limits one attempt.
func (s Spec) Timeout() time.Duration { return time.Duration(s.TimeoutSeconds) * time.Second }

// Retry is the retry policy.
func (s Spec) Retry() Retry {
	return Retry{
		Max:     s.MaxRetries.Value(),
		Backoff: s.RetryBackoff,
		On:      s.RetryOn,
		Base:    time.Duration(s.RetryBaseSeconds.Value() * float64(time.Second)),
		Cap:     time.Duration(s.RetryCapSeconds.Value() * float64(time.Second)),
		Jitter:  s.RetryJitter.Value(),
		Delays:  s.RetryDelays,
	}
}

// Serial reports whether the runs of the job follow one after another: at most one of
// its live runs is not waiting for another.
func (s Spec) Serial() bool { return s.Overlap != OverlapParallel }

// QueueLimit is how many runs of the job may wait for an earlier one.
func (s Spec) QueueLimit() int {
	switch {
	case s.Overlap != OverlapQueue:
		return 0
	case s.MaxQueued == 0:
		return DefaultMaxQueued
	}
	return s.MaxQueued
}

// MissedLimit is how many missed occurrences run at most with MissedRunAll.
func (s Spec) MissedLimit() int {
	if s.MaxMissed == 0 {
		return DefaultMaxMissed
	}
	return s.MaxMissed
}

// Limits of a spec that sets none.
const (
	DefaultMaxMissed = 100
	DefaultMaxQueued = 100
)

// SkipsGap reports whether wall times that the clock skips do not run.
func (s Spec) SkipsGap() bool {
	return s.DSTGap == GapSkip || s.DSTGap == "" && s.MissedWindow == MissedSkip
}

// The types of a job.
const (
	TypeHTTP    = "http"
	TypeWorker  = "worker"
	TypeCommand = "command"
	TypeMessage = "message"
)

// CommandPrefix begins the names of handlers that run commands: workers claim a command by
// its name.
const CommandPrefix = TypeCommand + "."

// ReservedHandlers are names that no user's handler may have.
var ReservedHandlers = []string{TypeHTTP, TypeMessage, TypeCommand, TypeWorker}

// MissedWindow says what happens to missed occurrences.
type MissedWindow string

// The missed-window policies.
const (
	MissedSkip    MissedWindow = "skip"
	MissedRunOnce MissedWindow = "run_once"
	MissedRunAll  MissedWindow = "run_all"
)

// EnumValues lists the policies.
func (MissedWindow) EnumValues() []EnumValue {
	return []EnumValue{
		{"skip", "none of them runs"},
		{"run_once", "one run, for the latest of them"},
		{"run_all", "a run for each of the newest 'max_missed', oldest first, one after another"},
	}
}

// DSTGap says what happens to a wall time that the clock skips.
type DSTGap string

// The ways to treat a gap.
const (
	GapRun  DSTGap = "run"
	GapSkip DSTGap = "skip"
)

// EnumValues lists the ways to treat a gap.
func (DSTGap) EnumValues() []EnumValue {
	return []EnumValue{
		{"run", "once at the end of the gap, unless a later time of the schedule covers it"},
		{"skip", "not at all; a skip is recorded"},
	}
}

// DSTOverlap says when a wall time runs that the clock shows twice.
type DSTOverlap string

// The ways to treat a repeated wall time.
const (
	DSTAuto  DSTOverlap = ""
	DSTFirst DSTOverlap = "first"
	DSTBoth  DSTOverlap = "both"
)

// EnumValues lists the ways to treat a repeated wall time.
func (DSTOverlap) EnumValues() []EnumValue {
	return []EnumValue{
		{"auto", "both times for schedules such as every 15 minutes, the first time for others"},
		{"first", "the first time"},
		{"both", "both times"},
	}
}

// Overlap says what happens to a run while an earlier run of its job is alive.
type Overlap string

// The overlap policies.
const (
	OverlapSkip     Overlap = "skip"
	OverlapQueue    Overlap = "queue"
	OverlapParallel Overlap = "parallel"
)

// EnumValues lists the policies.
func (Overlap) EnumValues() []EnumValue {
	return []EnumValue{
		{"skip", "it is skipped, and the skip is recorded"},
		{"queue", "it waits for the earlier run; if 'max_queued' runs wait already, it is skipped"},
		{"parallel", "it runs at the same time"},
	}
}

// Optional is a value that may be unset where its zero value means something of its
// own: max_retries 0 is no retries, unset is the default. It is comparable.
type Optional[T comparable] struct {
	value T
	set   bool
}

// Some is a set value.
func Some[T comparable](v T) Optional[T] { return Optional[T]{value: v, set: true} }

// Get returns the value and whether it is set.
func (o Optional[T]) Get() (T, bool) { return o.value, o.set }

// Value is the value, or the zero value if it is unset.
func (o Optional[T]) Value() T { return o.value }

// IsZero reports whether the value is unset, which leaves it out of JSON.
func (o Optional[T]) IsZero() bool { return !o.set }

// MarshalJSON writes the value, or null.
func (o Optional[T]) MarshalJSON() ([]byte, error) {
	if !o.set {
		return []byte("null"), nil
	}
	return json.Marshal(o.value)
}

// UnmarshalJSON reads a value; null unsets it.
func (o *Optional[T]) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*o = Optional[T]{}
		return nil
	}
	var v T
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	*o = Some(v)
	return nil
}

// MustJSON writes v as JSON, for payloads in code. It panics if v has no JSON form.
func MustJSON(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic("belfry: " + err.Error())
	}
	return text
}

// HTTPPayload is the payload of a job of type http: the request that each of its runs
// makes. A response with status 2xx is success.
type HTTPPayload struct {
	_        struct{}          `doc:"The request that each run of a job of type 'http' makes. A response with status 2xx is success."`
	URL      string            `json:"url" required:"true" pattern:"^(?i:https?)://" patterndoc:"must begin with http:// or https://" maxlen:"2048" example:"https://example.com/hooks/report" doc:"Address of the request. It must not contain a user name or password; use a header."`
	Method   string            `json:"method,omitempty" enum:"GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS" implicit:"POST" example:"POST" doc:"Method of the request."`
	Headers  map[string]string `json:"headers,omitempty" maxitems:"64" example:"{\"Accept\": \"application/json\"}" doc:"Headers of the request. Headers that the connection or Belfry sets, such as 'Host' and 'Idempotency-Key', cannot be set."`
	Body     json.RawMessage   `json:"body,omitempty" example:"{\"format\": \"pdf\"}" doc:"Body of the request. A string is sent as it is, any other value as JSON."`
	SignWith string            `json:"sign_with,omitempty" pattern:"^[a-z0-9][a-z0-9._-]{0,62}$" patterndoc:"must be the name of a secret: lower-case letters, digits, '.', '_' and '-', at most 63" example:"billing-callbacks" doc:"Name of a secret of the namespace: the request is signed with it, as Standard Webhooks describes. Unset is 'sign_with' of the namespace; without that, requests are not signed."`
}

// Content is the body to send and its content type unless a header sets another.
func (p HTTPPayload) Content() (body []byte, contentType string) { return content(p.Body) }
