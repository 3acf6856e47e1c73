package belfry

import "time"

// Decision says in a word what became of an instant.
type Decision string

// The decisions.
const (
	DecisionRan         Decision = "ran"
	DecisionRunning     Decision = "running"
	DecisionQueued      Decision = "queued"   // it waits for a worker
	DecisionRetrying    Decision = "retrying" // it waits for its next attempt
	DecisionWaiting     Decision = "waiting"  // it waits for an earlier run of the job
	DecisionDead        Decision = "dead"
	DecisionDiscarded   Decision = "discarded"
	DecisionSkipped     Decision = "skipped"
	DecisionCancelled   Decision = "cancelled"
	DecisionPlanned     Decision = "planned"
	DecisionDue         Decision = "due"     // it is about to be decided
	DecisionQuarantined Decision = "parked"  // it cannot be decided: the job cannot be fired
	DecisionPaused      Decision = "paused"  // it is not decided while the job is paused
	DecisionNone        Decision = "none"    // there is nothing to decide
	DecisionUnknown     Decision = "unknown" // what was decided is no longer known
)

// WhyRule is the rule that an instant is judged by.
type RuleSummary struct {
	Schedule    string `json:"schedule"`
	Resolved    string `json:"resolved_schedule,omitempty"`
	Timezone    string `json:"timezone"`
	Description string `json:"description"`
}

// WaitsFor is what a run waits for.
type Wait struct {
	What    WaitKind   `json:"what"`
	Queue   string     `json:"queue,omitempty"`
	Handler string     `json:"handler,omitempty"`
	Workers int        `json:"workers"`         // that serve the queue and handler
	Slots   int        `json:"slots"`           // of all of them
	Running int        `json:"running"`         // runs of the queue and handler that they hold
	Ahead   int        `json:"ahead"`           // ready runs that come first
	Until   *time.Time `json:"until,omitempty"` // when it may start
	Runs    []ID       `json:"runs,omitempty"`  // of the same job that come first, at most 10
}

// Awaited says in a word what a run waits for.
type WaitKind string

// What a run may wait for.
const (
	WaitForWorker WaitKind = "worker" // one that serves its queue and handler: there is none
	WaitForSlot   WaitKind = "slot"   // a free slot of a worker
	WaitForRun    WaitKind = "run"    // the end of an earlier run of its job
	WaitForTime   WaitKind = "time"   // an instant
)
