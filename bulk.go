package belfry

// Action is what a bulk request does to jobs.
type Action string

// The actions.
const (
	ActionPause   Action = "pause"
	ActionResume  Action = "resume"
	ActionTrigger Action = "trigger"
	ActionDelete  Action = "delete"
	ActionCancel  Action = "cancel"
	ActionRetry   Action = "retry"
)

// EnumValues lists the actions.
func (Action) EnumValues() []EnumValue {
	return []EnumValue{
		{"pause", "stop the jobs from firing"},
		{"resume", "let paused jobs fire again"},
		{"trigger", "run the jobs now"},
		{"delete", "delete the jobs; live runs finish, and history is kept"},
		{"cancel", "cancel the live runs of the jobs and plan nothing more"},
		{"retry", "redrive the dead letters of the jobs"},
	}
}

// JobFilter selects jobs. Zero fields match everything.
type JobFilter struct {
	_        struct{}  `doc:"Selects jobs. Fields that are left out match everything."`
	Status   JobStatus `json:"status,omitempty" enum:"scheduled,queued,running,paused,completed,failed,cancelled,failing" example:"paused" doc:"Only jobs with this status. 'failing' selects jobs whose latest attempts failed, whatever else their status is; it is known within seconds."`
	Type     string    `json:"type,omitempty" enum:"http,worker,command,message" example:"http" doc:"Only jobs of this type."`
	Handler  string    `json:"handler,omitempty" maxlen:"200" example:"send-invoice" doc:"Only jobs with this handler."`
	Queue    string    `json:"queue,omitempty" maxlen:"200" example:"default" doc:"Only jobs in this queue."`
	Tags     []string  `json:"tags,omitempty" query:"tag" maxitems:"20" itemmaxlen:"200" example:"[\"billing\"]" doc:"Only jobs with this tag; if repeated, with all of them."`
	Search   string    `json:"search,omitempty" maxlen:"200" example:"report" doc:"Only jobs with this text in their name or description, ignoring case."`
	PageSize int       `json:"-"` // jobs per request of the client; zero is the server's choice
}

// Empty reports whether the filter matches every job.
func (f JobFilter) Empty() bool {
	return f.Status == "" && f.Type == "" && f.Handler == "" && f.Queue == "" && len(f.Tags) == 0 && f.Search == ""
}

// Bulk is an action on all jobs that match a filter.
type Bulk struct {
	_      struct{}  `doc:"An action on all jobs that match a filter."`
	Action Action    `json:"action" required:"true" doc:"What to do."`
	Filter JobFilter `json:"filter,omitzero" doc:"Which jobs are meant. An empty filter needs 'all'."`
	All    bool      `json:"all,omitempty" doc:"Every job of the namespace."`
	DryRun bool      `json:"dry_run,omitempty" doc:"Only count."`
	Limit  int       `json:"limit,omitempty" min:"1" max:"10000" implicit:"10000" doc:"How many jobs at most."`
	Cursor string    `json:"cursor,omitempty" doc:"Where to continue: 'next' of the answer before."`
}

// BulkResult is the result of one request of a bulk action.
type BulkResult struct {
	_       struct{}      `doc:"The result of a bulk action."`
	Matched int           `json:"matched" example:"213" doc:"How many jobs matched."`
	Done    int           `json:"done" example:"212" doc:"For how many the action succeeded; none in a dry run."`
	Failed  []BulkFailure `json:"failed" doc:"The jobs for which it failed."`
	Next    string        `json:"next,omitempty" doc:"The 'cursor' to continue with. Missing at the end."`
}

// BulkFailure is a job for which a bulk action failed.
type BulkFailure struct {
	_     struct{} `doc:"A job for which a bulk action failed."`
	JobID ID       `json:"job_id" example:"01a1de7a-fae0-7c1a-9f3e-2b6d8f4a1c55" doc:"Id of the job."`
	Name  string   `json:"name,omitempty" example:"nightly-report" doc:"Name of the job, if it has one."`
	Error string   `json:"error" example:"the job has ended; create it again" doc:"Why it failed."`
	Err   error    `json:"-"` // the failure with its cause, on the server
}
