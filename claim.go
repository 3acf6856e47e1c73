package belfry

import (
	"encoding/json"
	"time"
)

// Claim asks for runs on behalf of one worker incarnation.
type Claim struct {
	_           struct{}          `doc:"A request for runs."`
	WorkerID    ID                `json:"-"` // the incarnation: a new id every time a worker starts
	Lanes       []string          `json:"-"` // queues and handlers as the store names them, see Lane
	Slots       *Slots            `json:"-"` // of the worker, if the source is in its process
	Queues      []string          `json:"queue,omitempty" single:"true" maxitems:"20" implicit:"[\"default\"]" example:"[\"default\"]" doc:"Queues that the worker serves: a name, or a list of names."`
	Handlers    []string          `json:"handlers" required:"true" minitems:"1" maxitems:"200" example:"[\"send-invoice\"]" doc:"Handlers that the worker has."`
	Limit       int               `json:"limit,omitempty" min:"1" max:"1000" implicit:"1" example:"10" doc:"How many runs the worker has free slots for."`
	WaitSeconds Optional[float64] `json:"wait_seconds,omitzero" min:"0" max:"30" implicit:"20" example:"20" doc:"How long to wait for a run if none is ready."`
}

// ClaimReply is the runs that a worker now holds.
type ClaimReply struct {
	_    struct{}     `doc:"The runs that the worker now holds."`
	Runs []ClaimedRun `json:"runs" doc:"Up to 'limit' runs; none if the wait ended first."`
}

// HeartbeatInterval is how often a worker sends a heartbeat.
const HeartbeatInterval = 5 * time.Second

// Heartbeat reports that a worker is alive. The first one registers it.
type Heartbeat struct {
	_        struct{}      `doc:"A sign of life of a worker."`
	WorkerID ID            `json:"-"`
	Lanes    []string      `json:"-"` // queues and handlers as the store names them, see Lane
	Node     string        `json:"node,omitempty" maxlen:"200" example:"billing-1" doc:"Where the worker runs, for people."`
	Slots    int           `json:"slots,omitempty" min:"0" max:"100000" example:"10" doc:"How many runs the worker executes at a time."`
	Queues   []string      `json:"queue,omitempty" single:"true" maxitems:"20" implicit:"[\"default\"]" example:"[\"default\"]" doc:"Queues that the worker serves: a name, or a list of names."`
	Handlers []string      `json:"handlers,omitempty" maxitems:"200" example:"[\"send-invoice\"]" doc:"Handlers that the worker has."`
	Register bool          `json:"register,omitempty" example:"true" doc:"Registers the worker; set in its first heartbeat."`
	Leave    bool          `json:"leave,omitempty" doc:"Unregisters the worker; set in its last heartbeat, when it holds nothing."`
	Held     []HeldAttempt `json:"held,omitempty" maxitems:"10000" doc:"Every attempt that the worker holds. Used only with 'complete'."`
	Complete bool          `json:"complete,omitempty" doc:"'held' is complete: other claims of this worker, unless they are brand new, are released."`
	Sequence int64         `json:"sequence,omitempty" min:"0" example:"17" doc:"Grows with every heartbeat of the worker. A list that arrives after a later heartbeat is ignored: it is out of date."`
	Logs     []LogChunk    `json:"logs,omitempty" maxitems:"1000" doc:"What handlers wrote to their logs since the last heartbeat. A heartbeat may be sent every second for it."`
}

// HeldAttempt names an attempt that a worker believes it holds.
type HeldAttempt struct {
	_       struct{} `doc:"An attempt that a worker holds."`
	RunID   ID       `json:"run_id" required:"true" example:"01a22f39-15c0-8d3b-a6c4-90e15f7b2d08" doc:"Id of the run."`
	Attempt int      `json:"attempt" required:"true" min:"1" max:"1073741824" example:"1" doc:"Number of the attempt."`
}

// HeartbeatReply is the answer to a heartbeat.
type HeartbeatReply struct {
	_       struct{}      `doc:"The answer to a heartbeat."`
	Unknown bool          `json:"unknown" example:"false" doc:"The server does not know this worker any more: drop everything and register with a new id."`
	Lost    []HeldAttempt `json:"lost" example:"[]" doc:"Held attempts that this worker lost: stop them."`
	Cancel  []HeldAttempt `json:"cancel" example:"[]" doc:"Attempts of this worker whose runs were cancelled: stop them and report the outcome 'cancelled'."`
}

// ClaimedRun is a run as a remote worker receives it.
type ClaimedRun struct {
	_              struct{}        `doc:"A run as its worker receives it."`
	ID             ID              `json:"run_id" example:"01a22f39-15c0-8d3b-a6c4-90e15f7b2d08" doc:"Id of the run."`
	JobID          ID              `json:"job_id" example:"01a1de7a-fae0-7c1a-9f3e-2b6d8f4a1c55" doc:"Id of the job."`
	JobName        string          `json:"job_name,omitempty" example:"send-invoices" doc:"Name of the job, if it has one."`
	Namespace      string          `json:"namespace" example:"default" doc:"Namespace of the job."`
	Revision       int             `json:"revision" example:"3" doc:"Revision of the job that the run was fired from."`
	Kind           RunKind         `json:"kind" example:"scheduled" doc:"What created the run."`
	Queue          string          `json:"queue" example:"default" doc:"Queue of the run."`
	Handler        string          `json:"handler" example:"send-invoice" doc:"Handler that executes the run."`
	ScheduledAt    time.Time       `json:"scheduled_at" example:"2026-12-01T01:30:00Z" doc:"The occurrence of the schedule, or the time of the trigger."`
	ReadyAt        time.Time       `json:"ready_at" example:"2026-12-01T01:30:00Z" doc:"When the run was allowed to start."`
	FiredAt        time.Time       `json:"fired_at" example:"2026-12-01T01:30:00.004Z" doc:"When the run was created."`
	Attempt        int             `json:"attempt" example:"1" doc:"Number of this attempt; its result repeats it."`
	Token          Token           `json:"token" example:"9f86d081884c7d659a2feaa0c55ad015" doc:"Proves that this worker holds the attempt; its result repeats it."`
	IdempotencyKey string          `json:"idempotency_key" example:"01a1de7a-fae0-7c1a-9f3e-2b6d8f4a1c55:1796088600" doc:"The same in every attempt. Use it to make effects elsewhere happen once."`
	TimeoutSeconds int             `json:"timeout_seconds" example:"60" doc:"How long the attempt may take."`
	DeadlineAt     time.Time       `json:"deadline_at" example:"2026-12-01T01:31:05.310Z" doc:"When the server gives the run to another worker, by the server's clock."`
	Payload        json.RawMessage `json:"payload,omitempty" example:"{\"customer\": 4711}" doc:"Payload of the run, including secrets."`
	TraceContext
}

