package sqlstore

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
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
	_, err := s.exec(ctx, Write, "record the result of a channel", `/* set channel result */
UPDATE belfry.channels SET failures = CASE WHEN $4 THEN 0 ELSE failures + 1 END, error = $3,
       sent_at = CASE WHEN $4 THEN clock_timestamp() ELSE sent_at END, next_try_at = CASE WHEN NOT $4 THEN clock_timestamp() + $5::interval END
 WHERE namespace = $1 AND name = $2`, namespace, name, failure, pause == 0, pause)
	return err
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
	_, err := s.exec(ctx, Write, "record the last evaluation", `/* set evaluated */
INSERT INTO belfry.settings (name, value) VALUES ('alerts_evaluated', $1) ON CONFLICT (name) DO UPDATE SET value = excluded.value`, at.UTC().Format(time.RFC3339Nano))
	return err
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
	_, err := s.exec(ctx, Write, "release an alert", `/* release alert */ UPDATE belfry.alerts SET claimed_until = NULL WHERE id = $1`, id)
	return err
}

func (s Store) AlertSent(ctx context.Context, id belfry.ID, version int64) error {
	_, err := s.exec(ctx, Write, "record a sent alert", `/* alert sent */
UPDATE belfry.alerts SET sent_at = clock_timestamp(), sent_count = sent_count + 1, claimed_until = NULL, version = version + 1,
       send_at = CASE WHEN version = $2 THEN NULL ELSE send_at END WHERE id = $1`, id, version)
	return err
}
