package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/store"
)

const channelColumns = `spec, namespace, created_at, updated_at, sent_at, failures, error, next_try_at`

func channelFields(c *belfry.Channel) []any {
	return []any{store.JSONColumn{To: c}, &c.Namespace, &c.CreatedAt, &c.UpdatedAt, &c.SentAt, &c.Failures, &c.Error, &c.NextTryAt}
}

func (s Store) PutChannel(ctx context.Context, c belfry.Channel) (belfry.Channel, error) {
	saved, err := list(ctx, s, Write, "save a channel", channelFields, `/* put channel */
INSERT INTO belfry.channels AS c (namespace, name, spec, created_at, updated_at) VALUES ($1, $2, $3, clock_timestamp(), clock_timestamp())
ON CONFLICT (namespace, name) DO UPDATE SET spec = excluded.spec, updated_at = CASE WHEN c.spec = excluded.spec THEN c.updated_at ELSE excluded.updated_at END, failures = 0, error = '', next_try_at = NULL
RETURNING `+channelColumns, c.Namespace, c.Name, store.ChannelSpec(c))
	return first(saved, err, store.NoSuchChannel(c.Name))
}

func (s Store) DeleteChannel(ctx context.Context, namespace, name string) error {
	return s.DB.Do(ctx, Change, "delete a channel", func(t Tx) error {
		n, err := t.Exec(`DELETE FROM belfry.channels WHERE namespace = $1 AND name = $2`, namespace, name)
		if err == nil && n == 0 {
			err = store.NoSuchChannel(name)
		}
		if err == nil {
			_, err = t.Exec(`DELETE FROM belfry.alerts WHERE namespace = $1 AND channel = $2`, namespace, name)
		}
		return err
	})
}

func (s Store) Channels(ctx context.Context, namespace string) ([]belfry.Channel, error) {
	return list(ctx, s, Read, "list channels", channelFields, `SELECT `+channelColumns+` FROM belfry.channels WHERE $1 = '' OR namespace = $1 ORDER BY namespace, name`, namespace)
}

func (s Store) SetChannelResult(ctx context.Context, namespace, name, failure string, pause time.Duration) error {
	return s.run(ctx, Write, "record the result of a channel", `/* set channel result */
UPDATE belfry.channels SET failures = CASE WHEN $4 THEN 0 ELSE failures + 1 END, error = $3,
       sent_at = CASE WHEN $4 THEN clock_timestamp() ELSE sent_at END, next_try_at = CASE WHEN NOT $4 THEN clock_timestamp() + $5::interval END
 WHERE namespace = $1 AND name = $2`, namespace, name, failure, pause == 0, pause)
}

const alertColumns = `body, key, version, send_at, sent_at, sent_count, claimed_until`

func alertFields(a *store.AlertRecord) []any {
	return []any{store.JSONColumn{To: a}, &a.Key, &a.Version, &a.SendAt, &a.SentAt, &a.SentCount, &a.ClaimedUntil}
}

func (s Store) Alert(ctx context.Context, namespace string, id belfry.ID) (store.AlertRecord, error) {
	alerts, err := list(ctx, s, Read, "look up an alert", alertFields, `SELECT `+alertColumns+` FROM belfry.alerts WHERE namespace = $1 AND id = $2`, namespace, id)
	return first(alerts, err, store.NoSuch("alert", id))
}

func (s Store) ListAlerts(ctx context.Context, namespace string, f belfry.AlertFilter, page store.Page) ([]belfry.Alert, error) {
	records, err := list(ctx, s, Read, "list alerts", alertFields, `SELECT `+alertColumns+` FROM belfry.alerts
 WHERE namespace = $1 AND id < $2 AND ($3 = '' OR status = $3) AND ($4 = '' OR channel = $4) ORDER BY id DESC LIMIT $5`,
		namespace, startAfter(page), string(f.Status), f.Channel, page.Limit)
	alerts := make([]belfry.Alert, len(records))
	for i := range records {
		alerts[i] = records[i].Alert
	}
	return alerts, err
}

func (s Store) RecentAlerts(ctx context.Context, since time.Time) ([]store.AlertRecord, error) {
	return list(ctx, s, Duty, "list recent alerts", alertFields, `/* recent alerts */
SELECT `+alertColumns+` FROM belfry.alerts WHERE status <> 'resolved'
 UNION ALL SELECT `+alertColumns+` FROM belfry.alerts WHERE status = 'resolved' AND latest_at >= $1`, since)
}

