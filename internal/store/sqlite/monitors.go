package sqlite

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	selectMonitors = `SELECT id, namespace, token, spec, last_ping_at, started_at, failed_at, due_at, alert_at, created_at, updated_at FROM monitors `

	insertMonitor = `INSERT INTO monitors (id, namespace, name, token, spec, last_ping_at, started_at, failed_at, due_at, alert_at, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`

	updateMonitor = `UPDATE monitors SET namespace = ?2, name = ?3, token = ?4, spec = ?5, last_ping_at = ?6, started_at = ?7, failed_at = ?8, due_at = ?9, alert_at = ?10,
created_at = ?11, updated_at = ?12 WHERE id = ?1`
)

func monitorFields(m *belfry.Monitor) []any {
	return []any{bytesColumn{m.ID[:]}, &m.Namespace, bytesColumn{m.Token[:]}, store.JSONColumn{To: m}, nullTimeColumn{&m.LastPingAt}, nullTimeColumn{&m.StartedAt},
		nullTimeColumn{&m.FailedAt}, nullTimeColumn{&m.DueAt}, timeColumn{&m.AlertAt}, timeColumn{&m.CreatedAt}, timeColumn{&m.UpdatedAt}}
}

var scanMonitor = scanInto(monitorFields)

func monitorValues(m belfry.Monitor) []any {
	instant := func(t *time.Time) any {
		if t == nil {
			return nil
		}
		return micro(*t)
	}
	return []any{m.ID[:], m.Namespace, m.Name, m.Token[:], store.EncodeMonitor(m), instant(m.LastPingAt), instant(m.StartedAt), instant(m.FailedAt), instant(m.DueAt), nullTime(m.AlertAt), micro(m.CreatedAt), micro(m.UpdatedAt)}
}

func (t *tx) monitor(key store.MonitorKey) (belfry.Monitor, error) {
	missing := store.NoSuchMonitor(key)
	switch {
	case key.Token != belfry.Token{}:
		return one(t, scanMonitor, missing, selectMonitors+`WHERE token = ?`, key.Token[:])
	case !key.ID.IsZero():
		return one(t, scanMonitor, missing, selectMonitors+`WHERE namespace = ? AND id = ?`, key.Namespace, key.ID[:])
	}
	return one(t, scanMonitor, missing, selectMonitors+`WHERE namespace = ? AND name = ?`, key.Namespace, key.Name)
}

func (s *Store) CreateMonitor(ctx context.Context, m belfry.Monitor) error {
	return s.write(ctx, "create a monitor", func(t *tx) error {
		return orTaken(t.run(insertMonitor, monitorValues(m)...), store.NameTaken("monitor", m.Name))
	})
}

func (s *Store) Monitor(ctx context.Context, key store.MonitorKey) (belfry.Monitor, error) {
	return readValue(ctx, s, "look up a monitor", func(t *tx) (belfry.Monitor, error) { return t.monitor(key) })
}

func (s *Store) ListMonitors(ctx context.Context, namespace string, page store.Page) ([]belfry.Monitor, error) {
	after := idOrMax(page.After.ID)
	return readAll(ctx, s, "list monitors", scanMonitor, selectMonitors+`WHERE namespace = ? AND id < ? ORDER BY id DESC LIMIT ?`, namespace, after[:], atMost(page.Limit))
}

func (s *Store) EditMonitor(ctx context.Context, key store.MonitorKey, edit store.EditMonitor) (belfry.Monitor, error) {
	return writeValue(ctx, s, "edit a monitor", func(t *tx) (belfry.Monitor, error) {
		m, err := t.monitor(key)
		if err != nil {
			return m, err
		}
		edited, err := edit(m, storedTime(t.now))
		if err != nil {
			return m, &callerError{err}
		}
		if edited == nil {
			return m, nil
		}
		return *edited, orTaken(t.run(updateMonitor, monitorValues(*edited)...), store.NameTaken("monitor", edited.Name))
	})
}

func (s *Store) DeleteMonitor(ctx context.Context, namespace string, id belfry.ID) error {
	return s.write(ctx, "delete a monitor", func(t *tx) error {
		n, err := t.exec(`DELETE FROM monitors WHERE namespace = ? AND id = ?`, namespace, id[:])
		if err == nil && n == 0 {
			err = store.NoSuch("monitor", id)
		}
		return err
	})
}

func (s *Store) LateMonitors(ctx context.Context, now time.Time, limit int) ([]belfry.Monitor, error) {
	return readAll(ctx, s, "list late monitors", scanMonitor, selectMonitors+`WHERE alert_at <= ? ORDER BY name, namespace LIMIT ?`, micro(now), atMost(limit))
}
