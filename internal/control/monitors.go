package control

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/validate"
)

// MonitorPatch changes the settings of a monitor, and returns what was wrong with the change.
type MonitorPatch func(m *belfry.Monitor) []belfry.FieldError

func monitorEntry(action belfry.AuditAction, m belfry.Monitor) belfry.AuditEntry {
	return objectEntry(action, belfry.AuditMonitor, m.Namespace, m.ID.String(), m.Name)
}

func monitorChange(before, after *belfry.Monitor) (_, _ []byte) {
	return auditChange(auditFields(before, after, store.EncodeMonitor, func(m belfry.Monitor) belfry.Monitor { return m }))
}

// monitorKey finds a monitor by its id or name.
func monitorKey(namespace, ref string) store.MonitorKey {
	if id, err := belfry.ParseID(ref); err == nil {
		return store.MonitorKey{Namespace: namespace, ID: id}
	}
	return store.MonitorKey{Namespace: namespace, Name: strings.TrimSpace(ref)}
}

func (c *Control) monitor(ctx context.Context, key store.MonitorKey) (belfry.Monitor, error) {
	return retryRead(ctx, "look up a monitor", func() (belfry.Monitor, error) { return c.store.Monitor(ctx, key) })
}

// shownMonitor adds what is derived.
func (c *Control) shownMonitor(m belfry.Monitor, err error) (belfry.Monitor, error) {
	if err == nil {
		m.Status = m.StatusAt(c.now())
	}
	return m, err
}

// validMonitor applies a patch and validates the result. Next is when pings are expected.
func (c *Control) validMonitor(ctx context.Context, m belfry.Monitor, patch MonitorPatch) (_ belfry.Monitor, next func(time.Time) time.Time, err error) {
	failed := patch(&m)
	err = c.computing.do(ctx, func() error {
		if m, failed = validate.Monitor(m, c.now(), failed); len(failed) > 0 {
			return invalid("the monitor is not valid", failed)
		}
		next, err = validate.MonitorSchedule(m)
		return err
	})
	return m, next, err
}

// CreateMonitor stores a new monitor. A name that is taken is a Conflict.
func (c *Control) CreateMonitor(ctx context.Context, namespace string, patch MonitorPatch) (belfry.Monitor, error) {
	now := c.now()
	m := belfry.Monitor{ID: belfry.NewID(now), Namespace: namespace, Token: belfry.NewToken(), CreatedAt: now, UpdatedAt: now}
	m, _, err := c.validMonitor(ctx, m, patch)
	if err == nil {
		ctx, audit := c.audited(ctx, monitorEntry(belfry.AuditCreate, m))
		audit.SetChange(monitorChange(nil, &m))
		err = retryUnknown(ctx, "create a monitor", func() error { return c.store.CreateMonitor(ctx, m) })
	}
	return c.shownMonitor(m, err)
}

// Monitor finds a monitor by its id or name.
func (c *Control) Monitor(ctx context.Context, namespace, ref string) (belfry.Monitor, error) {
	return c.shownMonitor(c.monitor(ctx, monitorKey(namespace, ref)))
}

// ListMonitors returns the monitors of a namespace, newest first.
func (c *Control) ListMonitors(ctx context.Context, namespace string, p store.Page) ([]belfry.Monitor, store.Position, error) {
	list, next, err := readPage(ctx, "list monitors", p, func(p store.Page) ([]belfry.Monitor, error) { return c.store.ListMonitors(ctx, namespace, p) },
		func(m belfry.Monitor) store.Position { return store.Position{ID: m.ID} })
	for i := range list {
		list[i], _ = c.shownMonitor(list[i], nil)
	}
	return list, next, err
}

// PutMonitor creates the monitor of a name, or replaces the settings of the one that a name
// or id finds.
func (c *Control) PutMonitor(ctx context.Context, namespace, ref string, settings MonitorPatch) (m belfry.Monitor, created bool, err error) {
	key := monitorKey(namespace, ref)
	replace := func(m *belfry.Monitor) []belfry.FieldError {
		*m = belfry.Monitor{ID: m.ID, Namespace: m.Namespace, Token: m.Token, Name: cmp.Or(key.Name, m.Name), CreatedAt: m.CreatedAt, UpdatedAt: m.UpdatedAt}
		failed := settings(m)
		if key.Name != "" && m.Name != key.Name {
			failed = append(failed, belfry.FieldError{Field: "name", Message: "is not the name in the path; leave it out, or rename the monitor with PATCH"})
		}
		return failed
	}
	m, err = c.EditMonitor(ctx, namespace, ref, replace)
	if !isNotFound(err) || !key.ID.IsZero() {
		return m, false, err
	}
	m, err = c.CreateMonitor(ctx, namespace, replace)
	return m, err == nil, err
}