func (s Store) SaveAlerts(ctx context.Context, alerts []store.AlertRecord) (saved int, err error) {
	var added, changed [][]any
	for _, a := range alerts {
		if a.Version == 0 {
			added = append(added, []any{a.ID, a.Namespace, a.Channel, a.Key, string(a.Status), a.LatestAt, string(belfry.MustJSON(a)), orNull(a.SendAt)})
		} else {
			changed = append(changed, []any{a.ID, a.Version, string(a.Status), a.LatestAt, string(belfry.MustJSON(a)), orNull(a.SendAt)})
		}
	}
	err = s.DB.Do(ctx, Change, "save alerts", func(t Tx) error {
		inserts, err := t.ExecEach(`/* save alerts */
INSERT INTO belfry.alerts (id, namespace, channel, key, status, version, latest_at, body, send_at) VALUES ($1, $2, $3, $4, $5, 1, $6, $7, $8) ON CONFLICT DO NOTHING`, added)
		if err != nil {
			return err
		}
		updates, err := t.ExecEach(`/* save alerts */
UPDATE belfry.alerts SET status = $3, version = version + 1, latest_at = $4, body = $5, send_at = $6, claimed_until = NULL WHERE id = $1 AND version = $2`, changed)
		if saved = sum(inserts) + sum(updates); saved > 0 {
			store.AuditOf(ctx).Done()
		}
		return err
	})
	return saved, err
}

func (s Store) SetEvaluated(ctx context.Context, at time.Time) error {
	return s.run(ctx, Write, "record the last evaluation", `/* set evaluated */
INSERT INTO belfry.settings (name, value) VALUES ('alerts_evaluated', $1) ON CONFLICT (name) DO UPDATE SET value = excluded.value`, at.UTC().Format(time.RFC3339Nano))
}

func (s Store) Evaluated(ctx context.Context) (time.Time, error) {
	values, err := list(ctx, s, Duty, "look up the last evaluation", func(v *string) []any { return []any{v} }, `/* evaluated */ SELECT value FROM belfry.settings WHERE name = 'alerts_evaluated'`)
	if err != nil || len(values) == 0 {
		return time.Time{}, err
	}
	at, _ := time.Parse(time.RFC3339Nano, values[0]) // SQLite had another form once: then there is none
	return at, nil
}

func (s Store) ClaimAlerts(ctx context.Context, namespace, channel string, hold time.Duration, limit int) ([]store.AlertRecord, error) {
	return list(ctx, s, Write, "claim alerts", alertFields, `/* claim alerts */
UPDATE belfry.alerts SET claimed_until = clock_timestamp() + $3::interval
 WHERE id IN (SELECT id FROM belfry.alerts WHERE send_at <= clock_timestamp() AND (claimed_until IS NULL OR claimed_until < clock_timestamp())
                 AND namespace = $1 AND channel = $2 ORDER BY send_at LIMIT $4 FOR UPDATE SKIP LOCKED)
RETURNING `+alertColumns, namespace, channel, hold, limit)
}

func (s Store) ReleaseAlert(ctx context.Context, id belfry.ID) error {
	return s.run(ctx, Write, "release an alert", `/* release alert */ UPDATE belfry.alerts SET claimed_until = NULL WHERE id = $1`, id)
}

func (s Store) AlertSent(ctx context.Context, id belfry.ID, version int64) error {
	return s.run(ctx, Write, "record a sent alert", `/* alert sent */
UPDATE belfry.alerts SET sent_at = clock_timestamp(), sent_count = sent_count + 1, claimed_until = NULL, version = version + 1,
       send_at = CASE WHEN version = $2 THEN NULL ELSE send_at END WHERE id = $1`, id, version)
}

// SelectEvents reads events: the caller adds a condition and the order.
const SelectEvents = `/* events */ SELECT id, namespace, job_id, run_id, kind, at, message, count FROM belfry.events `

func eventFields(e *belfry.Event) []any {
	return []any{&e.ID, &e.Namespace, &e.JobID, &e.RunID, &e.Kind, &e.At, &e.Message, &e.Count}
}

