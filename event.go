package belfry

import "time"

// Event is something that operators should know and that no request caused.
type Event struct {
	_         struct{}  `doc:"Something that operators should know."`
	ID        ID        `json:"event_id" example:"01a22f39-15c0-8a11-b0c4-6d1e5f7b2d08" doc:"Id of the event, computed from what happened: the same event has the same id."`
	Namespace string    `json:"namespace" example:"default" doc:"Namespace of the event."`
	JobID     ID        `json:"job_id,omitzero" example:"01a1de7a-fae0-7c1a-9f3e-2b6d8f4a1c55" doc:"The job, if the event is about one."`
	Kind      EventKind `json:"kind" doc:"What happened."`
	At        time.Time `json:"at" example:"2026-12-01T01:30:00.004Z" doc:"When it happened."`
	Message   string    `json:"message" example:"40 runs catch up on what \"nightly-report\" missed" doc:"What happened, as a sentence."`
	Count     int64     `json:"count,omitempty" example:"40" doc:"How many, where the message counts something."`
}

// EventKind is what an event is about.
type EventKind string

// The kinds of events.
const (
	EventLargeCatchUp    EventKind = "large_catch_up"   // more catch-up runs of one job at once than the server considers normal
	EventDatabaseRewound EventKind = "database_rewound" // the database has lost the newest part of what was written
)

// EnumValues lists the kinds.
func (EventKind) EnumValues() []EnumValue {
	return []EnumValue{
		{"large_catch_up", "many runs were created at once for missed occurrences"},
		{"database_rewound", "the database lost what was fired, and it was fired again"},
	}
}
