package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	channelColumns = `spec, namespace, created_at, updated_at, sent_at, failures, error, next_try_at`
	selectChannels = `SELECT ` + channelColumns + ` FROM channels WHERE ?1 = '' OR namespace = ?1 ORDER BY namespace, name`
	putChannel     = `INSERT INTO channels (namespace, name, spec, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?4)
ON CONFLICT (namespace, name) DO UPDATE SET spec = excluded.spec, updated_at = CASE WHEN spec = excluded.spec THEN updated_at ELSE excluded.updated_at END, failures = 0, error = '', next_try_at = NULL
RETURNING ` + channelColumns
	deleteChannel       = `DELETE FROM channels WHERE namespace = ? AND name = ?`
	deleteChannelAlerts = `DELETE FROM alerts WHERE namespace = ? AND channel = ?`
	setChannelSent      = `UPDATE channels SET failures = 0, error = ?3, sent_at = ?4, next_try_at = NULL WHERE namespace = ?1 AND name = ?2`
	setChannelFailed    = `UPDATE channels SET failures = failures + 1, error = ?3, next_try_at = ?4 WHERE namespace = ?1 AND name = ?2`

	alertColumns = `body, key, version, send_at, sent_at, sent_count, claimed_until`
	selectAlert  = `SELECT ` + alertColumns + ` FROM alerts WHERE id = ? AND namespace = ?`
	selectAlerts = `SELECT ` + alertColumns + ` FROM alerts WHERE namespace = @namespace AND id < @after AND (@status = '' OR status = @status) AND (@channel = '' OR channel = @channel)
ORDER BY id DESC LIMIT @limit`
	selectRecentAlerts = `SELECT ` + alertColumns + ` FROM alerts WHERE status <> 'resolved' UNION ALL SELECT ` + alertColumns + ` FROM alerts WHERE status = 'resolved' AND latest_at >= ?`
	insertAlert        = `INSERT INTO alerts (id, namespace, channel, key, status, version, latest_at, body, send_at) VALUES (?, ?, ?, ?, ?, 1, ?, ?, ?) ON CONFLICT DO NOTHING`
	updateAlert        = `UPDATE alerts SET status = ?, version = version + 1, latest_at = ?, body = ?, send_at = ?, claimed_until = NULL WHERE id = ? AND version = ?`
	claimAlerts        = `UPDATE alerts SET claimed_until = @until WHERE id IN (SELECT id FROM alerts WHERE send_at <= @now AND (claimed_until IS NULL OR claimed_until < @now)
  AND namespace = @namespace AND channel = @channel ORDER BY send_at LIMIT @limit) RETURNING ` + alertColumns
	releaseAlert = `UPDATE alerts SET claimed_until = NULL WHERE id = ?`
	alertSent    = `UPDATE alerts SET sent_at = ?2, sent_count = sent_count + 1, claimed_until = NULL, version = version + 1, send_at = CASE WHEN version = ?3 THEN NULL ELSE send_at END WHERE id = ?1`
)

var scanChannel = scanInto(func(c *belfry.Channel) []any {
	return []any{store.JSONColumn{To: c}, &c.Namespace, timeColumn{&c.CreatedAt}, timeColumn{&c.UpdatedAt}, nullTimeColumn{&c.SentAt}, &c.Failures, &c.Error, nullTimeColumn{&c.NextTryAt}}
})

func (s *Store) PutChannel(ctx context.Context, c belfry.Channel) (belfry.Channel, error) {
	return writeValue(ctx, s, "save a channel", func(t *tx) (belfry.Channel, error) {
		return one(t, scanChannel, sql.ErrNoRows, putChannel, c.Namespace, c.Name, store.ChannelSpec(c), micro(t.now))
	})
}

func (s *Store) DeleteChannel(ctx context.Context, namespace, name string) error {
	return s.write(ctx, "delete a channel", func(t *tx) error {
		n, err := t.exec(deleteChannel, namespace, name)
		if err == nil && n == 0 {
			err = store.NoSuchChannel(name)
		}
		if err != nil {
			return err
		}
		return t.run(deleteChannelAlerts, namespace, name)
	})
}

func (s *Store) Channels(ctx context.Context, namespace string) ([]belfry.Channel, error) {
	return readAll(ctx, s, "list channels", scanChannel, selectChannels, namespace)
}