func (s Store) ListEvents(ctx context.Context, namespace string, f belfry.EventFilter, page store.Page) ([]belfry.Event, error) {
	where, order, args := ``, `namespace DESC, id DESC`, []any{namespace, startAfter(page), max(page.Limit, 0), string(f.Kind)}
	if !f.JobID.IsZero() {
		where, order, args = ` AND job_id = $5`, `job_id DESC, id DESC`, append(args, f.JobID)
	}
	return list(ctx, s, Read, "list events", eventFields, SelectEvents+`WHERE namespace = $1 AND id < $2 AND ($4 = '' OR kind = $4)`+where+` ORDER BY `+order+` LIMIT $3`, args...)
}

func (s Store) EventsAfter(ctx context.Context, after belfry.ID, limit int) ([]belfry.Event, error) {
	return list(ctx, s, Read, "follow events", eventFields, SelectEvents+`WHERE id > $1 ORDER BY id LIMIT $2`, after, limit)
}

func (s Store) AddEvents(ctx context.Context, events []store.NewEvent) (added []belfry.ID, err error) {
	// In one order, so that two nodes that record the same ones do not wait for each other.
	sorted := slices.SortedFunc(slices.Values(events), func(a, b store.NewEvent) int { return a.Dedup.Compare(b.Dedup) })
	known := map[belfry.ID]bool{}
	err = s.DB.Do(ctx, Change, "record events", func(t Tx) error {
		inserted, err := t.ExecEach(`/* add events */
INSERT INTO belfry.events (id, shard, namespace, job_id, run_id, kind, at, message, count, dedup_id)
VALUES ($1, coalesce((SELECT shard FROM belfry.jobs WHERE id = $3), 0), $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING`, argsOf(sorted, func(e *store.NewEvent) []any {
			return []any{e.ID, e.Namespace, orNull(e.JobID), orNull(e.RunID), string(e.Kind), e.At, sanitize.Text(e.Message, store.MaxError), e.Count, orNull(e.Dedup)}
		}))
		for i, n := range inserted {
			if n == 0 {
				known[sorted[i].ID] = true
			}
		}
		return err
	})
	for _, e := range events {
		if err == nil && !known[e.ID] {
			added = append(added, e.ID)
		}
	}
	return added, err
}

// KeepNode waits behind no other work, like a heartbeat.
func (s Store) KeepNode(ctx context.Context, n store.Node) error {
	return s.run(ctx, Urgent, "record a node", `/* keep node */
INSERT INTO belfry.nodes AS n (id, name, version, roles, address, clock_offset, started_at, seen_at) SELECT $1, $2, $3, $4, $6, $7, now, now FROM (SELECT clock_timestamp() AS now) c WHERE true
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, left_at = NULL, clock_offset = excluded.clock_offset,
  started_at = CASE WHEN n.seen_at < excluded.seen_at - $5::interval THEN excluded.started_at ELSE n.started_at END`, n.ID, n.Name, n.Version, n.Roles, store.NodeTimeout, n.Address, n.Offset.Microseconds())
}

func (s Store) EndNode(ctx context.Context, id belfry.ID) error {
	return s.run(ctx, Urgent, "record the end of a node", `/* end node */ UPDATE belfry.nodes SET left_at = clock_timestamp() WHERE id = $1`, id)
}

func (s Store) Nodes(ctx context.Context) ([]store.Node, error) {
	return list(ctx, s, Read, "list nodes", func(n *store.Node) []any {
		return []any{&n.ID, &n.Name, &n.Version, &n.Roles, &n.Address, (*int64)(&n.Offset), &n.StartedAt, &n.SeenAt, &n.LeftAt}
	}, `/* nodes */ SELECT id, name, version, roles, address, clock_offset * 1000, started_at, seen_at, left_at FROM belfry.nodes WHERE seen_at > clock_timestamp() - $1::interval ORDER BY id`, store.NodeRetention)
}

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
	return s.runFound(ctx, "delete a monitor", store.NoSuch("monitor", id), `DELETE FROM belfry.monitors WHERE namespace = $1 AND id = $2`, namespace, id)
}

func (s Store) LateMonitors(ctx context.Context, now time.Time, limit int) ([]belfry.Monitor, error) {
	return list(ctx, s, Duty, "list late monitors", monitorFields, `/* late monitors */ `+selectMonitors+`WHERE alert_at <= $1 ORDER BY name COLLATE "C", namespace COLLATE "C" LIMIT $2`, now, limit)
}
