package belfry

import (
	"encoding/json"
	"time"
)

// Manifest is a job as people declare it: what can be set when a job is created,
// replaced or edited.
type Manifest struct {
	_    struct{} `doc:"A job as it is declared. Fields that are left out have their defaults."`
	Name string   `json:"name,omitempty" maxlen:"200" example:"nightly-report" doc:"Name of the job, unique in its namespace. Every path accepts it in place of the id."`
	Tags []string `json:"tags,omitempty" maxitems:"20" example:"[\"billing\", \"reports\"]" doc:"Tags to find the job by; sorted, without duplicates."`
	Spec
	Payload json.RawMessage `json:"payload,omitempty" form:"HTTPPayload,CommandPayload,MessagePayload" example:"{\"url\": \"https://example.com/hooks/report\", \"body\": {\"format\": \"pdf\"}}" doc:"Input of the job: for type 'http' the request to make, for type 'command' the command to run, for 'message' the message to publish, otherwise any JSON that the handler expects. Values that look like secrets are shown as '***'; '***' in an edit keeps the stored value."`
	Status  JobStatus       `json:"status,omitempty" accept:"active,paused,scheduled" doc:"What the job is doing. In a request, 'paused' pauses the job and 'active' resumes it."`
}

// Job is a job as the server shows it.
type Job struct {
	_         struct{} `doc:"What to run and when."`
	ID        ID       `json:"job_id" example:"01a1de7a-fae0-7c1a-9f3e-2b6d8f4a1c55" doc:"Id of the job. Ids sort by time of creation."`
	Namespace string   `json:"namespace" example:"default" doc:"Namespace of the job."`
	Manifest
	Revision    int         `json:"revision" example:"3" doc:"Number of the revision. It grows with every edit of the spec or the payload; a run keeps the revision it was fired from."`
	NextRunAt   *time.Time  `json:"next_run_at" example:"2026-12-02T01:30:00Z" doc:"When the job runs next; null if nothing is planned."`
	LastRunAt   *time.Time  `json:"last_run_at" example:"2026-12-01T01:30:00Z" doc:"Scheduled time of the latest run; null before the first."`
	LastResult  *LastResult `json:"last_result,omitempty" doc:"What became of the latest run; missing before the first has an outcome."`
	Warnings    []string    `json:"warnings,omitempty" example:"[\"payload.url: the settings of this node do not allow 127.0.0.1 as a target; runs fail on nodes with the same settings. To allow it, start the nodes with --allow-target 127.0.0.1\"]" doc:"What may keep the job from running as declared. Missing without any, and in lists."`
	Quarantined string      `json:"quarantined,omitempty" doc:"Why the job cannot be fired at the moment. Firing is tried again regularly, and at once after an edit. Missing if it can be fired."`
	EndedAt     *time.Time  `json:"ended_at,omitempty" doc:"When a finished one-off was archived. An archived job can be shown, but not changed."`
	CreatedAt   time.Time   `json:"created_at" example:"2026-11-15T09:12:44.108Z" doc:"When the job was created."`
	UpdatedAt   time.Time   `json:"updated_at" example:"2026-11-20T16:03:10.551Z" doc:"When the job was last edited."`
	State       JobState    `json:"-"` // stored; Status is derived from it
}

// LastResult is what became of the latest run of a job that has an outcome.
type LastResult struct {
	_        struct{}     `doc:"What became of the latest run of a job that has an outcome."`
	Status   ResultStatus `json:"status" example:"failed" doc:"How the run ended, or that its attempts fail."`
	Failures int64        `json:"failures,omitempty" example:"3" doc:"How many attempts failed in a row, of this run and of earlier ones since the last success. Earlier runs are counted within seconds. Only if the run is 'failed' or 'dead'."`
	RunID    ID           `json:"run_id" example:"01a22f39-15c0-8d3b-a6c4-90e15f7b2d08" doc:"Id of the run."`
	At       time.Time    `json:"at" example:"2026-12-01T01:30:05.944Z" doc:"When the run ended, or its latest attempt failed."`
	Error    string       `json:"error,omitempty" example:"the target answered 503" doc:"Error of the latest attempt, at most 200 characters of it."`
}

// ResultStatus is how the latest run of a job ended.
type ResultStatus string

// The results.
const (
	ResultSucceeded ResultStatus = "succeeded"
	ResultFailed    ResultStatus = "failed"
	ResultDead      ResultStatus = "dead"
	ResultSkipped   ResultStatus = "skipped"
	ResultCancelled ResultStatus = "cancelled"
	ResultDiscarded ResultStatus = "discarded"
)

// EnumValues lists the results.
func (ResultStatus) EnumValues() []EnumValue {
	return []EnumValue{
		{"succeeded", "the run is done"},
		{"failed", "its attempts failed, and it is tried again"},
		{"dead", "the run is out of attempts: a dead letter"},
		{"skipped", "the occurrence did not run"},
		{"cancelled", "the run was cancelled by a user"},
		{"discarded", "the run was a dead letter that was discarded"},
	}
}

// Revision is how a job ran until it was edited, or runs now.
type Revision struct {
	_          struct{}   `doc:"Spec and payload of a job, as of one revision."`
	Number     int        `json:"revision" example:"2" doc:"Number of the revision."`
	ReplacedAt *time.Time `json:"replaced_at" example:"2026-11-20T16:03:10.551Z" doc:"When the next revision replaced it; null for the current one."`
	Spec
	Payload json.RawMessage `json:"payload,omitempty" doc:"Payload of the job. Values that look like secrets are shown as '***'."`
}

