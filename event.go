package belfry

import "time"

// Event is something that people should hear of although nobody asked for it.
type Event struct {
	ID        ID        `json:"id"` // computed: the same event has the same id
	Namespace string    `json:"namespace"`
	JobID     ID        `json:"job_id,omitzero"`
	Kind      EventKind `json:"kind"`
	At        time.Time `json:"at"`
	Message   string    `json:"message"`
	Count     int64     `json:"count,omitempty"` // of what the message is about
}

// EventKind says what an event is about.
type EventKind string

// EventCatchUp tells of more runs at once, for missed occurrences of one job, than
// the server finds usual.
const EventLargeCatchUp EventKind = "large_catch_up"
