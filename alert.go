package belfry

import "time"

// Alert is something that people should know, from when it began until it is resolved.
type Alert struct {
	_              struct{}     `doc:"Something that people should know, from when it began until it is resolved."`
	ID             ID           `json:"alert_id" example:"01a22f39-15c0-7a11-b0c4-6d1e5f7b2d08" doc:"Id of the alert."`
	Namespace      string       `json:"namespace" example:"default" doc:"Namespace of the alert."`
	Channel        string       `json:"channel" example:"oncall" doc:"Name of the channel that is told."`
	Subscription   Subscription `json:"subscription" doc:"What the channel subscribed to."`
	Status         AlertStatus  `json:"status" example:"firing" doc:"Status of the alert."`
	StartedAt      time.Time    `json:"started_at" example:"2026-12-01T01:30:05Z" doc:"When it began."`
	LatestAt       time.Time    `json:"latest_at" example:"2026-12-01T01:31:05Z" doc:"When the latest of what it counts happened."`
	ResolvedAt     *time.Time   `json:"resolved_at,omitempty" doc:"When it ended."`
	AcknowledgedAt *time.Time   `json:"acknowledged_at,omitempty" doc:"When somebody acknowledged it; nothing is sent until it is resolved."`
	AcknowledgedBy string       `json:"acknowledged_by,omitempty" example:"ada" doc:"Who did."`
	Count          int64        `json:"count" example:"1000" doc:"How many runs, jobs or monitors it is about."`
	Message        string       `json:"message" example:"1,000 runs died: the target answered 503" doc:"The alert as a sentence."`
	Items          []AlertItem  `json:"items,omitempty" doc:"Some of them, at most 10."`
	URL            string       `json:"url,omitempty" example:"https://belfry.example.com/api/v1/alerts/01a22f39-15c0-7a11-b0c4-6d1e5f7b2d08" doc:"Address of the alert, in messages of a node that was started with --public-url."`
	SentAt         *time.Time   `json:"sent_at,omitempty" doc:"When the channel last accepted a message about it."`
	SentCount      int          `json:"sent_count,omitempty" example:"1" doc:"How many messages it accepted."`
}

// AlertItem is one of the runs, jobs or monitors of an alert.
type AlertItem struct {
	_           struct{}  `doc:"One of the runs, jobs or monitors of an alert."`
	JobID       ID        `json:"job_id,omitzero" example:"01a1de7a-fae0-7c1a-9f3e-2b6d8f4a1c55" doc:"Id of the job."`
	Name        string    `json:"name,omitempty" example:"nightly-report" doc:"Name of the job or monitor."`
	RunID       ID        `json:"run_id,omitzero" doc:"Id of the run, if there is one."`
	ScheduledAt time.Time `json:"scheduled_at,omitzero" example:"2026-12-01T01:30:00Z" doc:"The scheduled instant, or when a ping was expected."`
	Error       string    `json:"error,omitempty" example:"the target answered 503" doc:"What went wrong."`
	URL         string    `json:"url,omitempty" doc:"Address of the run, job or monitor, in messages of a node that was started with --public-url."`
}

// AlertStatus is the status of an alert.
type AlertStatus string

// The statuses of an alert.
const (
	AlertFiring       AlertStatus = "firing"
	AlertAcknowledged AlertStatus = "acknowledged"
	AlertResolved     AlertStatus = "resolved"
)

// EnumValues lists the statuses.
func (AlertStatus) EnumValues() []EnumValue {
	return []EnumValue{
		{"firing", "it goes on"},
		{"acknowledged", "it goes on, and somebody takes care"},
		{"resolved", "it is over"},
	}
}

// AlertFilter selects alerts.
type AlertFilter struct {
	_       struct{}    `doc:"Selects alerts."`
	Status  AlertStatus `json:"status" doc:"Only alerts with this status."`
	Channel string      `json:"channel" maxlen:"63" pattern:"^[a-z0-9][a-z0-9._-]{0,62}$" patterndoc:"must be the name of a channel" example:"oncall" doc:"Only alerts of this channel."`
}

// Acknowledgement says who takes care of an alert.
type Acknowledgement struct {
	_  struct{} `doc:"Who takes care of an alert."`
	By string   `json:"by,omitempty" maxlen:"200" example:"ada" doc:"Your name, for the others."`
}
