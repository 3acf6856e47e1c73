package belfry

import "time"

// Channel is where alerts are sent, and which ones.
type Channel struct {
	_               struct{}       `doc:"Where alerts are sent, and which ones."`
	Name            string         `json:"name" required:"true" pattern:"^[a-z0-9][a-z0-9._-]{0,62}$" patterndoc:"must be lower-case letters, digits, '.', '_' and '-', at most 63" example:"oncall" doc:"Name of the channel."`
	Type            ChannelType    `json:"type" required:"true" example:"slack" doc:"What kind of receiver it is."`
	URL             string         `json:"url,omitempty" maxlen:"2048" example:"https://hooks.slack.com/services/T0/B0/secret" doc:"Address of the receiver; for 'email' the mail server, as smtp://user:password@host:587 (STARTTLS) or smtps://user:password@host:465. For 'pagerduty' the address of its events API unless set. Shown without its secrets."`
	Secret          string         `json:"secret,omitempty" maxlen:"200" doc:"For 'webhook' the key that requests are signed with, as Standard Webhooks does (whsec_ and base64), made by the server unless set; for 'pagerduty' the routing key of the service. Never shown again."`
	From            string         `json:"from,omitempty" maxlen:"200" example:"belfry@example.com" doc:"Sender of an 'email'."`
	To              []string       `json:"to,omitempty" single:"true" maxitems:"20" itemmaxlen:"200" example:"[\"oncall@example.com\"]" doc:"Recipients of an 'email'."`
	Alerts          []Subscription `json:"alerts,omitempty" maxitems:"100" doc:"What the channel is told. Empty: dead letters of all jobs, and monitors that are late."`
	CooldownSeconds int            `json:"cooldown_seconds,omitempty" min:"10" max:"604800" implicit:"300" doc:"The least time between two messages about the same alert."`
	Paused          bool           `json:"paused,omitempty" doc:"Send nothing. Alerts are recorded all the same."`

	Namespace string     `json:"namespace,omitempty" readonly:"true" example:"default" doc:"Namespace of the channel."`
	CreatedAt time.Time  `json:"created_at,omitzero" readonly:"true" doc:"When it was created."`
	UpdatedAt time.Time  `json:"updated_at,omitzero" readonly:"true" doc:"When it was last changed."`
	SentAt    *time.Time `json:"sent_at,omitempty" readonly:"true" doc:"When the receiver last accepted a message."`
	Failures  int        `json:"failures,omitempty" readonly:"true" doc:"How many attempts to send failed since then. The next one comes after a growing pause."`
	Error     string     `json:"error,omitempty" readonly:"true" doc:"Why the last of them failed, or which recipients the last message was refused for."`
	NextTryAt *time.Time `json:"next_try_at,omitempty" readonly:"true" doc:"When a message is sent again, if the last attempt failed."`
}

// ChannelType is a kind of receiver.
type ChannelType string

// The types of channels.
const (
	ChannelWebhook   ChannelType = "webhook"
	ChannelSlack     ChannelType = "slack"
	ChannelEmail     ChannelType = "email"
	ChannelPagerDuty ChannelType = "pagerduty"
)

// EnumValues lists the types.
func (ChannelType) EnumValues() []EnumValue {
	return []EnumValue{
		{"webhook", "a signed POST request with the alert as JSON"},
		{"slack", "an incoming webhook of Slack, or of a service that accepts the same"},
		{"email", "a message through an SMTP server"},
		{"pagerduty", "an event of PagerDuty, which is resolved when the alert is"},
	}
}

// Subscription is one kind of alert that a channel is told, of a job, of the jobs with a
// tag, or of all jobs of the namespace.
type Subscription struct {
	_             struct{}  `doc:"One kind of alert, of a job, of the jobs with a tag, or of all jobs."`
	On            AlertKind `json:"on" required:"true" example:"failing" doc:"What to tell."`
	Job           string    `json:"job,omitempty" maxlen:"200" example:"payroll" doc:"Name of the job or monitor; unset: of all."`
	Tag           string    `json:"tag,omitempty" maxlen:"64" example:"finance" doc:"Only of jobs and monitors with this tag."`
	Count         int       `json:"count,omitempty" min:"1" max:"100000" example:"3" doc:"For 'failing' how many attempts failed in a row (3 unless set), for 'skipped' how many occurrences were skipped in a row (3), for 'dead' how many runs died 'within' a time (1)."`
	WithinSeconds int       `json:"within_seconds,omitempty" min:"1" max:"2592000" example:"3600" doc:"For 'not_started' and 'not_finished' the time after the scheduled instant (required), for 'slow' the longest duration (twice the usual p95 unless set), for 'lag' the longest wait of a due run (60 s), for 'dead' the time in which 'count' runs died (10 minutes)."`
}

// AlertKind is what an alert is about.
type AlertKind string

// The kinds of alerts.
const (
	AlertDead        AlertKind = "dead"
	AlertFailing     AlertKind = "failing"
	AlertRecovered   AlertKind = "recovered"
	AlertNotStarted  AlertKind = "not_started"
	AlertNotFinished AlertKind = "not_finished"
	AlertSlow        AlertKind = "slow"
	AlertSkipped     AlertKind = "skipped"
	AlertLag         AlertKind = "lag"
	AlertCatchUp     AlertKind = "large_catch_up"
	AlertMonitor     AlertKind = "monitor"
)

// AlertTest is the kind of the message that tests a channel. Nothing subscribes to it.
const AlertTest = AlertKind("test")

// Lasts reports whether an alert of the kind goes on until something ends it. The others say
// that something happened, and are not resolved.
func (k AlertKind) Lasts() bool { return k != AlertRecovered && k != AlertCatchUp && k != AlertTest }

// EnumValues lists the kinds that a channel can subscribe to.
func (AlertKind) EnumValues() []EnumValue {
	return []EnumValue{
		{"dead", "runs died and became dead letters"},
		{"failing", "attempts of a job failed several times in a row"},
		{"recovered", "a job that failed has succeeded"},
		{"not_started", "an occurrence did not start in time, for whatever reason"},
		{"not_finished", "an occurrence did not succeed in time, for whatever reason"},
		{"slow", "a run takes longer than usual"},
		{"skipped", "occurrences of a job were skipped several times in a row"},
		{"lag", "due runs wait too long"},
		{"large_catch_up", "many runs were created at once for missed occurrences"},
		{"monitor", "a monitor got no ping in time, or the ping of a failure"},
	}
}