// errStale says that a monitor is no longer what an edit was prepared for, however often.
var errStale = belfry.Errorf(belfry.Conflict, "the monitor is being changed by others; try again")

const maxPrepared = 6 // times that an edit is prepared

// EditMonitor changes the settings of a monitor. If its schedule changes or it is resumed, the
// next ping is expected from then on.
func (c *Control) EditMonitor(ctx context.Context, namespace, ref string, patch MonitorPatch) (belfry.Monitor, error) {
	return c.editMonitor(ctx, monitorKey(namespace, ref), func(before belfry.Monitor) (store.EditMonitor, error) {
		settings, next, err := c.validMonitor(ctx, before, patch)
		if err != nil {
			return nil, err
		}
		normalized := store.EncodeMonitor(settings)
		return func(m belfry.Monitor, now time.Time) (*belfry.Monitor, error) {
			switch current := store.EncodeMonitor(m); {
			case current == normalized:
				return nil, nil
			case current != store.EncodeMonitor(before):
				return nil, errStale
			}
			due := time.Time{}
			if m.DueAt != nil {
				due = *m.DueAt
				if m.EverySeconds != settings.EverySeconds || m.Cron != settings.Cron || m.Timezone != settings.Timezone || m.Paused && !settings.Paused {
					due = next(now)
				}
			}
			if m.Paused && !settings.Paused {
				m.StartedAt = nil // The work that began before the pause is not waited for.
			}
			m.Name, m.Description, m.Tags, m.Paused = settings.Name, settings.Description, settings.Tags, settings.Paused
			m.EverySeconds, m.Cron, m.Timezone, m.GraceSeconds = settings.EverySeconds, settings.Cron, settings.Timezone, settings.GraceSeconds
			m.UpdatedAt = now
			return new(m.Expect(due)), nil
		}, nil
	})
}

// editMonitor prepares an edit for a monitor as it was read, and again if it has changed when
// it is locked: nothing is parsed under the lock.
func (c *Control) editMonitor(ctx context.Context, key store.MonitorKey, prepare func(before belfry.Monitor) (store.EditMonitor, error)) (belfry.Monitor, error) {
	for range maxPrepared {
		before, err := c.monitor(ctx, key)
		if err != nil {
			return before, err
		}
		edit, err := prepare(before)
		if err != nil || edit == nil {
			return before, err
		}
		write, audit := c.audited(ctx, monitorEntry(belfry.AuditEdit, before))
		m, err := retryRead(ctx, "edit a monitor", func() (belfry.Monitor, error) {
			return c.store.EditMonitor(write, store.MonitorKey{Namespace: before.Namespace, ID: before.ID}, func(m belfry.Monitor, now time.Time) (*belfry.Monitor, error) {
				audit.Set()
				to, err := edit(m, now)
				if to != nil && audit != nil {
					audit.SetChange(monitorChange(&m, to))
				}
				return to, err
			})
		})
		if !errors.Is(err, errStale) {
			return c.shownMonitor(m, err)
		}
	}
	return belfry.Monitor{}, errStale
}

// DeleteMonitor deletes a monitor. Its address no longer accepts pings.
func (c *Control) DeleteMonitor(ctx context.Context, namespace, ref string) error {
	m, err := c.monitor(ctx, monitorKey(namespace, ref))
	if err != nil {
		return err
	}
	tries := 0
	ctx, audit := c.audited(ctx, monitorEntry(belfry.AuditDelete, m))
	audit.SetChange(monitorChange(&m, nil))
	return retryUnknown(ctx, "delete a monitor", func() error {
		err := c.store.DeleteMonitor(ctx, namespace, m.ID)
		if tries++; isNotFound(err) && tries > 1 {
			return nil // The first try did it, though its answer was lost.
		}
		return err
	})
}

// Ping records a ping. A token that no monitor has is NotFound, after the same look-up. Pings
// that say the same within a second are recorded once.
func (c *Control) Ping(ctx context.Context, token string, kind belfry.PingKind) error {
	var key store.MonitorKey
	if key.Token.UnmarshalText([]byte(token)) != nil || key.Token == (belfry.Token{}) {
		key.Token = belfry.NewToken()
	}
	_, err := c.editMonitor(ctx, key, func(before belfry.Monitor) (store.EditMonitor, error) {
		next, err := validate.MonitorSchedule(before)
		if err != nil {
			return nil, err
		}
		if _, ok := before.Ping(kind, c.now(), next); !ok {
			return nil, nil
		}
		return func(m belfry.Monitor, now time.Time) (*belfry.Monitor, error) {
			if m.EverySeconds != before.EverySeconds || m.Cron != before.Cron || m.Timezone != before.Timezone {
				return nil, errStale
			}
			m, ok := m.Ping(kind, now, next)
			if !ok {
				return nil, nil
			}
			return &m, nil
		}, nil
	})
	return err
}