func (s *Store) SetChannelResult(ctx context.Context, namespace, name, failure string, pause time.Duration) error {
	return s.write(ctx, "record the result of a channel", func(t *tx) error {
		if pause == 0 {
			return t.run(setChannelSent, namespace, name, failure, micro(t.now))
		}
		return t.run(setChannelFailed, namespace, name, failure, micro(t.now.Add(pause)))
	})
}

var scanAlert = scanInto(func(a *store.AlertRecord) []any {
	return []any{store.JSONColumn{To: a}, &a.Key, &a.Version, timeColumn{&a.SendAt}, nullTimeColumn{&a.SentAt}, &a.SentCount, timeColumn{&a.ClaimedUntil}}
})

func (s *Store) Alert(ctx context.Context, namespace string, id belfry.ID) (store.AlertRecord, error) {
	return readValue(ctx, s, "look up an alert", func(t *tx) (store.AlertRecord, error) {
		return one(t, scanAlert, store.NoSuch("alert", id), selectAlert, id[:], namespace)
	})
}

func (s *Store) ListAlerts(ctx context.Context, namespace string, f belfry.AlertFilter, page store.Page) ([]belfry.Alert, error) {
	after := idOrMax(page.After.ID)
	records, err := readAll(ctx, s, "list alerts", scanAlert, selectAlerts, sql.Named("namespace", namespace), sql.Named("after", after[:]),
		sql.Named("status", string(f.Status)), sql.Named("channel", f.Channel), sql.Named("limit", atMost(page.Limit)))
	alerts := make([]belfry.Alert, len(records))
	for i := range records {
		alerts[i] = records[i].Alert
	}
	return alerts, err
}

func (s *Store) RecentAlerts(ctx context.Context, since time.Time) ([]store.AlertRecord, error) {
	return readAll(ctx, s, "list recent alerts", scanAlert, selectRecentAlerts, micro(since))
}

func (s *Store) SaveAlerts(ctx context.Context, alerts []store.AlertRecord) (int, error) {
	if len(alerts) == 0 {
		return 0, nil
	}
	return writeValue(ctx, s, "save alerts", func(t *tx) (saved int, err error) {
		for i := range alerts {
			a := &alerts[i]
			body := string(belfry.MustJSON(a))
			n := 0
			if a.Version == 0 {
				n, err = t.exec(insertAlert, a.ID[:], a.Namespace, a.Channel, a.Key, string(a.Status), micro(a.LatestAt), body, nullTime(a.SendAt))
			} else {
				n, err = t.exec(updateAlert, string(a.Status), micro(a.LatestAt), body, nullTime(a.SendAt), a.ID[:], a.Version)
			}
			if err != nil {
				return 0, err
			}
			saved += n
		}
		return saved, nil
	})
}

func (s *Store) SetEvaluated(ctx context.Context, at time.Time) error {
	return s.write(ctx, "record the last evaluation", func(t *tx) error { return t.run(setTime, "alerts_evaluated", micro(at)) })
}

func (s *Store) Evaluated(ctx context.Context) (time.Time, error) {
	return readValue(ctx, s, "look up the last evaluation", func(t *tx) (at time.Time, err error) {
		_, err = t.find([]any{timeColumn{&at}}, selectTime, "alerts_evaluated")
		return at, err
	})
}

func (s *Store) ClaimAlerts(ctx context.Context, namespace, channel string, hold time.Duration, limit int) ([]store.AlertRecord, error) {
	return writeValue(ctx, s, "claim alerts", func(t *tx) ([]store.AlertRecord, error) {
		return all(t, scanAlert, claimAlerts, sql.Named("namespace", namespace), sql.Named("channel", channel), sql.Named("now", micro(t.now)),
			sql.Named("until", micro(t.now.Add(hold))), sql.Named("limit", atMost(limit)))
	})
}

func (s *Store) ReleaseAlert(ctx context.Context, id belfry.ID) error {
	return s.write(ctx, "release an alert", func(t *tx) error { return t.run(releaseAlert, id[:]) })
}

func (s *Store) AlertSent(ctx context.Context, id belfry.ID, version int64) error {
	return s.write(ctx, "record a sent alert", func(t *tx) error { return t.run(alertSent, id[:], micro(t.now), version) })
}
