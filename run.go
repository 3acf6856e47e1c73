package belfry

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Run is one durable record of one occurrence, trigger or backfilled instant. A run
// that a worker claimed also carries its payload, spec and token.
type Run struct {
	_           struct{}  `doc:"One durable record of one occurrence, trigger or backfilled instant."`
	ID          ID        `json:"run_id" example:"01a22f39-15c0-8d3b-a6c4-90e15f7b2d08" doc:"Id of the run, computed from what identifies it: the same firing has the same id after a failover or a restore."`
	JobID       ID        `json:"job_id" example:"01a1de7a-fae0-7c1a-9f3e-2b6d8f4a1c55" doc:"Id of the job."`
	JobName     string    `json:"job_name,omitempty" example:"nightly-report" doc:"Name of the job, if it has one, also of a deleted job."`
	Namespace   string    `json:"namespace" example:"default" doc:"Namespace of the job."`
	Revision    int       `json:"revision" example:"3" doc:"Revision of the job that the run was fired from."`
	Kind        RunKind   `json:"kind" example:"scheduled" doc:"What created the run."`
	Status      RunStatus `json:"status" example:"succeeded" doc:"Status of the run."`
	ScheduledAt time.Time `json:"scheduled_at" example:"2026-12-01T01:30:00Z" doc:"The occurrence of the schedule, or the time of the trigger."`
	ReadyAt     time.Time `json:"ready_at" example:"2026-12-01T01:30:00Z" doc:"When the run may start: the scheduled time plus jitter, or the time of the next attempt."`
	FiredAt     time.Time `json:"fired_at,omitzero" example:"2026-12-01T01:30:00.004Z" doc:"When the run was created. Missing while a trigger is pending."`
	Attempt     int       `json:"attempt" example:"2" doc:"How often the run was claimed."`

	StartedAt  *time.Time `json:"started_at" example:"2026-12-01T01:30:05.310Z" doc:"When the latest attempt started; null before the first."`
	FinishedAt *time.Time `json:"finished_at" example:"2026-12-01T01:30:05.944Z" doc:"When the run was settled; null until then."`
	WorkerID   ID         `json:"worker_id,omitzero" example:"01a22f26-c640-7e02-8a41-d3c07b9e6f14" doc:"The worker of the latest attempt."`

	HTTPStatus int    `json:"http_status,omitempty" example:"200" doc:"HTTP status of the latest attempt of an 'http' job."`
	Output     string `json:"output,omitempty" example:"{\"pages\": 12}" doc:"Output of the latest attempt, at most 64 KiB."`
	Error      string `json:"error,omitempty" doc:"Error of the latest attempt."`
	Reason     Reason `json:"reason,omitempty" doc:"Why the occurrence was skipped or the run is dead."`

	CancelRequestedAt *time.Time `json:"cancel_requested_at,omitempty" doc:"When the running run was cancelled; its worker has not stopped yet."`

	SkippedTo    *time.Time `json:"skipped_to,omitempty" doc:"Last of several occurrences in a row that were skipped; this record stands for all of them."`
	SkippedCount int64      `json:"skipped_count,omitempty" doc:"How many occurrences this skip stands for."`

	IdempotencyKey string    `json:"idempotency_key,omitempty" example:"01a1de7a-fae0-7c1a-9f3e-2b6d8f4a1c55:1796088600" doc:"Idempotency key that the target or handler receives; the same in every attempt."`
	TraceID        string    `json:"trace_id,omitempty" example:"d49fad4eff312d584ac616f94e78c643" doc:"Id of the trace of the run, computed from its id. A server that exports traces sends them under it."`
	Note           string    `json:"note,omitempty" doc:"How a clock change affected the run; only if one did, and not in lists."`
	Attempts       []Attempt `json:"attempts,omitempty" doc:"The attempts that did not succeed, in order. Not in lists."`

	TemplateKey string `json:"-"` // idempotency key from the job's template; empty without one

	// Set on a claimed run only. JobName is unknown to one that was claimed while it
	// was fired.
	Token      Token           `json:"-"`
	Payload    json.RawMessage `json:"-"`
	Spec       Spec            `json:"-"`
	DeadlineAt time.Time       `json:"-"`
	Trace      *TraceContext   `json:"-"` // nil: the server exports no traces

	// Report is filled in by the handler while the attempt runs.
	Report Report `json:"-"`

	// LogTo is where Log writes. The worker sets it; without it the log is discarded.
	LogTo io.Writer `json:"-"`
}

