package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/belfry-sh/belfry"
)

// Alerts keeps channels and what they are told.
type Alerts interface {
	// PutChannel creates or replaces a channel. What is pending and what failed before is
	// tried again at once.
	PutChannel(ctx context.Context, c belfry.Channel) (belfry.Channel, error)

	// DeleteChannel deletes a channel with its alerts; NotFound if there is none.
	DeleteChannel(ctx context.Context, namespace, name string) error

	// Channels lists the channels of a namespace by name, or all channels if it is empty.
	Channels(ctx context.Context, namespace string) ([]belfry.Channel, error)

	// SetChannelResult records how an attempt to send ended. After a failure the channel
	// rests for the pause. Without a pause the message was sent; a failure is then that of
	// some of its recipients.
	SetChannelResult(ctx context.Context, namespace, name, failure string, pause time.Duration) error

	// Alert returns an alert; NotFound if there is none.
	Alert(ctx context.Context, namespace string, id belfry.ID) (AlertRecord, error)

	// ListAlerts returns the alerts that match a filter, latest first.
	ListAlerts(ctx context.Context, namespace string, f belfry.AlertFilter, page Page) ([]belfry.Alert, error)

	// RecentAlerts returns the alerts that are not resolved, or that were about something
	// since the instant, of all namespaces.
	RecentAlerts(ctx context.Context, since time.Time) ([]AlertRecord, error)

	// SaveAlerts creates alerts whose version is zero, and replaces the others if they
	// have the version. Those that have another one, or whose key has an open alert, are
	// left out. It says how many were saved.
	SaveAlerts(ctx context.Context, alerts []AlertRecord) (int, error)

	// SetEvaluated records up to when everything was evaluated.
	SetEvaluated(ctx context.Context, at time.Time) error

	// Evaluated returns the instant that was recorded last; zero: there is none.
	Evaluated(ctx context.Context) (time.Time, error)

	// ClaimAlerts returns alerts with a message to send through a channel, the oldest first.
	// They are not returned again within the time, unless they are released or sent.
	ClaimAlerts(ctx context.Context, namespace, channel string, hold time.Duration, limit int) ([]AlertRecord, error)

	// ReleaseAlert ends a claim: the message could not be sent.
	ReleaseAlert(ctx context.Context, id belfry.ID) error

	// AlertSent records that the message of an alert with this version was accepted. If
	// the alert was saved since, that message is still to be sent.
	AlertSent(ctx context.Context, id belfry.ID, version int64) error
}

// AlertRecord is an alert with what its evaluation needs.
type AlertRecord struct {
	belfry.Alert
	Key          string      // the same for what is one alert of a channel
	Jobs         []belfry.ID // the jobs or monitors that it is about, at most MaxAlertJobs
	Version      int64
	SendAt       time.Time // when to send a message; zero: there is none
	ClaimedUntil time.Time // until then somebody sends it; zero: nobody does
}

// ChannelSpec is a channel as it is stored, without what the server adds.
func ChannelSpec(c belfry.Channel) string {
	c.Namespace, c.CreatedAt, c.UpdatedAt, c.SentAt, c.Failures, c.Error, c.NextTryAt = "", time.Time{}, time.Time{}, nil, 0, "", nil
	return string(belfry.MustJSON(c))
}

// NoSuchChannel is the error for a channel that does not exist.
func NoSuchChannel(name string) error {
	return belfry.Errorf(belfry.NotFound, "there is no channel %q", name)
}

// MaxAlertJobs is how many jobs of an alert are remembered.
const MaxAlertJobs = 1000

