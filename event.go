package belfry

import "time"

// Event is something that operators should know and that no request caused.
type Event struct {
	_         struct{}  `doc:"Something that operators should know."`
	ID        ID        `json:"event_id" example:"01a22f39-15c0-8a11-b0c4-6d1e5f7b2d08" doc:"Id of the event. Ids are in the order in which events were recorded."`
	Namespace string    `json:"namespace" example:"default" doc:"Namespace of the event."`
	JobID     ID        `json:"job_id,omitzero" example:"01a1de7a-fae0-7c1a-9f3e-2b6d8f4a1c55" doc:"The job, if the event is about one."`
	RunID     ID        `json:"run_id,omitzero" example:"01a22f39-15c0-8d2f-a6e1-93b7c5d0f412" doc:"The run, if the event is about one, or the latest of several."`
	Kind      EventKind `json:"kind" doc:"What happened."`
	At        time.Time `json:"at" example:"2026-12-01T01:30:00.004Z" doc:"When it happened."`
	Message   string    `json:"message" example:"40 runs catch up on what \"nightly-report\" missed" doc:"What happened, as a sentence."`
	Count     int64     `json:"count,omitempty" example:"40" doc:"How many, where the message counts something."`
}

// EventFilter selects events.
type EventFilter struct {
	_     struct{}  `doc:"Selects events. Fields that are left out match everything."`
	Kind  EventKind `json:"kind" example:"run_dead" doc:"Only events of this kind."`
	Job   string    `json:"job,omitempty" maxlen:"200" example:"nightly-report" doc:"Only events about this job, by its id or name."`
	JobID ID        `json:"-"` // of Job, once it is resolved
}

// EventKind is what an event is about.
type EventKind string

// The kinds of events.
const (
	EventLargeCatchUp    EventKind = "large_catch_up"   // more catch-up runs of one job at once than the server considers normal
	EventDatabaseRewound EventKind = "database_rewound" // the database has lost the newest part of what was written
	EventRunDead         EventKind = "run_dead"
	EventJobFailing      EventKind = "job_failing"
	EventJobRecovered    EventKind = "job_recovered"
	EventAlertOpened     EventKind = "alert_opened"
	EventAlertResolved   EventKind = "alert_resolved"
	EventNodeJoined      EventKind = "node_joined"
	EventNodeLeft        EventKind = "node_left"
	EventNodeLost        EventKind = "node_lost"
	EventShardsMoved     EventKind = "shards_moved"
)

// EnumValues lists the kinds.
func (EventKind) EnumValues() []EnumValue {
	return []EnumValue{
		{"large_catch_up", "many runs were created at once for missed occurrences"},
		{"database_rewound", "the database lost what was fired, and it was fired again"},
		{"run_dead", "runs of a job are out of attempts"},
		{"job_failing", "a job began to fail"},
		{"job_recovered", "a job that failed has succeeded"},
		{"alert_opened", "an alert for a channel began"},
		{"alert_resolved", "an alert for a channel is over"},
		{"node_joined", "a node of the cluster started"},
		{"node_left", "a node stopped"},
		{"node_lost", "a node disappeared without having stopped"},
		{"shards_moved", "a node took over shards"},
	}
}