// Report is what a handler reports about an attempt beyond its error.
type Report struct {
	HTTPStatus int
	Output     []byte   // the first MaxOutput bytes are kept
	Secrets    []string // beside those of the payload, values that are masked in output, error and log
}

// Key is the idempotency key of the run: the same in every attempt, and in every run
// of the same occurrence that a restored database may create.
func (r *Run) Key() string {
	if r.IdempotencyKey != "" {
		return r.IdempotencyKey
	}
	key := r.TemplateKey
	if key == "" {
		key = fmt.Sprintf("%s:%d", r.JobID, r.ScheduledAt.Unix())
	}
	if r.Kind != KindScheduled {
		key += ":" + r.ID.String()
	}
	return key
}

// RunKind says what created a run.
type RunKind string

// The kinds.
const (
	KindScheduled RunKind = "scheduled"
	KindManual    RunKind = "manual"
	KindBackfill  RunKind = "backfill"
)

// EnumValues lists the kinds.
func (RunKind) EnumValues() []EnumValue {
	return []EnumValue{
		{"scheduled", "an occurrence of the schedule"},
		{"manual", "a trigger"},
		{"backfill", "a past occurrence that was requested"},
	}
}

// RunStatus is the status of a run. The first four are live, the others final.
type RunStatus string

// The statuses.
const (
	RunReady   RunStatus = "ready"
	RunRunning RunStatus = "running"
	RunRetry   RunStatus = "retry"
	RunWaiting RunStatus = "waiting"

	RunSucceeded RunStatus = "succeeded"
	RunDead      RunStatus = "dead"
	RunSkipped   RunStatus = "skipped"
	RunCancelled RunStatus = "cancelled"
	RunDiscarded RunStatus = "discarded"
)

// EnumValues lists the statuses.
func (RunStatus) EnumValues() []EnumValue {
	return []EnumValue{
		{"ready", "waits for a worker"},
		{"running", "a worker executes it"},
		{"retry", "waits for its next attempt"},
		{"waiting", "waits for an earlier run of its job"},
		{"succeeded", "done"},
		{"dead", "out of attempts: a dead letter, which can be redriven or discarded"},
		{"skipped", "an occurrence that did not run; the reason says why"},
		{"cancelled", "cancelled by a user"},
		{"discarded", "a dead letter that was discarded"},
	}
}

// Live reports whether a run with this status is not settled.
func (s RunStatus) Live() bool {
	return s == RunReady || s == RunRunning || s == RunRetry || s == RunWaiting
}

// Reason says why an occurrence was skipped or a run is dead.
type Reason string

// The reasons.
const (
	ReasonOverlap      Reason = "overlap"
	ReasonQueueFull    Reason = "queue_full"
	ReasonMissed       Reason = "missed_window"
	ReasonMaxMissed    Reason = "max_missed"
	ReasonPaused       Reason = "paused"
	ReasonEdited       Reason = "edited"
	ReasonCancelled    Reason = "cancelled"
	ReasonDeleted      Reason = "deleted"
	ReasonDuplicateKey Reason = "duplicate_key"
	ReasonDSTGap       Reason = "dst_gap"
	ReasonZoneChange   Reason = "zone_change"
	ReasonOutOfRetries Reason = "out_of_retries"
	ReasonPermanent    Reason = "permanent"
	ReasonPoison       Reason = "poison"
)

// EnumValues lists the reasons.
func (Reason) EnumValues() []EnumValue {
	return []EnumValue{
		{"overlap", "an earlier run of the job was alive"},
		{"queue_full", "'max_queued' runs were already waiting for an earlier one"},
		{"missed_window", "no scheduler was running at that time"},
		{"max_missed", "more occurrences were missed than 'max_missed' allows to catch up"},
		{"paused", "the job was paused at that time"},
		{"edited", "an edit removed it from the schedule before it started"},
		{"cancelled", "the job was cancelled first"},
		{"deleted", "the job was deleted first"},
		{"duplicate_key", "a run with the same idempotency key was alive, or had succeeded in the last 7 days"},
		{"dst_gap", "the clock skipped that wall time, and the job says 'skip'"},
		{"zone_change", "newer time-zone data moved it to another instant"},
		{"out_of_retries", "every attempt failed"},
		{"permanent", "it failed in a way that retries cannot fix"},
		{"poison", "its workers were lost repeatedly"},
	}
}

