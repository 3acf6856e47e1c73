package belfry

import (
	"encoding/json"
	"time"
)

// Job is what to run and when, as people see it.
type Job struct {
	ID        ID        `json:"id"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name,omitempty"`
	Tags      []string  `json:"tags,omitempty"` // sorted, each once
	Revision  int       `json:"revision"`       // grows with every edit of spec or payload
	Status    JobStatus `json:"status"`         // derived when the job is read
	State     JobState  `json:"-"`              // what is stored
	Spec
	Payload     json.RawMessage `json:"payload,omitempty"`
	NextRunAt   *time.Time      `json:"next_run_at"`
	LastRunAt   *time.Time      `json:"last_run_at"`        // scheduled instant of the latest run
	Quarantined string          `json:"parked,omitempty"`   // why it cannot be fired for now; it is tried again from time to time
	EndedAt     *time.Time      `json:"ended_at,omitempty"` // when a one-off that is over left the live tables
	CreatedAt   time.Time       `json:"created_at"`
	UpdatedAt   time.Time       `json:"updated_at"`
}

// Spec is how a job wants to be run: everything but its name, tags and payload. Jobs
// with equal specs share one parsed rule in a scheduler's memory. Its JSON form
// is both what is stored and what people see.
type Spec struct {
	Type             string       `json:"type"`
	Handler          string       `json:"handler,omitempty"` // of a job of type worker
	Schedule         string       `json:"schedule"`
	Resolved         string       `json:"resolved_schedule,omitempty"` // the schedule with every H replaced
	Timezone         string       `json:"timezone"`
	DSTGap           DSTGap       `json:"dst_gap,omitempty"`
	DSTOverlap       DSTOverlap   `json:"dst_overlap,omitempty"`
	StartsAt         time.Time    `json:"starts_at,omitzero"`       // no occurrence before; what intervals are counted from
	EndsAt           time.Time    `json:"ends_at,omitzero"`         // no occurrence after
	MaxRuns          int          `json:"max_runs,omitempty"`       // scheduled runs in all; 0: no limit
	JitterSeconds    int          `json:"jitter_seconds,omitempty"` // how much later than its occurrence a run may start
	MissedWindow     MissedWindow `json:"missed_window"`
	MaxMissed        int          `json:"max_missed,omitempty"`              // see MissedLimit
	CatchUpSeconds   int          `json:"catch_up_window_seconds,omitempty"` // how old an occurrence may be to be made up for; 0: as the server says
	Queue            string       `json:"queue"`
	Priority         Priority     `json:"priority"`
	Overlap          Overlap      `json:"overlap"`
	MaxQueued        int          `json:"max_queued,omitempty"` // see QueueLimit
	TimeoutSeconds   int          `json:"timeout_seconds"`
	MaxRetries       int          `json:"max_retries"`
	RetryOn          RetryOn      `json:"retry_on,omitempty"`
	RetryBackoff     Backoff      `json:"retry_backoff"`
	RetryBaseSeconds float64      `json:"retry_base_seconds"`
	RetryCapSeconds  float64      `json:"retry_cap_seconds"`
	RetryJitter      float64      `json:"retry_jitter"`
	RetryDelays      Delays       `json:"retry_delays,omitempty"`   // with BackoffList
	RetentionDays    int          `json:"retention_days,omitempty"` // of the history of its runs; 0: as the server says

	IdempotencyKeyTemplate string `json:"idempotency_key_template,omitempty"` // see KeyTemplate
}

// DefaultSpec is the spec of a job that asks for nothing special.
func DefaultSpec() Spec {
	return Spec{
		Timezone:         "UTC",
		MissedWindow:     MissedRunOnce,
		Queue:            DefaultQueue,
		Overlap:          OverlapSkip,
		TimeoutSeconds:   60,
		MaxRetries:       3,
		RetryBackoff:     BackoffExponential,
		RetryBaseSeconds: 5,
		RetryCapSeconds:  30 * 60,
		RetryJitter:      0.25,
	}
}

// HandlerName is the handler that runs a job with this spec: its type, or for
// type worker the one that it names.
func (s Spec) HandlerName() string {
	if s.Type == TypeWorker {
		return s.Handler
	}
	return s.Type
}

// Lane is what a worker must serve to be given the runs of a job with this spec:
// a queue and a handler, and for a user's own handler the namespace too.
func (s Spec) Lane(namespace string) string {
	if s.Type == TypeWorker {
		return NamespaceLane(namespace, Lane(s.Queue, s.Handler))
	}
	return Lane(s.Queue, s.Type)
}

// Lane is a handler in a queue, as a worker asks for it.
func Lane(queue, handler string) string { return queue + "/" + handler }

// OwnLane is a lane of users' own handlers. Other namespaces have others of the
// same name, while the built-in handlers serve all namespaces alike.
func NamespaceLane(namespace, lane string) string { return namespace + ":" + lane }

// Timeout bounds one attempt.
func (s Spec) Timeout() time.Duration { return time.Duration(s.TimeoutSeconds) * time.Second }

