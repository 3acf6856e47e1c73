package belfry

import (
	"encoding/json"
	"time"
)

// Trigger asks for a run of a job now.
type Trigger struct {
	_       struct{}        `doc:"A run of a job now."`
	Payload json.RawMessage `json:"payload,omitempty" example:"{\"format\": \"csv\"}" doc:"Payload of this run. For type 'http' it replaces the body of the request, never its address; otherwise it replaces the payload of the job."`
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
