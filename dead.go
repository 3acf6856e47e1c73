package belfry

import (
	"encoding/json"
	"time"
)

// DeadLetter is a run out of attempts, with what is needed to decide about it.
type DeadLetter struct {
	_ struct{} `doc:"A run that is out of attempts."`
	Run
	JobRevision int             `json:"job_revision,omitempty" example:"4" doc:"Revision of the job now, which a redrive uses; missing if the job was deleted."`
	Fingerprint string          `json:"fingerprint" example:"3f9a0c51d2e87b46" doc:"The same for failures of the same kind."`
	Payload     json.RawMessage `json:"payload,omitempty" example:"{\"url\": \"https://example.com/hooks/report\", \"headers\": {\"Authorization\": \"***\"}}" doc:"Payload of the run. Values that look like secrets are shown as '***'. Not in lists."`
	HasPayload  bool            `json:"-"` // its payload was requested, and is not that of the job
}

// Edited reports whether the job was edited since the run was fired.
func (d *DeadLetter) Edited() bool { return d.JobRevision != 0 && d.JobRevision != d.Revision }

// DeadGroup is the dead letters whose failures are of the same kind.
type DeadGroup struct {
	_           struct{}  `doc:"The dead letters whose failures are of the same kind."`
	Fingerprint string    `json:"fingerprint" example:"3f9a0c51d2e87b46" doc:"What the failures have in common; a filter accepts it."`
	Count       int       `json:"count" example:"17" doc:"How many dead letters there are."`
	Jobs        int       `json:"jobs" example:"2" doc:"How many jobs they belong to."`
	Error       string    `json:"error" example:"the target answered 503" doc:"Error of the latest one."`
	HTTPStatus  int       `json:"http_status,omitempty" example:"503" doc:"HTTP status of the latest one."`
	FirstAt     time.Time `json:"first_at" example:"2026-11-30T01:31:12.020Z" doc:"When the first run died."`
	LastAt      time.Time `json:"last_at" example:"2026-12-01T01:30:05.944Z" doc:"When the latest run died."`
	LatestRunID ID        `json:"latest_run_id" example:"01a22f39-15c0-8d3b-a6c4-90e15f7b2d08" doc:"The run that died last."`
}

// DeadFilter selects dead letters. Zero fields match everything.
type DeadFilter struct {
	_           struct{}  `doc:"Selects dead letters. Fields that are left out match everything."`
	Job         string    `json:"job,omitempty" maxlen:"200" example:"nightly-report" doc:"Only dead letters of this job, by its id or name."`
	Since       time.Time `json:"since,omitzero" example:"2026-12-01T00:00:00Z" doc:"Only runs that died at this instant or later."`
	Until       time.Time `json:"until,omitzero" example:"2026-12-02T00:00:00Z" doc:"Only runs that died before this instant."`
	Error       string    `json:"error,omitempty" maxlen:"200" example:"503" doc:"Only runs with this text in the error of their last attempt, ignoring case."`
	Fingerprint string    `json:"fingerprint,omitempty" maxlen:"200" example:"3f9a0c51d2e87b46" doc:"Only failures of this kind."`
	Reason      Reason    `json:"reason,omitempty" enum:"out_of_retries,permanent,poison" example:"poison" doc:"Only runs that are dead for this reason."`
	JobID       ID        `json:"-"` // of Job, once it is resolved
	PageSize    int       `json:"-"` // dead letters per request of the client; zero is the server's choice
}

// Redrive says which dead letters run again, and how.
type Redrive struct {
	_      struct{}   `doc:"Which dead letters run again, and how."`
	Filter DeadFilter `json:"filter,omitzero" doc:"Which dead letters are meant. An empty filter needs 'all'."`
	All    bool       `json:"all,omitempty" doc:"Every dead letter of the namespace."`
	DryRun bool       `json:"dry_run,omitempty" doc:"Only count."`
	Limit  int        `json:"limit,omitempty" min:"1" max:"10000" implicit:"10000" doc:"How many at most, of those that died last."`
	RedriveOptions
	Rate  float64 `json:"rate,omitempty" min:"0.001" max:"1000" doc:"How many of them start per second. Default: all at once."`
	RunID ID      `json:"-"` // one dead letter instead of a filter
}

// RedriveOptions say how dead letters run again.
type RedriveOptions struct {
	_       struct{}        `doc:"How dead letters run again."`
	Payload json.RawMessage `json:"payload,omitempty" example:"{\"format\": \"csv\"}" doc:"Replaces the payload; only for the dead letters of one job. For the types 'http' and 'message' it is the body."`
	AsFired bool            `json:"as_fired,omitempty" doc:"Run as the job was when the run was fired. Default: as it is now, if it was edited since."`
}

// Discard says which dead letters are discarded.
type Discard struct {
	_      struct{}   `doc:"Which dead letters are discarded."`
	Filter DeadFilter `json:"filter,omitzero" doc:"Which dead letters are meant. An empty filter needs 'all'."`
	All    bool       `json:"all,omitempty" doc:"Every dead letter of the namespace."`
	DryRun bool       `json:"dry_run,omitempty" doc:"Only count."`
	Limit  int        `json:"limit,omitempty" min:"1" max:"10000" implicit:"10000" doc:"How many at most, of those that died last."`
	RunID  ID         `json:"-"` // one dead letter instead of a filter
}

// DeadResult is the result of a Redrive or a Discard.
type DeadResult struct {
	_       struct{}  `doc:"The result of a redrive or discard."`
	Matched int       `json:"matched" example:"17" doc:"How many dead letters matched."`
	Done    int       `json:"done" example:"17" doc:"How many were redriven or discarded; none in a dry run."`
	Edited  int       `json:"edited,omitempty" example:"3" doc:"How many of those that matched run as their job is now, because it was edited since they were fired."`
	More    bool      `json:"more" example:"false" doc:"More dead letters match: send the request again."`
	LastAt  time.Time `json:"last_at,omitzero" example:"2026-12-01T09:15:03.400Z" doc:"When the last redriven run may start."`
}