// Attempt is one claim of a run by one worker that did not succeed.
type Attempt struct {
	_          struct{}  `doc:"One claim of a run by one worker that did not succeed."`
	Number     int       `json:"attempt" example:"1" doc:"Number of the attempt; the first is 1."`
	Outcome    Outcome   `json:"outcome" example:"failed" doc:"How the attempt ended."`
	WorkerID   ID        `json:"worker_id" example:"01a22f26-c640-7e02-8a41-d3c07b9e6f14" doc:"The worker of the attempt."`
	StartedAt  time.Time `json:"started_at" example:"2026-12-01T01:30:00.006Z" doc:"When the attempt started."`
	FinishedAt time.Time `json:"finished_at" example:"2026-12-01T01:30:00.191Z" doc:"When the attempt ended."`
	HTTPStatus int       `json:"http_status,omitempty" example:"503" doc:"HTTP status of the target of an 'http' job."`
	Error      string    `json:"error,omitempty" example:"the target answered 503" doc:"What went wrong."`
	Output     string    `json:"output,omitempty" doc:"Output of the target or handler, at most 64 KiB."`

	// A result that arrived after the attempt was superseded. It changed nothing.
	LateOutcome Outcome    `json:"late_outcome,omitempty" doc:"Outcome that the worker reported after the attempt was superseded. It changed nothing."`
	LateAt      *time.Time `json:"late_at,omitempty" doc:"When that was."`
}

// Outcome is how one attempt ended.
type Outcome string

// The outcomes.
const (
	OutcomeSucceeded   Outcome = "succeeded"
	OutcomeFailed      Outcome = "failed"
	OutcomeTimedOut    Outcome = "timed_out"
	OutcomeInterrupted Outcome = "interrupted"
	OutcomeLost        Outcome = "lost"
	OutcomeUnconfirmed Outcome = "unconfirmed"
	OutcomeSnoozed     Outcome = "snoozed"
	OutcomeCancelled   Outcome = "cancelled"
)

// EnumValues lists the outcomes.
func (Outcome) EnumValues() []EnumValue {
	return []EnumValue{
		{"succeeded", "the work is done"},
		{"failed", "the work failed; it is retried while retries are left"},
		{"timed_out", "the attempt exceeded its timeout"},
		{"interrupted", "returned by a worker that shuts down; costs no retry"},
		{"lost", "the worker stopped sending heartbeats"},
		{"unconfirmed", "claimed, but the worker never received it"},
		{"snoozed", "returned by the handler until later; costs no retry"},
		{"cancelled", "ended because the run was cancelled"},
	}
}

// JobHistory is a job with its runs.
type JobHistory struct {
	_ struct{} `doc:"A job with a page of its runs."`
	Job
	Executions []Run `json:"executions" doc:"Runs and skips of the job, latest first."`
}

// RunFilter selects runs. Zero fields match everything.
type RunFilter struct {
	_   struct{} `doc:"Selects runs. Fields that are left out match everything."`
	Job string   `json:"job,omitempty" maxlen:"200" example:"nightly-report" doc:"Only runs of this job, by its id or name; of a deleted job by its id."`
	JobRunFilter
}

// JobRunFilter selects runs of one job. Zero fields match everything.
type JobRunFilter struct {
	_        struct{}  `doc:"Selects runs. Fields that are left out match everything."`
	Status   RunStatus `json:"status,omitempty" example:"dead" doc:"Only runs with this status. Dead letters are 'dead'."`
	Since    time.Time `json:"since,omitzero" example:"2026-12-01T00:00:00Z" doc:"Only runs that were scheduled for this instant or later."`
	Until    time.Time `json:"until,omitzero" example:"2026-12-02T00:00:00Z" doc:"Only runs that were scheduled for an earlier instant."`
	PageSize int       `json:"-"` // runs per request of the client; zero is the server's choice
}

// Trigger asks for a run of a job now.
type Trigger struct {
	_       struct{}        `doc:"A run of a job now."`
	Payload json.RawMessage `json:"payload,omitempty" example:"{\"format\": \"csv\"}" doc:"Payload of this run. For the types 'http' and 'message' it replaces the body, never the address; otherwise it replaces the payload of the job."`
}

// TriggerResult names the run that a trigger becomes.
type TriggerResult struct {
	_     struct{} `doc:"The run that a trigger becomes."`
	RunID ID       `json:"run_id" example:"01a22f3a-7b08-8d3b-a6c4-90e15f7b2d08" doc:"Id of the run, known before it is fired."`
}

