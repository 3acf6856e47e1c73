package postgres

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const selectMonitors = `SELECT id, namespace, token, spec, last_ping_at, started_at, failed_at, due_at, alert_at, created_at, updated_at FROM belfry.monitors `

func monitorFields(m *belfry.Monitor) []any {
	return []any{idColumn(&m.ID), &m.Namespace, idColumn(&m.Token), store.JSONColumn{To: m}, nullTimeColumn{&m.LastPingAt}, nullTimeColumn{&m.StartedAt},
		nullTimeColumn{&m.FailedAt}, nullTimeColumn{&m.DueAt}, timeColumn{&m.AlertAt}, timeColumn{&m.CreatedAt}, timeColumn{&m.UpdatedAt}}
}

var scanMonitor = scanInto(monitorFields)

func monitorValues(m belfry.Monitor) []any {
	return []any{uuid(m.ID), m.Namespace, storable(m.Name), uuid(m.Token), storable(store.EncodeMonitor(m)), m.LastPingAt, m.StartedAt, m.FailedAt, m.DueAt, timestamptz(m.AlertAt), m.CreatedAt, m.UpdatedAt}
}

func findMonitor(ctx context.Context, q querier, key store.MonitorKey, lock string) (belfry.Monitor, error) {
	missing := func() error { return store.NoSuchMonitor(key) }
	switch {
	case key.Token != belfry.Token{}:
		return collectOne(ctx, q, scanMonitor, missing, selectMonitors+`WHERE token = $1`+lock, uuid(key.Token))
	case !key.ID.IsZero():
		return collectOne(ctx, q, scanMonitor, missing, selectMonitors+`WHERE namespace = $1 AND id = $2`+lock, key.Namespace, uuid(key.ID))
	}
	return collectOne(ctx, q, scanMonitor, missing, selectMonitors+`WHERE namespace = $1 AND name = $2`+lock, key.Namespace, storable(key.Name))
}

func (s *Store) CreateMonitor(ctx context.Context, m belfry.Monitor) error {
	ctx, cancel := detach(ctx, callTimeout)
	defer cancel()
	_, err := s.pool.Exec(ctx, `INSERT INTO belfry.monitors (id, namespace, name, token, spec, last_ping_at, started_at, failed_at, due_at, alert_at, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT (id) DO NOTHING`, monitorValues(m)...)
	return wrapError("create a monitor", orTaken(err, store.NameTaken("monitor", m.Name)))
}

func (s *Store) Monitor(ctx context.Context, key store.MonitorKey) (belfry.Monitor, error) {
	m, err := findMonitor(ctx, s.readPool, key, "")
	return m, wrapError("look up a monitor", err)
}

func (s *Store) ListMonitors(ctx context.Context, namespace string, page store.Page) ([]belfry.Monitor, error) {
	list, err := collect(ctx, s.readPool, scanMonitor, selectMonitors+`WHERE namespace = $1 AND id < $2 ORDER BY id DESC LIMIT $3`, namespace, startAfter(page.After.ID), page.Limit)
	return list, wrapError("list monitors", err)
}

func (s *Store) EditMonitor(ctx context.Context, key store.MonitorKey, edit store.EditMonitor) (m belfry.Monitor, err error) {
	ctx, cancel := detach(ctx, callTimeout)
	defer cancel()
	var refused error
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if m, err = findMonitor(ctx, tx, key, ` FOR UPDATE`); err != nil {
			return err
		}
		var now time.Time
		if err := tx.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
			return err
		}
		edited, err := edit(m, now.UTC())
		if refused = err; err != nil || edited == nil {
			return err
		}
		m = *edited
		_, err = tx.Exec(ctx, `UPDATE belfry.monitors SET namespace = $2, name = $3, token = $4, spec = $5, last_ping_at = $6, started_at = $7, failed_at = $8, due_at = $9, alert_at = $10,
created_at = $11, updated_at = $12 WHERE id = $1`, monitorValues(m)...)
		return orTaken(err, store.NameTaken("monitor", m.Name))
	})
	if err != nil {
		return belfry.Monitor{}, cmp.Or(refused, wrapError("edit a monitor", err))
	}
	return m, nil
}

func (s *Store) DeleteMonitor(ctx context.Context, namespace string, id belfry.ID) error {
	ctx, cancel := detach(ctx, callTimeout)
	defer cancel()
	done, err := s.pool.Exec(ctx, `DELETE FROM belfry.monitors WHERE namespace = $1 AND id = $2`, namespace, uuid(id))
	if err == nil && done.RowsAffected() == 0 {
		err = store.NoSuch("monitor", id)
	}
	return wrapError("delete a monitor", err)
}

func (s *Store) LateMonitors(ctx context.Context, now time.Time, limit int) ([]belfry.Monitor, error) {
	list, err := collect(ctx, s.pool, scanMonitor, `/* late monitors */ `+selectMonitors+`WHERE alert_at <= $1 ORDER BY name COLLATE "C", namespace COLLATE "C" LIMIT $2`, now, limit)
	return list, wrapError("list late monitors", err)
}
