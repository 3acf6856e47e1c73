package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	putActivity    = `INSERT INTO activity (namespace, minute, node, counts) VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET counts = excluded.counts`
	selectActivity = `SELECT minute, counts FROM activity WHERE namespace = ? AND minute >= ? ORDER BY minute`

	whereTimes  = ` WHERE r.job_id = @job AND r.namespace = @namespace AND r.scheduled_at >= @since ORDER BY r.scheduled_at DESC, r.id DESC LIMIT @limit)`
	selectTimes = `SELECT * FROM (SELECT r.job_id, r.id, r.state, r.scheduled_at, r.started_at, NULL, 0 FROM runs r` + whereTimes +
		` UNION ALL SELECT * FROM (SELECT r.job_id, r.id, 'dead', r.scheduled_at, r.started_at, r.died_at, 0 FROM dead r` + whereTimes +
		` UNION ALL SELECT * FROM (SELECT r.job_id, r.id, r.state, r.scheduled_at, r.started_at, r.settled_at, r.skipped_count FROM history r` + whereTimes

	selectByName = `SELECT id FROM jobs WHERE namespace = ?1 AND name IS NOT NULL AND state <> 'deleted' AND name > coalesce((SELECT name FROM jobs WHERE id = ?2), '') ORDER BY name LIMIT ?3`

	insertSession = `INSERT INTO sessions (id, key_hash, seen_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`
	selectSession = `SELECT key_hash, seen_at FROM sessions WHERE id = ? AND seen_at > ?`
	touchSession  = `UPDATE sessions SET seen_at = ? WHERE id = ?`
	deleteSession = `DELETE FROM sessions WHERE id = ?`
)

func (s *Store) PutActivity(ctx context.Context, node belfry.ID, list []store.Activity) error {
	return s.write(ctx, "record activity", func(t *tx) error {
		for _, a := range list {
			if err := t.run(putActivity, a.Namespace, micro(a.Minute), node[:], string(belfry.MustJSON(a.Counts))); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Store) Activity(ctx context.Context, namespace string, since time.Time) (list []store.Activity, err error) {
	_, err = readAll(ctx, s, "read activity", func(rows *sql.Rows, _ *struct{}) error {
		var minute time.Time
		var text string
		var counts []int64
		if err := rows.Scan(timeColumn{&minute}, &text); err != nil {
			return err
		}
		err := json.Unmarshal([]byte(text), &counts)
		list = store.MergeActivity(list, namespace, minute, counts)
		return err
	}, selectActivity, namespace, micro(since))
	return list, err
}

func (s *Store) RunTimes(ctx context.Context, namespace string, jobs []belfry.ID, since time.Time, limit int) ([]store.RunTime, error) {
	return readValue(ctx, s, "read the times of runs", func(t *tx) (times []store.RunTime, err error) {
		for _, job := range jobs {
			found, err := all(t, scanInto(func(r *store.RunTime) []any {
				return []any{bytesColumn{r.JobID[:]}, bytesColumn{r.RunID[:]}, &r.Status, timeColumn{&r.ScheduledAt}, nullTimeColumn{&r.StartedAt}, nullTimeColumn{&r.FinishedAt}, &r.Skipped}
			}), selectTimes, sql.Named("job", job[:]), sql.Named("namespace", namespace), sql.Named("since", micro(since)), sql.Named("limit", atMost(limit)))
			if err != nil {
				return nil, err
			}
			times = append(times, found...)
		}
		return times, nil
	})
}

func (s *Store) JobsByName(ctx context.Context, namespace string, after belfry.ID, limit int) ([]belfry.ID, error) {
	return readAll(ctx, s, "list jobs by name", scanID, selectByName, namespace, after[:], atMost(limit))
}

func (s *Store) AddSession(ctx context.Context, session store.Session) error {
	return s.write(ctx, "record a session", func(t *tx) error { return t.run(insertSession, session.ID[:], session.Key[:], micro(t.now)) })
}

func (s *Store) Session(ctx context.Context, id store.Hash) (store.Session, error) {
	session, seen := store.Session{ID: id}, time.Time{}
	err := s.read(ctx, "look up a session", func(t *tx) error {
		found, err := t.find([]any{bytesColumn{session.Key[:]}, timeColumn{&seen}}, selectSession, id[:], micro(s.Now().Add(-store.SessionTimeout)))
		if err == nil && !found {
			err = store.ErrNoSession
		}
		return err
	})
	if err == nil && s.Now().Sub(seen) > store.SessionTouch {
		err = s.write(ctx, "use a session", func(t *tx) error { return t.run(touchSession, micro(t.now), id[:]) })
	}
	if err != nil {
		return store.Session{}, err
	}
	return session, nil
}

func (s *Store) EndSession(ctx context.Context, id store.Hash) error {
	return s.write(ctx, "end a session", func(t *tx) error { return t.run(deleteSession, id[:]) })
}