// JobDiff is what a dry run of a create, replacement or edit would do.
type JobDiff struct {
	_       struct{}      `doc:"What a dry run would do. Nothing is changed."`
	Result  DiffResult    `json:"result" example:"updated" doc:"What would happen."`
	Changes []FieldChange `json:"changes" doc:"The fields that would change; for a new job, those that are set."`
	Job     Job           `json:"job" doc:"The job as it would be."`
}

// FieldChange is one field that differs between two versions of a job.
type FieldChange struct {
	_     struct{}        `doc:"A field that would change."`
	Field string          `json:"field" example:"payload.body.format" doc:"Path of the field."`
	Old   json.RawMessage `json:"old,omitempty" example:"\"pdf\"" doc:"Value before; missing if it was unset. Secrets are shown as '***'."`
	New   json.RawMessage `json:"new,omitempty" example:"\"csv\"" doc:"Value after; missing if it is unset."`
}

// DiffResult is what a request would do to a job, or did.
type DiffResult string

// The results.
const (
	DiffCreated   DiffResult = "created"
	DiffUpdated   DiffResult = "updated"
	DiffUnchanged DiffResult = "unchanged"
)

// EnumValues lists the results.
func (DiffResult) EnumValues() []EnumValue {
	return []EnumValue{
		{"created", "the job does not exist and would be created"},
		{"updated", "the job would change"},
		{"unchanged", "the job is already as declared"},
	}
}

// ImportResult names the jobs that an import created.
type ImportResult struct {
	_        struct{} `doc:"The jobs that an import created."`
	Created  int      `json:"created" example:"2" doc:"How many jobs were created; with a dry run, would be."`
	JobIDs   []ID     `json:"job_ids" example:"[\"01a1de7a-fae0-7c1a-9f3e-2b6d8f4a1c55\", \"01a1de7a-fae0-7c1b-8e02-55d17c9b3a60\"]" doc:"Their ids, in the order of the body; none with a dry run."`
	Warnings []string `json:"warnings,omitempty" example:"[\"line 7.payload.url: the settings of this node do not allow 127.0.0.1 as a target; runs fail on nodes with the same settings. To allow it, start the nodes with --allow-target 127.0.0.1\"]" doc:"What may keep jobs from running as declared, each with its place in the body, at most 100. Missing without any, and in the answer to a repeated request with an idempotency key."`
}

// Rollback names a revision to return to.
type Rollback struct {
	_        struct{} `doc:"A rollback to an earlier revision."`
	Revision int      `json:"revision" required:"true" min:"1" example:"2" doc:"Number of the revision whose spec and payload the job gets again."`
}

// Resume says how a paused job continues.
type Resume struct {
	_       struct{} `doc:"How a paused job continues."`
	CatchUp bool     `json:"catch_up,omitempty" example:"true" doc:"Treat the occurrences during the pause as missed, and catch up as 'missed_window' says."`
}

// JobState is the stored state of a job; what people see is its JobStatus.
type JobState string

// The stored states.
const (
	JobActive  JobState = "active"
	JobPaused  JobState = "paused"
	JobDeleted JobState = "deleted" // only its history can be read
	JobEnded   JobState = "ended"   // an archived one-off: it can only be shown and deleted
)

// JobStatus is what a job is doing, derived from its state, plan and runs.
type JobStatus string

// The statuses. StatusActive is for requests only: the job is not paused. StatusFailing is
// for filters only: it says how a job fares, beside what it is doing.
const (
	StatusScheduled JobStatus = "scheduled"
	StatusQueued    JobStatus = "queued"
	StatusRunning   JobStatus = "running"
	StatusPaused    JobStatus = "paused"
	StatusCompleted JobStatus = "completed"
	StatusFailed    JobStatus = "failed"
	StatusCancelled JobStatus = "cancelled"
	StatusDeleted   JobStatus = "deleted"
	StatusActive    JobStatus = "active"
	StatusFailing   JobStatus = "failing"
)

// EnumValues lists the statuses that a job may have, and those that only filters have.
func (JobStatus) EnumValues() []EnumValue {
	return []EnumValue{
		{"scheduled", "waits for its next occurrence"},
		{"queued", "is due, or has a run, and waits for a worker"},
		{"running", "has a run that a worker executes"},
		{"paused", "does not fire until it is resumed"},
		{"completed", "nothing is planned, and its last run succeeded"},
		{"failed", "nothing is planned, and its last run is a dead letter or was discarded"},
		{"cancelled", "nothing is planned, and its last run or occurrence was cancelled or skipped"},
		{"deleted", "only its history is left, which can be read by the id of the job"},
		{"failing", "only in filters: its latest attempts failed and none has succeeded since, whatever else its status is"},
	}
}

// LiveRuns counts the live runs of a job.
type LiveRuns struct{ Running, Waiting int }

// StatusOf derives the status of a job at an instant. The last status is that of its
// latest settled run, empty if there is none. A job that is due waits for a worker: runs
// are created when one can take them.
func StatusOf(state JobState, next *time.Time, now time.Time, live LiveRuns, last RunStatus) JobStatus {
	switch {
	case state == JobDeleted:
		return StatusDeleted
	case state == JobPaused:
		return StatusPaused
	case live.Running > 0:
		return StatusRunning
	case live.Waiting > 0 || next != nil && !next.After(now):
		return StatusQueued
	case next != nil:
		return StatusScheduled
	case last == RunDead || last == RunDiscarded:
		return StatusFailed
	case last == RunSucceeded:
		return StatusCompleted
	default:
		return StatusCancelled
	}
}
