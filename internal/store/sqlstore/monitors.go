package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const selectMonitors = `SELECT id, namespace, token, spec, last_ping_at, started_at, failed_at, due_at, alert_at, created_at, updated_at FROM belfry.monitors `

func monitorFields(m *belfry.Monitor) []any {
	return []any{&m.ID, &m.Namespace, &m.Token, store.JSONColumn{To: m}, &m.LastPingAt, &m.StartedAt, &m.FailedAt, &m.DueAt, &m.AlertAt, &m.CreatedAt, &m.UpdatedAt}
}

func monitorValues(m belfry.Monitor) []any {
	return []any{m.ID, m.Namespace, m.Name, m.Token, store.EncodeMonitor(m), m.LastPingAt, m.StartedAt, m.FailedAt, m.DueAt, orNull(m.AlertAt), m.CreatedAt, m.UpdatedAt}
}

func findMonitor(t Tx, key store.MonitorKey, lock string) (belfry.Monitor, error) {
	where, args := `WHERE namespace = $1 AND name = $2`, []any{key.Namespace, key.Name}
	switch {
	case key.Token != belfry.Token{}:
		where, args = `WHERE token = $1`, []any{key.Token}
	case !key.ID.IsZero():
		where, args = `WHERE namespace = $1 AND id = $2`, []any{key.Namespace, key.ID}
	}
	found, err := all(t, monitorFields, selectMonitors+where+lock, args...)
	return first(found, err, store.NoSuchMonitor(key))
}

// monitorError is an error, or what a violation of a unique name means.
func monitorError(err error, m belfry.Monitor) error {
	if errors.Is(err, ErrTaken) {
		return store.NameTaken("monitor", m.Name)
	}
	return err
}

func (s Store) CreateMonitor(ctx context.Context, m belfry.Monitor) error {
	return s.DB.Do(ctx, Write, "create a monitor", func(t Tx) error {
		_, err := t.Exec(`INSERT INTO belfry.monitors (id, namespace, name, token, spec, last_ping_at, started_at, failed_at, due_at, alert_at, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT (id) DO NOTHING`, monitorValues(m)...)
		return monitorError(err, m)
	})
}

func (s Store) Monitor(ctx context.Context, key store.MonitorKey) (m belfry.Monitor, err error) {
	err = s.DB.Do(ctx, Read, "look up a monitor", func(t Tx) error {
		m, err = findMonitor(t, key, "")
		return err
	})
	return m, err
}

func (s Store) ListMonitors(ctx context.Context, namespace string, page store.Page) ([]belfry.Monitor, error) {
	return list(ctx, s, Read, "list monitors", monitorFields, selectMonitors+`WHERE namespace = $1 AND id < $2 ORDER BY id DESC LIMIT $3`, namespace, startAfter(page), page.Limit)
}

func (s Store) EditMonitor(ctx context.Context, key store.MonitorKey, edit store.EditMonitor) (m belfry.Monitor, err error) {
	var refused error
	err = s.DB.Do(ctx, Change, "edit a monitor", func(t Tx) error {
		if m, err = findMonitor(t, key, ` FOR UPDATE`); err != nil {
			return err
		}
		at, err := now(t)
		if err != nil {
			return err
		}
		edited, err := edit(m, at)
		if refused = err; err != nil || edited == nil {
			return err
		}
		m = *edited
		_, err = t.Exec(`UPDATE belfry.monitors SET namespace = $2, name = $3, token = $4, spec = $5, last_ping_at = $6, started_at = $7, failed_at = $8, due_at = $9, alert_at = $10,
created_at = $11, updated_at = $12 WHERE id = $1`, monitorValues(m)...)
		return monitorError(err, m)
	})
	if err != nil {
		return belfry.Monitor{}, cmp.Or(refused, err)
	}
	return m, nil
}

func (s Store) DeleteMonitor(ctx context.Context, namespace string, id belfry.ID) error {
	return s.DB.Do(ctx, Write, "delete a monitor", func(t Tx) error {
		n, err := t.Exec(`DELETE FROM belfry.monitors WHERE namespace = $1 AND id = $2`, namespace, id)
		if err == nil && n == 0 {
			err = store.NoSuch("monitor", id)
		}
		return err
	})
}

func (s Store) LateMonitors(ctx context.Context, now time.Time, limit int) ([]belfry.Monitor, error) {
	return list(ctx, s, Duty, "list late monitors", monitorFields, `/* late monitors */ `+selectMonitors+`WHERE alert_at <= $1 ORDER BY name COLLATE "C", namespace COLLATE "C" LIMIT $2`, now, limit)
}
