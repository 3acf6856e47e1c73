package sqlstore

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

func (s Store) PutActivity(ctx context.Context, node belfry.ID, list []store.Activity) error {
	return s.DB.Do(ctx, Change, "record activity", func(t Tx) error {
		_, err := t.ExecEach(`/* put activity */ INSERT INTO belfry.activity (namespace, minute, node, counts) VALUES ($1, $2, $3, $4)
ON CONFLICT (namespace, minute, node) DO UPDATE SET counts = excluded.counts`, argsOf(list, func(a *store.Activity) []any {
			return []any{a.Namespace, a.Minute, node, string(belfry.MustJSON(a.Counts))}
		}))
		return err
	})
}

func (s Store) Activity(ctx context.Context, namespace string, since time.Time) (list []store.Activity, err error) {
	var minute time.Time
	var counts []int64
	err = s.DB.Do(ctx, Read, "read activity", func(t Tx) error {
		return t.Query([]any{&minute, store.JSONColumn{To: &counts}}, func() {
			list, counts = store.MergeActivity(list, namespace, minute, counts), nil
		}, `/* activity */ SELECT minute, counts FROM belfry.activity WHERE namespace = $1 AND minute >= $2 ORDER BY minute`, namespace, since)
	})
	return list, err
}

func (s Store) JobsByName(ctx context.Context, namespace string, after belfry.ID, limit int) ([]belfry.ID, error) {
	return list(ctx, s, Read, "list jobs by name", idField, `/* jobs by name */
SELECT id FROM belfry.jobs WHERE namespace = $1 AND name IS NOT NULL AND state <> 'deleted' AND name > coalesce((SELECT name FROM belfry.jobs WHERE id = $2), '')
 ORDER BY namespace, name LIMIT $3`, namespace, after, limit)
}

func (s Store) AddSession(ctx context.Context, session store.Session) error {
	_, err := s.exec(ctx, Write, "record a session", `INSERT INTO belfry.sessions (id, key_hash, person, seen_at) VALUES ($1, $2, $3, clock_timestamp()) ON CONFLICT DO NOTHING`, session.ID[:], session.Key[:], session.Person)
	return err
}

func (s Store) Session(ctx context.Context, id store.Hash) (store.Session, error) {
	type found struct {
		key    []byte
		person string
		old    bool
	}
	sessions, err := list(ctx, s, Read, "look up a session", func(f *found) []any { return []any{&f.key, &f.person, &f.old} },
		`SELECT key_hash, person, seen_at < clock_timestamp() - $3::interval FROM belfry.sessions WHERE id = $1 AND seen_at > clock_timestamp() - $2::interval`, id[:], store.SessionTimeout, store.SessionTouch)
	session, err := first(sessions, err, store.ErrNoSession)
	if err == nil && len(session.key) != len(store.Hash{}) {
		err = store.ErrNoSession
	}
	if err == nil && session.old {
		_, err = s.exec(ctx, Write, "use a session", `UPDATE belfry.sessions SET seen_at = clock_timestamp() WHERE id = $1`, id[:])
	}
	if err != nil {
		return store.Session{}, err
	}
	return store.Session{ID: id, Key: store.Hash(session.key), Person: session.person}, nil
}

func (s Store) EndSession(ctx context.Context, id store.Hash) error {
	return s.DB.Do(ctx, Write, "end a session", func(t Tx) error {
		n, err := t.Exec(`DELETE FROM belfry.sessions WHERE id = $1`, id[:])
		if n > 0 {
			store.AuditOf(ctx).Done()
		}
		return err
	})
}