// Retry gives the spec's retry policy.
func (s Spec) Retry() Retry {
	return Retry{
		Max:     s.MaxRetries,
		Backoff: s.RetryBackoff,
		On:      s.RetryOn,
		Base:    time.Duration(s.RetryBaseSeconds * float64(time.Second)),
		Cap:     time.Duration(s.RetryCapSeconds * float64(time.Second)),
		Jitter:  s.RetryJitter,
		Delays:  s.RetryDelays,
	}
}

// The types of a job: what its runs are.
const (
	TypeHTTP   = "http"   // HTTP requests
	TypeWorker = "worker" // calls of a handler in a program of the user's own
)

// ReservedHandlers are the names that no handler of a user's own may have.
var ReservedHandlers = []string{TypeHTTP, "message", "command", TypeWorker}

// MissedWindow says what becomes of occurrences at which nobody was in charge.
type MissedWindow string

// The ways to deal with them. A one-off that was missed runs unless it says skip.
const (
	MissedSkip    MissedWindow = "skip"     // none of them runs
	MissedRunOnce MissedWindow = "run_once" // one run, for the latest
	MissedRunAll  MissedWindow = "run_all"  // a run for each of the newest, oldest first, one after another
)

// MissedLimit is how many runs make up for missed occurrences at most, where each
// is made up for.
func (s Spec) MissedLimit() int {
	if s.MaxMissed == 0 {
		return DefaultMaxMissed
	}
	return s.MaxMissed
}

// What a spec means that does not say how many.
const (
	DefaultMaxMissed = 100
	DefaultMaxQueued = 100
)

// DSTGap says what becomes of a wall time that the clock skips. Unset, it follows
// the missed window.
type DSTGap string

// The ways out of a gap.
const (
	GapRun  DSTGap = "run"  // when the gap ends, unless a later time of the rule covers it
	GapSkip DSTGap = "skip" // not at all, which is recorded
)

// SkipsGap tells whether wall times that the clock skips do not run.
func (s Spec) SkipsGap() bool {
	return s.DSTGap == GapSkip || s.DSTGap == "" && s.MissedWindow == MissedSkip
}

// DSTOverlap says at which instants a wall time runs that the clock shows twice.
type DSTOverlap string

// The ways through an overlap.
const (
	DSTAuto  DSTOverlap = ""      // both for rules like "every 15 minutes", the first for others
	DSTFirst DSTOverlap = "first" // the first
	DSTBoth  DSTOverlap = "both"  // both
)

// Overlap says what happens to an occurrence, or to a run that somebody asks for,
// while an earlier run of its job is still alive.
type Overlap string

// The ways to overlap.
const (
	OverlapSkip     Overlap = "skip"     // record a skip
	OverlapQueue    Overlap = "queue"    // wait for it; if too many wait already, record a skip
	OverlapParallel Overlap = "parallel" // run beside it
)

// Serial tells whether the runs of a job follow one after another: at most one of
// its live runs is not waiting for another.
func (s Spec) Serial() bool { return s.Overlap != OverlapParallel }

// QueueLimit is how many runs of a job may wait for an earlier one.
func (s Spec) QueueLimit() int {
	switch {
	case s.Overlap != OverlapQueue:
		return 0
	case s.MaxQueued == 0:
		return DefaultMaxQueued
	}
	return s.MaxQueued
}

// JobState is the stored state of a job; what people see is its Status.
type JobState string

// The stored states.
const (
	JobActive  JobState = "active"
	JobPaused  JobState = "paused"
	JobDeleted JobState = "deleted" // invisible; kept while runs need it
	JobEnded   JobState = "ended"   // a one-off that is over and has left the live tables; it can be looked at, and nothing else
)

// Status is what a job is doing, derived from its state, plan and runs.
type JobStatus string

// What a job may be doing.
const (
	StatusScheduled JobStatus = "scheduled" // waits for its next occurrence
	StatusQueued    JobStatus = "queued"    // has a run that waits for a worker
	StatusRunning   JobStatus = "running"   // has a run that a worker holds
	StatusPaused    JobStatus = "paused"
	StatusCompleted JobStatus = "completed" // nothing planned; its last run succeeded
	StatusFailed    JobStatus = "failed"    // nothing planned; its last run is a dead letter
	StatusCancelled JobStatus = "cancelled" // nothing planned; its last occurrence was not run
)

// Live counts the live runs of a job.
type LiveRuns struct{ Running, Waiting int }

// StatusOf derives a job's status. The last outcome is that of its latest
// settled run, empty when there is none.
func StatusOf(state JobState, planned bool, live LiveRuns, last RunStatus) JobStatus {
	switch {
	case state == JobPaused:
		return StatusPaused
	case live.Running > 0:
		return StatusRunning
	case live.Waiting > 0:
		return StatusQueued
	case planned:
		return StatusScheduled
	case last == RunDead || last == RunDiscarded:
		return StatusFailed
	case last == RunSucceeded:
		return StatusCompleted
	default:
		return StatusCancelled
	}
}
