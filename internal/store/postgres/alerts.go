package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const channelColumns = `spec, namespace, created_at, updated_at, sent_at, failures, error, next_try_at`

var scanChannel = scanInto(func(c *belfry.Channel) []any {
	return []any{store.JSONColumn{To: c}, &c.Namespace, timeColumn{&c.CreatedAt}, timeColumn{&c.UpdatedAt}, nullTimeColumn{&c.SentAt}, &c.Failures, &c.Error, nullTimeColumn{&c.NextTryAt}}
})

func (s *Store) PutChannel(ctx context.Context, c belfry.Channel) (belfry.Channel, error) {
	saved, err := collectOne(ctx, s.pool, scanChannel, nil, `/* put channel */
INSERT INTO belfry.channels AS c (namespace, name, spec, created_at, updated_at) VALUES ($1, $2, $3, clock_timestamp(), clock_timestamp())
ON CONFLICT (namespace, name) DO UPDATE SET spec = excluded.spec, updated_at = CASE WHEN c.spec = excluded.spec THEN c.updated_at ELSE excluded.updated_at END, failures = 0, error = '', next_try_at = NULL
RETURNING `+channelColumns, c.Namespace, c.Name, store.ChannelSpec(c))
	return saved, wrapError("save a channel", err)
}

func (s *Store) DeleteChannel(ctx context.Context, namespace, name string) error {
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `DELETE FROM belfry.channels WHERE namespace = $1 AND name = $2`, namespace, storable(name))
		if err == nil && tag.RowsAffected() == 0 {
			return store.NoSuchChannel(name)
		}
		if err == nil {
			_, err = tx.Exec(ctx, `DELETE FROM belfry.alerts WHERE namespace = $1 AND channel = $2`, namespace, storable(name))
		}
		return err
	})
	return wrapError("delete a channel", err)
}

func (s *Store) Channels(ctx context.Context, namespace string) ([]belfry.Channel, error) {
	channels, err := collect(ctx, s.readPool, scanChannel, `SELECT `+channelColumns+` FROM belfry.channels WHERE $1 = '' OR namespace = $1 ORDER BY namespace, name`, namespace)
	return channels, wrapError("list channels", err)
}

func (s *Store) SetChannelResult(ctx context.Context, namespace, name, failure string, pause time.Duration) error {
	_, err := s.pool.Exec(ctx, `/* set channel result */
UPDATE belfry.channels SET failures = CASE WHEN $4 = 0 THEN 0 ELSE failures + 1 END, error = $3,
       sent_at = CASE WHEN $4 = 0 THEN clock_timestamp() ELSE sent_at END,
       next_try_at = CASE WHEN $4 <> 0 THEN clock_timestamp() + $4 * interval '1 millisecond' END
 WHERE namespace = $1 AND name = $2`, namespace, name, storable(failure), pause.Milliseconds())
	return wrapError("record the result of a channel", err)
}

const alertColumns = `body, key, version, send_at, sent_at, sent_count, claimed_until`

var scanAlert = scanInto(func(a *store.AlertRecord) []any {
	return []any{store.JSONColumn{To: a}, &a.Key, &a.Version, timeColumn{&a.SendAt}, nullTimeColumn{&a.SentAt}, &a.SentCount, timeColumn{&a.ClaimedUntil}}
})

func (s *Store) Alert(ctx context.Context, namespace string, id belfry.ID) (store.AlertRecord, error) {
	a, err := collectOne(ctx, s.readPool, scanAlert, func() error { return store.NoSuch("alert", id) },
		`SELECT `+alertColumns+` FROM belfry.alerts WHERE namespace = $1 AND id = $2`, namespace, uuid(id))
	return a, wrapError("look up an alert", err)
}

func (s *Store) ListAlerts(ctx context.Context, namespace string, f belfry.AlertFilter, page store.Page) ([]belfry.Alert, error) {
	alerts, err := collect(ctx, s.readPool, scanAlert, `SELECT `+alertColumns+` FROM belfry.alerts
 WHERE namespace = $1 AND id < $2 AND ($3 = '' OR status = $3) AND ($4 = '' OR channel = $4) ORDER BY id DESC LIMIT $5`,
		namespace, startAfter(page.After.ID), string(f.Status), storable(f.Channel), page.Limit)
	return column(alerts, func(a *store.AlertRecord) belfry.Alert { return a.Alert }), wrapError("list alerts", err)
}