// Claimed is the form in which a claimed run travels.
func (r *Run) Claimed() ClaimedRun {
	c := ClaimedRun{
		ID: r.ID, JobID: r.JobID, JobName: r.JobName, Namespace: r.Namespace, Revision: r.Revision, Kind: r.Kind,
		Queue: r.Spec.Queue, Handler: r.Spec.HandlerName(), ScheduledAt: r.ScheduledAt, ReadyAt: r.ReadyAt, FiredAt: r.FiredAt,
		Attempt: r.Attempt, Token: r.Token, IdempotencyKey: r.Key(), TimeoutSeconds: r.Spec.TimeoutSeconds,
		DeadlineAt: r.DeadlineAt, Payload: r.Payload,
	}
	if r.Trace != nil {
		c.TraceContext = *r.Trace
	}
	return c
}

// Run is the run that a worker makes of what travelled. Its spec has only what a worker
// needs.
func (c ClaimedRun) Run(worker ID) *Run {
	r := &Run{
		ID: c.ID, JobID: c.JobID, JobName: c.JobName, Namespace: c.Namespace, Revision: c.Revision, Kind: c.Kind,
		Status: RunRunning, ScheduledAt: c.ScheduledAt, ReadyAt: c.ReadyAt, FiredAt: c.FiredAt, Attempt: c.Attempt,
		WorkerID: worker, Token: c.Token, Payload: c.Payload, DeadlineAt: c.DeadlineAt, IdempotencyKey: c.IdempotencyKey,
		Spec: Spec{Type: TypeWorker, Handler: c.Handler, Queue: c.Queue, TimeoutSeconds: c.TimeoutSeconds},
	}
	if c.Traceparent != "" {
		r.Trace = &c.TraceContext
	}
	return r
}

// FinishRequest reports results of attempts.
type FinishRequest struct {
	_       struct{} `doc:"Results of attempts."`
	Results []Result `json:"results" required:"true" minitems:"1" maxitems:"1000" doc:"One result for each attempt that ended."`
}

// FinishReply is a verdict for each result, in the same order.
type FinishReply struct {
	_        struct{}  `doc:"What each result did."`
	Verdicts []Verdict `json:"verdicts" doc:"One verdict for each result, in the same order."`
}

// Result is the result of an attempt. It is accepted only while the run is held by
// exactly this attempt: namespace, run, number and token.
type Result struct {
	_          struct{} `doc:"The result of one attempt."`
	Namespace  string   `json:"-"`
	RunID      ID       `json:"run_id" required:"true" example:"01a22f39-15c0-8d3b-a6c4-90e15f7b2d08" doc:"Id of the run."`
	Attempt    int      `json:"attempt" required:"true" min:"1" max:"1073741824" example:"1" doc:"Number of the attempt, as claimed."`
	Token      Token    `json:"token" required:"true" example:"9f86d081884c7d659a2feaa0c55ad015" doc:"Token of the attempt, as claimed."`
	Outcome    Outcome  `json:"outcome" required:"true" enum:"succeeded,failed,timed_out,interrupted,snoozed,cancelled" example:"succeeded" doc:"How the attempt ended."`
	HTTPStatus int      `json:"http_status,omitempty" min:"0" max:"999" doc:"HTTP status of the target, if the work was a request."`
	Error      string   `json:"error,omitempty" doc:"What went wrong; the first 8 KiB are kept."`
	Output     string   `json:"output,omitempty" example:"sent to 3 customers" doc:"Output of the handler; the first 64 KiB are kept."`
	Log        string   `json:"log,omitempty" example:"page 12 of 12" doc:"The whole log of the attempt, also what heartbeats have sent; the last 64 KiB are kept. Without it those parts are kept."`
	LogOffset  int64    `json:"log_offset,omitempty" min:"0" max:"1099511627776" doc:"How many bytes of the log were cut before 'log'."`

	RetryAfterSeconds float64 `json:"retry_after_seconds,omitempty" min:"0" max:"604800" doc:"How long to wait before the next attempt, at most 7 days, instead of the delay of the job. 0.001 is at once; 0 is the delay of the job."`
	Permanent         bool    `json:"permanent,omitempty" doc:"Retries cannot fix the failure: the run becomes a dead letter at once."`
}

// Verdict says what a result did.
type Verdict string

// The verdicts.
const (
	VerdictAccepted Verdict = "accepted"
	VerdictLate     Verdict = "late"
)

// EnumValues lists the verdicts.
func (Verdict) EnumValues() []EnumValue {
	return []EnumValue{
		{"accepted", "the result settled the attempt, now or when it was first sent"},
		{"late", "the attempt was superseded; nothing changed"},
	}
}
