package belfry

import "time"

// Monitor watches something that Belfry does not run: whatever it is sends a ping each
// time, and an alert says when one is missing.
type Monitor struct {
	_            struct{} `doc:"Watches something that Belfry does not run: it sends a ping each time, and an alert says when one is missing."`
	Name         string   `json:"name,omitempty" required:"true" maxlen:"200" example:"backup" doc:"Name of the monitor."`
	EverySeconds int      `json:"every_seconds,omitempty" min:"10" max:"31622400" example:"86400" doc:"The longest time between two pings. Either this or 'cron'."`
	Cron         string   `json:"cron,omitempty" maxlen:"200" example:"0 3 * * *" doc:"When pings are expected, as a cron expression."`
	Timezone     string   `json:"timezone,omitempty" example:"Europe/Berlin" doc:"Time zone of 'cron'; UTC unless set."`
	GraceSeconds int      `json:"grace_seconds,omitempty" min:"1" max:"31622400" implicit:"3600" doc:"How much later a ping may come, or how long the work may take after a start ping."`
	Description  string   `json:"description,omitempty" maxlen:"1000" doc:"What it watches."`
	Tags         []string `json:"tags,omitempty" maxitems:"20" itemmaxlen:"64" doc:"Tags, for subscriptions and lists."`
	Paused       bool     `json:"paused,omitempty" doc:"Expect no pings."`

	ID         ID            `json:"monitor_id,omitzero" readonly:"true" doc:"Id of the monitor."`
	Namespace  string        `json:"namespace,omitempty" readonly:"true" example:"default" doc:"Namespace of the monitor."`
	Status     MonitorStatus `json:"status,omitempty" readonly:"true" example:"up" doc:"Status of the monitor."`
	PingURL    string        `json:"ping_url,omitempty" readonly:"true" doc:"Address to ping, with GET, HEAD or POST. Whoever knows it can ping; add /start at the beginning of the work, and /fail if it failed."`
	LastPingAt *time.Time    `json:"last_ping_at,omitempty" readonly:"true" doc:"When the last ping of a success came."`
	StartedAt  *time.Time    `json:"started_at,omitempty" readonly:"true" doc:"When the last start ping came, if none has followed it."`
	FailedAt   *time.Time    `json:"failed_at,omitempty" readonly:"true" doc:"When the last ping of a failure came, if none of a success has followed it."`
	DueAt      *time.Time    `json:"due_at,omitempty" readonly:"true" doc:"When the next ping is expected. It is late after the grace time."`
	CreatedAt  time.Time     `json:"created_at,omitzero" readonly:"true" doc:"When it was created."`
	UpdatedAt  time.Time     `json:"updated_at,omitzero" readonly:"true" doc:"When it was last changed."`

	Token   Token     `json:"-"` // who knows it may ping
	AlertAt time.Time `json:"-"` // from when on it is late or failed, unless a ping comes; zero: never
}

// DefaultGrace is the grace time of a monitor that sets none.
const DefaultGrace = time.Hour

// Grace is how much later than expected a ping may come.
func (m Monitor) Grace() time.Duration {
	if m.GraceSeconds == 0 {
		return DefaultGrace
	}
	return time.Duration(m.GraceSeconds) * time.Second
}

// StatusAt is the status at an instant.
func (m Monitor) StatusAt(now time.Time) MonitorStatus {
	switch {
	case m.Paused:
		return MonitorPaused
	case m.FailedAt != nil:
		return MonitorFailed
	case !m.AlertAt.IsZero() && !now.Before(m.AlertAt):
		return MonitorLate
	case m.LastPingAt == nil:
		return MonitorNew
	}
	return MonitorUp
}

// PingKind is what a ping says.
type PingKind string

// The kinds of pings.
const (
	PingSuccess PingKind = "success"
	PingStart   PingKind = "start"
	PingFail    PingKind = "fail"
)

// minPingInterval is the least time between two pings of one kind that are recorded.
const minPingInterval = time.Second

// Ping returns the monitor after a ping; false if it says the same as the one before, a
// moment ago. After a success or a failure the next ping is expected at next(now).
func (m Monitor) Ping(kind PingKind, now time.Time, next func(after time.Time) time.Time) (Monitor, bool) {
	last := map[PingKind]*time.Time{PingSuccess: m.LastPingAt, PingStart: m.StartedAt, PingFail: m.FailedAt}[kind]
	repeated := last != nil && now.Sub(*last) < minPingInterval && (kind == PingStart || m.StartedAt == nil && (kind == PingFail || m.FailedAt == nil))
	if repeated {
		return m, false
	}
	switch kind {
	case PingStart:
		m.StartedAt = &now
	case PingFail:
		m.FailedAt, m.StartedAt = &now, nil
	default:
		m.LastPingAt, m.FailedAt, m.StartedAt = &now, nil, nil
	}
	if kind != PingStart {
		m = m.Expect(next(now))
	}
	return m.withAlert(), true
}

// Expect returns the monitor with another instant at which the next ping is expected; zero:
// never.
func (m Monitor) Expect(due time.Time) Monitor {
	if m.DueAt = nil; !due.IsZero() {
		m.DueAt = &due
	}
	return m.withAlert()
}

// withAlert sets from when on the monitor is late or failed: a ping must come within the
// grace time after it is due and, once the work has started, after the start.
func (m Monitor) withAlert() Monitor {
	m.AlertAt = time.Time{}
	if m.Paused {
		return m
	}
	for _, from := range []*time.Time{m.DueAt, m.StartedAt} {
		if from != nil && (m.AlertAt.IsZero() || from.Add(m.Grace()).Before(m.AlertAt)) {
			m.AlertAt = from.Add(m.Grace())
		}
	}
	if m.FailedAt != nil {
		m.AlertAt = *m.FailedAt
	}
	return m
}

// MonitorStatus is the status of a monitor.
type MonitorStatus string

// The statuses of a monitor.
const (
	MonitorNew    MonitorStatus = "new"
	MonitorUp     MonitorStatus = "up"
	MonitorLate   MonitorStatus = "late"
	MonitorFailed MonitorStatus = "failed"
	MonitorPaused MonitorStatus = "paused"
)

// EnumValues lists the statuses.
func (MonitorStatus) EnumValues() []EnumValue {
	return []EnumValue{
		{"new", "it has had no ping"},
		{"up", "its last ping came in time"},
		{"late", "a ping is missing"},
		{"failed", "its last ping was one of a failure"},
		{"paused", "no pings are expected"},
	}
}
