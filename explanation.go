package belfry

import "time"

// Explanation says what was decided for an instant of a job and why, or what is
// planned.
type Explanation struct {
	_        struct{}    `doc:"What was decided for an instant of a job and why, or what is planned."`
	At       time.Time   `json:"at" example:"2026-12-01T01:30:00Z" doc:"The instant."`
	Decision Decision    `json:"decision" example:"ran" doc:"What was decided."`
	Reason   Reason      `json:"reason,omitempty" doc:"Why it was skipped or is dead."`
	Sentence string      `json:"sentence" example:"2026-12-01 02:30 +01:00 ran: it succeeded in attempt 2." doc:"The answer as a sentence, with times in the time zone of the job."`
	Run      *Run        `json:"run,omitempty" doc:"The run, or the record of the skip."`
	Rule     RuleSummary `json:"rule" doc:"The schedule in force at that time."`
	Revision int         `json:"revision" example:"3" doc:"Revision of the job with that schedule."`
	Previous *time.Time  `json:"previous" example:"2026-11-30T01:30:00Z" doc:"The occurrence before the instant; null if there is none."`
	Next     *time.Time  `json:"next" example:"2026-12-02T01:30:00Z" doc:"The occurrence after the instant; null if there is none."`
	WaitsFor *Wait       `json:"waits_for,omitempty" doc:"What the run waits for, if it waits."`
}

// Decision is what was decided for an instant.
type Decision string

// The decisions.
const (
	DecisionRan         Decision = "ran"
	DecisionRunning     Decision = "running"
	DecisionQueued      Decision = "queued"
	DecisionRetrying    Decision = "retrying"
	DecisionWaiting     Decision = "waiting"
	DecisionDead        Decision = "dead"
	DecisionDiscarded   Decision = "discarded"
	DecisionSkipped     Decision = "skipped"
	DecisionCancelled   Decision = "cancelled"
	DecisionPlanned     Decision = "planned"
	DecisionDue         Decision = "due"
	DecisionQuarantined Decision = "quarantined"
	DecisionPaused      Decision = "paused"
	DecisionNone        Decision = "none"
	DecisionUnknown     Decision = "unknown"
)

// EnumValues lists the decisions.
func (Decision) EnumValues() []EnumValue {
	return []EnumValue{
		{"ran", "a run succeeded"},
		{"running", "its run is executing"},
		{"queued", "its run waits for a worker"},
		{"retrying", "its run waits for its next attempt"},
		{"waiting", "its run waits for an earlier run of the job"},
		{"dead", "its run is a dead letter"},
		{"discarded", "its run was a dead letter and was discarded"},
		{"skipped", "it did not run; the reason says why"},
		{"cancelled", "its run was cancelled"},
		{"planned", "it lies in the future"},
		{"due", "it is about to be decided"},
		{"quarantined", "the job cannot be fired at the moment"},
		{"paused", "it is not decided while the job is paused"},
		{"none", "the schedule has no such occurrence"},
		{"unknown", "the record was pruned"},
	}
}

// RuleSummary is the schedule that decided an instant.
type RuleSummary struct {
	_           struct{} `doc:"A schedule."`
	Schedule    string   `json:"schedule" example:"30 2 * * *" doc:"The schedule."`
	Resolved    string   `json:"resolved_schedule,omitempty" doc:"The schedule with every 'H' replaced by its value. Missing without an 'H'."`
	Timezone    string   `json:"timezone" example:"Europe/Paris" doc:"IANA time zone of the schedule."`
	Description string   `json:"description" example:"At 02:30 every day in Europe/Paris" doc:"The schedule as an English sentence."`
}

// Wait is what a run waits for.
type Wait struct {
	_       struct{}   `doc:"What a run waits for."`
	What    WaitKind   `json:"what" doc:"What it waits for."`
	Queue   string     `json:"queue,omitempty" doc:"Queue of the run."`
	Handler string     `json:"handler,omitempty" doc:"Handler of the run."`
	Workers int        `json:"workers" doc:"How many workers serve that queue and handler."`
	Slots   int        `json:"slots" doc:"How many runs those workers execute at a time."`
	Running int        `json:"running" doc:"How many runs of the queue and handler are executing."`
	Ahead   int        `json:"ahead" doc:"How many ready runs come first."`
	Until   *time.Time `json:"until,omitempty" doc:"When it may start."`
	RunIDs  []ID       `json:"run_ids,omitempty" doc:"Runs of the same job that come first, at most 10."`
}

// WaitKind is what a run may wait for.
type WaitKind string

// The kinds.
const (
	WaitForWorker WaitKind = "worker"
	WaitForSlot   WaitKind = "slot"
	WaitForRun    WaitKind = "run"
	WaitForTime   WaitKind = "time"
)

// EnumValues lists the kinds.
func (WaitKind) EnumValues() []EnumValue {
	return []EnumValue{
		{"worker", "a worker that serves its queue and handler; there is none"},
		{"slot", "a free slot of a worker"},
		{"run", "the end of an earlier run of its job"},
		{"time", "an instant"},
	}
}

// PreviewRequest is a schedule to preview.
type PreviewRequest struct {
	_          struct{}   `doc:"A schedule to preview."`
	Schedule   string     `json:"schedule" required:"true" example:"30 2 * * *" doc:"The schedule, as in a job."`
	Timezone   string     `json:"timezone,omitempty" example:"Europe/Paris" doc:"IANA time zone of the schedule. Default: the zone that the schedule itself names, otherwise UTC."`
	DSTGap     DSTGap     `json:"dst_gap,omitempty" doc:"What happens to a wall time that the clock skips."`
	DSTOverlap DSTOverlap `json:"dst_overlap,omitempty" zero:"auto" doc:"When a wall time runs that the clock shows twice."`
	StartsAt   time.Time  `json:"starts_at,omitzero" doc:"Nothing runs before this instant; intervals count from it."`
	EndsAt     time.Time  `json:"ends_at,omitzero" doc:"Nothing runs after this instant."`
	After      time.Time  `json:"after,omitzero" example:"2027-03-27T12:00:00Z" doc:"Only occurrences after this instant. Default: now."`
	Count      int        `json:"count,omitempty" min:"1" max:"1000" implicit:"10" example:"2" doc:"How many occurrences to list."`
	JobID      ID         `json:"-"` // for which 'H' is resolved
}

// Preview is what a schedule means.
type Preview struct {
	_ struct{} `doc:"What a schedule means."`
	RuleSummary
	StartsAt    time.Time    `json:"starts_at,omitzero" doc:"The start that was given, or what the schedule counts from if it has no start of its own."`
	ZoneVersion string       `json:"zone_version" example:"2025c" doc:"Release of the time-zone data."`
	Warnings    []string     `json:"warnings" example:"[\"28 Mar 2027 02:30 does not exist in Europe/Paris: runs 03:00\"]" doc:"What may be surprising, such as clock changes within a year."`
	Next        []Occurrence `json:"next" doc:"The occurrences, in order; fewer than 'count' if the schedule ends."`
}

// Occurrence is an instant of a schedule.
type Occurrence struct {
	_       struct{}  `doc:"An instant of a schedule."`
	At      time.Time `json:"at" example:"2027-03-28T01:00:00Z" doc:"The instant."`
	Local   string    `json:"local" example:"2027-03-28T03:00:00+02:00" doc:"Local time in the time zone of the schedule."`
	Weekday string    `json:"weekday" example:"Sunday" doc:"Local day of the week."`
	Note    string    `json:"note,omitempty" example:"02:30 does not exist that day: runs at 03:00" doc:"How a clock change affects it, if one does."`
}