func (s *Store) RecentAlerts(ctx context.Context, since time.Time) ([]store.AlertRecord, error) {
	alerts, err := collect(ctx, s.pool, scanAlert, `/* recent alerts */
SELECT `+alertColumns+` FROM belfry.alerts WHERE status <> 'resolved'
 UNION ALL SELECT `+alertColumns+` FROM belfry.alerts WHERE status = 'resolved' AND latest_at >= $1`, since)
	return alerts, wrapError("list recent alerts", err)
}

func (s *Store) SaveAlerts(ctx context.Context, alerts []store.AlertRecord) (int, error) {
	if len(alerts) == 0 {
		return 0, nil
	}
	tag, err := s.pool.Exec(ctx, `/* save alerts */
INSERT INTO belfry.alerts AS a (id, namespace, channel, key, status, version, latest_at, body, send_at)
SELECT id, namespace, channel, key, status, version + 1, latest_at, body, send_at
  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::timestamptz[], $8::text[], $9::timestamptz[])
    AS n (id, namespace, channel, key, status, version, latest_at, body, send_at)
 WHERE version > 0 OR NOT EXISTS (SELECT 1 FROM belfry.alerts o WHERE o.namespace = n.namespace AND o.channel = n.channel AND o.key = n.key AND o.status <> 'resolved')
ON CONFLICT (id) DO UPDATE SET status = excluded.status, version = excluded.version, latest_at = excluded.latest_at, body = excluded.body, send_at = excluded.send_at, claimed_until = NULL
 WHERE a.version = excluded.version - 1`,
		column(alerts, func(a *store.AlertRecord) pgtype.UUID { return uuid(a.ID) }),
		column(alerts, func(a *store.AlertRecord) string { return a.Namespace }),
		column(alerts, func(a *store.AlertRecord) string { return a.Channel }),
		column(alerts, func(a *store.AlertRecord) string { return a.Key }),
		column(alerts, func(a *store.AlertRecord) string { return string(a.Status) }),
		column(alerts, func(a *store.AlertRecord) int64 { return a.Version }),
		column(alerts, func(a *store.AlertRecord) time.Time { return a.LatestAt }),
		column(alerts, func(a *store.AlertRecord) string { return storable(string(belfry.MustJSON(a))) }),
		column(alerts, func(a *store.AlertRecord) pgtype.Timestamptz { return timestamptz(a.SendAt) }))
	return int(tag.RowsAffected()), wrapError("save alerts", err)
}

func (s *Store) SetEvaluated(ctx context.Context, at time.Time) error {
	_, err := s.pool.Exec(ctx, `/* set evaluated */
INSERT INTO belfry.settings (name, value) VALUES ('alerts_evaluated', $1) ON CONFLICT (name) DO UPDATE SET value = excluded.value`, at.UTC().Format(time.RFC3339Nano))
	return wrapError("record the last evaluation", err)
}

func (s *Store) Evaluated(ctx context.Context) (at time.Time, err error) {
	err = s.pool.QueryRow(ctx, `/* evaluated */ SELECT max(value)::timestamptz FROM belfry.settings WHERE name = 'alerts_evaluated'`).Scan(timeColumn{&at})
	return at, wrapError("look up the last evaluation", err)
}

func (s *Store) ClaimAlerts(ctx context.Context, namespace, channel string, hold time.Duration, limit int) ([]store.AlertRecord, error) {
	alerts, err := collect(ctx, s.pool, scanAlert, `/* claim alerts */
UPDATE belfry.alerts SET claimed_until = clock_timestamp() + $3 * interval '1 millisecond'
 WHERE id IN (SELECT id FROM belfry.alerts WHERE send_at <= clock_timestamp() AND (claimed_until IS NULL OR claimed_until < clock_timestamp())
                 AND namespace = $1 AND channel = $2 ORDER BY send_at LIMIT $4 FOR UPDATE SKIP LOCKED)
RETURNING `+alertColumns, namespace, channel, hold.Milliseconds(), limit)
	return alerts, wrapError("claim alerts", err)
}

func (s *Store) ReleaseAlert(ctx context.Context, id belfry.ID) error {
	_, err := s.pool.Exec(ctx, `/* release alert */ UPDATE belfry.alerts SET claimed_until = NULL WHERE id = $1`, uuid(id))
	return wrapError("release an alert", err)
}

func (s *Store) AlertSent(ctx context.Context, id belfry.ID, version int64) error {
	_, err := s.pool.Exec(ctx, `/* alert sent */
UPDATE belfry.alerts SET sent_at = clock_timestamp(), sent_count = sent_count + 1, claimed_until = NULL, version = version + 1,
       send_at = CASE WHEN version = $2 THEN NULL ELSE send_at END WHERE id = $1`, uuid(id), version)
	return wrapError("record a sent alert", err)
}