// Failures finds what alerts are about. Nothing of it is recorded for alerts alone: what it
// returns is read from runs, history and dead letters.
type Failures interface {
	// Failures returns the jobs of which an attempt failed since an instant and whose run
	// has not succeeded, with how many attempts failed since the last success.
	Failures(ctx context.Context, since time.Time, limit int) ([]Failure, error)

	// SetFailing records jobs as failing. It returns those that were not.
	SetFailing(ctx context.Context, failures []Failure) ([]Failure, error)

	// Recovered returns failing jobs that have succeeded since, or that do not exist any
	// more. It looks at a limited number of them, after the given one; the scan continues
	// after next, unless that is zero.
	Recovered(ctx context.Context, after belfry.ID, limit int) (recovered []Failure, next belfry.ID, err error)

	// EndFailing records that jobs are not failing any more, unless they have failed again.
	EndFailing(ctx context.Context, recovered []Failure) error

	// Deaths counts the runs that died since an instant and are dead letters, by job and
	// fingerprint, the latest group first.
	Deaths(ctx context.Context, since time.Time, limit int) ([]Death, error)

	// DeadRuns returns the dead letters whose scheduled instant is in a range, the earliest
	// first, each for itself. Other kinds than scheduled runs are left out.
	DeadRuns(ctx context.Context, from, to time.Time, limit int) ([]Death, error)

	// DeadLeft returns those causes of death of which there are dead letters.
	DeadLeft(ctx context.Context, causes []DeathCause) (map[DeathCause]bool, error)

	// Exceptions returns scheduled runs and skips that were settled after a position and did
	// not succeed, or not within a minute of their scheduled instant, the oldest first.
	Exceptions(ctx context.Context, after Position, limit int) ([]belfry.Run, error)

	// SkipsInARow counts for each job how many of its latest occurrences were skipped without
	// anybody having asked for it, up to the first that was not.
	SkipsInARow(ctx context.Context, jobs []belfry.ID) (map[belfry.ID]int64, error)

	// LateRuns returns live scheduled runs after the id that were scheduled before an instant,
	// the earliest first.
	LateRuns(ctx context.Context, after belfry.ID, before time.Time, limit int) ([]belfry.Run, error)

	// LongRuns returns runs that a worker has executed since before an instant, the oldest first.
	LongRuns(ctx context.Context, before time.Time, limit int) ([]belfry.Run, error)

	// LastSuccess returns when the latest occurrence of each job that succeeded was settled,
	// if that was after the instant.
	LastSuccess(ctx context.Context, jobs []belfry.ID, since time.Time) (map[belfry.ID]time.Time, error)

	// JobLabels returns what subscriptions select jobs by. Deleted jobs are left
	// out, archived ones are not.
	JobLabels(ctx context.Context, jobs []belfry.ID) (map[belfry.ID]JobLabels, error)
}

// Failure is a job whose last attempts failed.
type Failure struct {
	JobID       belfry.ID
	Namespace   string
	RunID       belfry.ID // of the latest failure
	Attempt     int       // the same; zero of a job that has recovered
	Since       time.Time
	LatestAt    time.Time
	SucceededAt time.Time // of a job that has recovered; zero if the job does not exist any more
	Count       int64     // attempts that failed since the last success
	Error       string
}

// Death is dead letters of a job with the same fingerprint.
type Death struct {
	JobID       belfry.ID
	Namespace   string
	Fingerprint string
	Count       int64
	LatestAt    time.Time
	RunID       belfry.ID // the latest of them
	Attempt     int       // of that
	ScheduledAt time.Time
	Reason      belfry.Reason
	Error       string
}

// DeathCause is what dead letters of a job have in common.
type DeathCause struct {
	JobID       belfry.ID
	Fingerprint string
}

// JobLabels is what subscriptions select a job by.
type JobLabels struct {
	Namespace, Name string
	Tags            []string
	Paused, Ended   bool
	Payload         json.RawMessage // whose secrets may be in errors; nil if it is larger than MaxLabelPayload
	LargePayload    bool
}

// MaxLabelPayload is how many bytes a payload may have that is read with labels.
const MaxLabelPayload = 8 << 10

// UnexpectedSkip is a condition on history: it was skipped without anybody having asked.
const UnexpectedSkip = `(state = 'skipped' AND reason IN ('overlap', 'queue_full', 'missed_window', 'max_missed'))`

// Events is what operators should know.
type Events interface {
	// ListEvents returns the events of a namespace that match a filter, latest first.
	ListEvents(ctx context.Context, namespace string, f belfry.EventFilter, page Page) ([]belfry.Event, error)

	// EventsAfter returns the events of all namespaces with a greater id, the oldest first.
	EventsAfter(ctx context.Context, after belfry.ID, limit int) ([]belfry.Event, error)

	// AddEvents records events, except those whose dedup id is known, and returns the ids of
	// those that it recorded, in their order.
	AddEvents(ctx context.Context, events []NewEvent) ([]belfry.ID, error)
}

