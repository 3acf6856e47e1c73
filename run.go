package belfry

import (
	"encoding/json"
	"fmt"
	"time"
)

// Run is one durable row for one occurrence or manual trigger. A run that a
// worker claimed also carries its payload, spec and token.
type Run struct {
	ID          ID        `json:"id"`
	JobID       ID        `json:"job_id"`
	Namespace   string    `json:"namespace"`
	Revision    int       `json:"revision"` // the revision of the job that it was fired from
	Kind        RunKind   `json:"kind"`
	Status      RunStatus `json:"status"`
	ScheduledAt time.Time `json:"scheduled_at"`      // nominal: identity, key and header
	ReadyAt     time.Time `json:"ready_at"`          // when it may start: nominal plus jitter, or the next retry
	FiredAt     time.Time `json:"fired_at,omitzero"` // unset while a trigger has only been asked for
	Attempt     int       `json:"attempt"`           // how often it was claimed

	StartedAt  *time.Time `json:"started_at"`  // of the latest attempt
	FinishedAt *time.Time `json:"finished_at"` // when it was settled
	WorkerID   ID         `json:"worker,omitzero"`

	HTTPStatus int    `json:"http_status,omitempty"`
	Output     string `json:"output,omitempty"`
	Error      string `json:"error,omitempty"`
	Reason     Reason `json:"reason,omitempty"` // why it was skipped or is dead

	CancelRequestedAt *time.Time `json:"cancel_asked_at,omitempty"` // of a run that its worker has not let go of yet

	// A skip of several occurrences in a row is one record of the first of
	// them: it reaches to SkippedTo and counts SkippedCount.
	SkippedTo    *time.Time `json:"skipped_to,omitempty"`
	SkippedCount int64      `json:"skipped_count,omitempty"`

	Attempts []Attempt `json:"attempts,omitempty"` // those that did not succeed, in order

	// Key is the idempotency key that the job's template gave; empty without one.
	TemplateKey string `json:"-"`
	given       string // the whole key, of a run that travelled

	// Set on a claimed run only; the name is not known to a run that was claimed
	// while it was fired.
	JobName    string          `json:"-"`
	Token      Token           `json:"-"`
	Payload    json.RawMessage `json:"-"`
	Spec       Spec            `json:"-"`
	DeadlineAt time.Time       `json:"-"`

	// Report is filled in by the handler while the attempt runs.
	Report Report `json:"-"`
}

// Report is what a handler has to tell of an attempt beyond its error.
type Report struct {
	HTTPStatus int
	Output     []byte // the first MaxOutput bytes are kept
}

// IdempotencyKey is the same in every attempt of a run, and in every run of the
// same occurrence that a restored database may make.
func (r *Run) IdempotencyKey() string {
	if r.given != "" {
		return r.given
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

// Kind says what made a run.
type RunKind string

// What may make a run.
const (
	KindScheduled RunKind = "scheduled"
	KindManual    RunKind = "manual"
	KindBackfill  RunKind = "backfill" // an instant of the schedule that somebody asked to have run, again or after all
)

// RunState is where a run is on its path. The first four are live; the others
// are final.
type RunStatus string

// The states of a run.
const (
	RunReady   RunStatus = "ready"   // may be claimed
	RunRunning RunStatus = "running" // a worker holds it
	RunRetry   RunStatus = "retry"   // waits for its next attempt
	RunWaiting RunStatus = "waiting" // waits for an earlier run of its job

	RunSucceeded RunStatus = "succeeded"
	RunDead      RunStatus = "dead" // out of attempts: a dead letter, which may be redriven
	RunSkipped   RunStatus = "skipped"
	RunCancelled RunStatus = "cancelled" // somebody cancelled it
	RunDiscarded RunStatus = "discarded" // a dead letter that somebody gave up
)

// Reason says why an occurrence was skipped or a run is dead.
type Reason string

// The reasons.
const (
	ReasonOverlap      Reason = "overlap"       // an earlier run was still alive
	ReasonQueueFull    Reason = "queue_full"    // as many runs as may wait were waiting for an earlier one
	ReasonMissed       Reason = "missed_window" // nobody was in charge at that instant
	ReasonMaxMissed    Reason = "max_missed"    // more were missed than are made up for
	ReasonPaused       Reason = "paused"        // the job was paused at that instant
	ReasonEdited       Reason = "edited"        // an edit took it from the schedule before it could start
	ReasonCancelled    Reason = "cancelled"     // the job was cancelled first
	ReasonDeleted      Reason = "deleted"       // the job was deleted first
	ReasonDuplicateKey Reason = "duplicate_key" // a run with the same idempotency key is alive, or succeeded lately
	ReasonDSTGap       Reason = "dst_gap"       // the clock skipped that wall time
	ReasonZoneChange   Reason = "zone_change"   // a newer zone database moved it to another instant
	ReasonOutOfRetries Reason = "out_of_retries"
	ReasonPermanent    Reason = "permanent" // a failure that no retry would change
	ReasonPoison       Reason = "poison"    // its workers were lost, time after time
)

// Attempt is one claim of a run by one worker that did not end in success.
type Attempt struct {
	Number     int       `json:"attempt"`
	Outcome    Outcome   `json:"outcome"`
	WorkerID   ID        `json:"worker"`
	StartedAt  time.Time `json:"started_at"`
	FinishedAt time.Time `json:"finished_at"`
	HTTPStatus int       `json:"http_status,omitempty"`
	Error      string    `json:"error,omitempty"`
	Output     string    `json:"output,omitempty"`

	// A result that came after the attempt was superseded. It changed nothing.
	LateOutcome Outcome    `json:"late_outcome,omitempty"`
	LateAt      *time.Time `json:"late_at,omitempty"`
}

// Outcome is how one attempt ended.
type Outcome string

// The ways an attempt may end.
const (
	OutcomeSucceeded   Outcome = "succeeded"
	OutcomeFailed      Outcome = "failed"
	OutcomeTimedOut    Outcome = "timed_out"
	OutcomeInterrupted Outcome = "interrupted" // handed back by a worker that shuts down
	OutcomeLost        Outcome = "lost"        // its worker fell silent
	OutcomeUnconfirmed Outcome = "unconfirmed" // claimed, but the worker never learned of it
	OutcomeSnoozed     Outcome = "snoozed"     // handed back until later, see Snooze
	OutcomeCancelled   Outcome = "cancelled"   // it ended because somebody cancelled the run
)

// Result is what became of an attempt. It is accepted only while the run is
// held by exactly this attempt: namespace, run, number and token.
type Result struct {
	Namespace  string  `json:"-"`
	RunID      ID      `json:"run_id"`
	Attempt    int     `json:"attempt"`
	Token      Token   `json:"token"`
	Outcome    Outcome `json:"outcome"`
	HTTPStatus int     `json:"http_status,omitempty"`
	Error      string  `json:"error,omitempty"`
	Output     []byte  `json:"-"` // travels as text

	// What the handler knows of another attempt: how long to wait before it, or that
	// it would be useless.
	RetryAfterSeconds float64 `json:"retry_after_seconds,omitempty"`
	Permanent         bool    `json:"permanent,omitempty"`
}

// Verdict says what a result did.
type Verdict string

// The verdicts.
const (
	VerdictAccepted Verdict = "accepted" // it decided the attempt, now or when it was sent before
	VerdictLate     Verdict = "late"     // the attempt was superseded; nothing changed
)
