package belfry

import (
	"encoding/json"
	"time"
)

// ClaimedRun is a run as its worker gets it over HTTP.
type ClaimedRun struct {
	ID             ID              `json:"id"`
	JobID          ID              `json:"job_id"`
	JobName        string          `json:"job_name,omitempty"`
	Namespace      string          `json:"namespace"`
	Revision       int             `json:"revision"`
	Kind           RunKind         `json:"kind"`
	Queue          string          `json:"queue"`
	Handler        string          `json:"handler"`
	ScheduledAt    time.Time       `json:"scheduled_at"`
	ReadyAt        time.Time       `json:"ready_at"`
	FiredAt        time.Time       `json:"fired_at"`
	Attempt        int             `json:"attempt"`
	Token          Token           `json:"token"` // proves that the attempt is the worker's
	IdempotencyKey string          `json:"idempotency_key"`
	TimeoutSeconds int             `json:"timeout_seconds"`
	DeadlineAt     time.Time       `json:"deadline_at"` // by the server's clock; then the run is given to another
	Payload        json.RawMessage `json:"payload,omitempty"`
}

// Claimed is the form in which a claimed run travels.
func (r *Run) Claimed() ClaimedRun {
	return ClaimedRun{
		ID: r.ID, JobID: r.JobID, JobName: r.JobName, Namespace: r.Namespace, Revision: r.Revision, Kind: r.Kind,
		Queue: r.Spec.Queue, Handler: r.Spec.HandlerName(), ScheduledAt: r.ScheduledAt, ReadyAt: r.ReadyAt, FiredAt: r.FiredAt,
		Attempt: r.Attempt, Token: r.Token, IdempotencyKey: r.IdempotencyKey(), TimeoutSeconds: r.Spec.TimeoutSeconds,
		DeadlineAt: r.DeadlineAt, Payload: r.Payload,
	}
}

// Run is the run that a worker makes of what travelled. Its spec has only what a
// worker needs; the key is the whole one, whatever the kind of run.
func (c ClaimedRun) Run(worker ID) *Run {
	return &Run{
		ID: c.ID, JobID: c.JobID, JobName: c.JobName, Namespace: c.Namespace, Revision: c.Revision, Kind: c.Kind,
		Status: RunRunning, ScheduledAt: c.ScheduledAt, ReadyAt: c.ReadyAt, FiredAt: c.FiredAt, Attempt: c.Attempt,
		WorkerID: worker, Token: c.Token, Payload: c.Payload, DeadlineAt: c.DeadlineAt, given: c.IdempotencyKey,
		Spec: Spec{Type: TypeWorker, Handler: c.Handler, Queue: c.Queue, TimeoutSeconds: c.TimeoutSeconds},
	}
}