// NewEvent is an event to record.
type NewEvent struct {
	belfry.Event
	Dedup belfry.ID // the same for the same event, whoever notices it

}

// Nodes is the processes of the cluster.
type Nodes interface {
	// KeepNode records that a node is alive. One that was lost starts again.
	KeepNode(ctx context.Context, n Node) error

	// EndNode records that a node has stopped.
	EndNode(ctx context.Context, id belfry.ID) error

	// Nodes lists the nodes that were alive within NodeRetention, the oldest first.
	Nodes(ctx context.Context) ([]Node, error)
}

// Node is a process of the cluster.
type Node struct {
	ID        belfry.ID
	Name      string // of its machine
	Address   string // where it listens
	Version   string
	Roles     []string
	Offset    time.Duration // of the store's clock from its own
	StartedAt time.Time     // this and the next two are by the store's clock, and set by the store
	SeenAt    time.Time
	LeftAt    *time.Time // nil: it has not stopped
}

// NodeRetention is how long nodes that are gone are kept.
const NodeRetention = 24 * time.Hour

// NodeTimeout is after how long without a sign of life a node is lost.
const NodeTimeout = 20 * time.Second

// Monitors is the monitors. Their status is derived by whoever shows it.
type Monitors interface {
	// CreateMonitor stores a monitor. A name that another monitor of the namespace has is
	// a Conflict that names it.
	CreateMonitor(ctx context.Context, m belfry.Monitor) error

	// Monitor returns a monitor; NotFound if there is none.
	Monitor(ctx context.Context, key MonitorKey) (belfry.Monitor, error)

	// ListMonitors returns the monitors of a namespace, newest first.
	ListMonitors(ctx context.Context, namespace string, page Page) ([]belfry.Monitor, error)

	// EditMonitor locks a monitor, asks edit what it becomes, and writes that; nil leaves
	// it as it is. An error of edit is returned as it is. NotFound if there is none, and
	// Conflict for a name that another one has.
	EditMonitor(ctx context.Context, key MonitorKey, edit EditMonitor) (belfry.Monitor, error)

	// DeleteMonitor deletes a monitor; NotFound if there is none.
	DeleteMonitor(ctx context.Context, namespace string, id belfry.ID) error

	// LateMonitors returns the monitors of all namespaces that are late or failed at an
	// instant, in the order of their names. It reads no others.
	LateMonitors(ctx context.Context, now time.Time, limit int) ([]belfry.Monitor, error)
}

// MonitorKey finds a monitor: by its token or, in a namespace, by its id or name. The first
// that is set counts.
type MonitorKey struct {
	Token     belfry.Token
	Namespace string
	ID        belfry.ID
	Name      string
}

// EditMonitor says what a monitor becomes at the store's time. It must be pure.
type EditMonitor func(m belfry.Monitor, now time.Time) (*belfry.Monitor, error)

// NoSuchMonitor is the error of a monitor that does not exist. It does not repeat a token.
func NoSuchMonitor(key MonitorKey) error {
	switch {
	case key.Token != belfry.Token{}:
		return belfry.Errorf(belfry.NotFound, "there is no monitor with this address")
	case !key.ID.IsZero():
		return NoSuch("monitor", key.ID)
	}
	return belfry.Errorf(belfry.NotFound, "there is no monitor named %.200q", key.Name)
}

// EncodeMonitor is the settings of a monitor as they are stored.
func EncodeMonitor(m belfry.Monitor) string {
	return string(belfry.MustJSON(belfry.Monitor{
		Name: m.Name, EverySeconds: m.EverySeconds, Cron: m.Cron, Timezone: m.Timezone, GraceSeconds: m.GraceSeconds,
		Description: m.Description, Tags: m.Tags, Paused: m.Paused,
	}))
}

// JSONColumn scans JSON into what To points to.
type JSONColumn struct{ To any }

// Scan decodes the JSON.
func (c JSONColumn) Scan(v any) error {
	text, ok := v.(string)
	if !ok {
		return fmt.Errorf("%T is not JSON", v)
	}
	return json.Unmarshal([]byte(text), c.To)
}
