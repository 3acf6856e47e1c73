package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/belfry-sh/belfry"
)

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