// Backfill asks for runs of the occurrences of a job in a span of the past.
type Backfill struct {
	_      struct{}  `doc:"Past occurrences to run."`
	From   time.Time `json:"from" required:"true" example:"2026-03-02T00:00:00+01:00" doc:"First instant that may run."`
	To     time.Time `json:"to,omitzero" example:"2026-03-03T00:00:00+01:00" doc:"Last instant that may run. Default: now."`
	Limit  int       `json:"limit,omitempty" min:"1" max:"1000" implicit:"100" doc:"How many runs at most, oldest first."`
	DryRun bool      `json:"dry_run,omitempty" doc:"Only list the occurrences."`
}

// BackfillResult is the runs of a backfill, or what a dry run would create.
type BackfillResult struct {
	_        struct{}    `doc:"The runs of a backfill."`
	Count    int         `json:"count" example:"2" doc:"How many occurrences there are."`
	Instants []time.Time `json:"instants" example:"[\"2026-11-29T01:30:00Z\", \"2026-11-30T01:30:00Z\"]" doc:"The occurrences, in order."`
	RunIDs   []ID        `json:"run_ids,omitempty" example:"[\"01a224ec-ae40-8d3b-a6c4-90e15f7b2d08\", \"01a22a13-0a40-8d3b-a6c4-90e15f7b2d08\"]" doc:"Ids of their runs, in the same order. Missing in a dry run."`
	More     bool        `json:"more" example:"false" doc:"There are more occurrences than 'limit'."`
	NextFrom time.Time   `json:"next_from,omitzero" doc:"The 'from' to continue with."`
}

// Log writes a line to the log of the attempt: the arguments as fmt.Println writes them.
// It may be called by several goroutines. The newest MaxLog bytes are kept and shown with
// the run, also while it is running.
func (r *Run) Log(args ...any) { fmt.Fprintln(r.LogWriter(), args...) }

// LogWriter is where Log writes, for fmt.Fprintf, log.New or slog.NewTextHandler. Writing
// to it does not fail.
func (r *Run) LogWriter() io.Writer {
	if r.LogTo == nil {
		return io.Discard
	}
	return r.LogTo
}

// LogChunk is a part of the log of a running attempt. It is kept only while the run is
// held by exactly this attempt: namespace, run, number and token.
type LogChunk struct {
	_         struct{} `doc:"A part of the log of a running attempt."`
	Namespace string   `json:"-"`
	RunID     ID       `json:"run_id" required:"true" example:"01a22f39-15c0-8d3b-a6c4-90e15f7b2d08" doc:"Id of the run."`
	Attempt   int      `json:"attempt" required:"true" min:"1" max:"1073741824" example:"1" doc:"Number of the attempt, as claimed."`
	Token     Token    `json:"token" required:"true" example:"9f86d081884c7d659a2feaa0c55ad015" doc:"Token of the attempt, as claimed."`
	Offset    int64    `json:"offset,omitempty" min:"0" max:"1099511627776" example:"4096" doc:"How many bytes of the log come before this text, in UTF-8. Text that is known already is ignored."`
	Text      string   `json:"text" example:"page 3 of 12" doc:"What was written since, in whole characters; the last 64 KiB are kept."`
}

// RunLog is the log of an attempt from an offset on.
type RunLog struct {
	_          struct{} `doc:"The log of an attempt from an offset on."`
	RunID      ID       `json:"run_id" example:"01a22f39-15c0-8d3b-a6c4-90e15f7b2d08" doc:"Id of the run."`
	Attempt    int      `json:"attempt" example:"1" doc:"Number of the attempt; 0 if no attempt has a log."`
	Offset     int64    `json:"offset" example:"4096" doc:"How many bytes of the log come before this text. If that is more than was requested, the bytes between were cut: the newest 64 KiB are kept."`
	Text       string   `json:"text" example:"page 3 of 12" doc:"What the handler wrote. Empty if nothing more was written yet."`
	NextOffset int64    `json:"next_offset" example:"4108" doc:"The offset to request what follows."`
}

// LogQuery selects the log of a run.
type LogQuery struct {
	_       struct{} `doc:"Selects the log of a run."`
	Attempt int      `json:"attempt,omitempty" min:"0" max:"1073741824" example:"1" doc:"Number of the attempt. 0 is the latest that has a log."`
	Offset  int64    `json:"offset,omitempty" min:"0" max:"1099511627776" example:"4096" doc:"How many bytes of the log to leave out."`
}
