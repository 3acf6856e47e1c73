package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/store"
)

func idField(id *belfry.ID) []any { return []any{id} }

// Statements about jobs. An archived job has its name as long as no other has it.
const (
	FindName = `SELECT id FROM belfry.jobs WHERE namespace = $1 AND name = $2 AND state <> 'deleted'
 UNION ALL SELECT id FROM (SELECT id FROM belfry.ended WHERE namespace = $1 AND name = $2 AND status <> 'deleted' ORDER BY ended_at DESC LIMIT 1) found LIMIT 1`
	ListRevisions = `SELECT revision, spec, payload, replaced_at FROM belfry.revisions WHERE job_id = $1 AND ($2 = 0 OR revision < $2) ORDER BY revision DESC LIMIT $3`
	FindRequest   = `SELECT hash, response FROM belfry.requests WHERE namespace = $1 AND key = $2`
)

func (s Store) JobIDByName(ctx context.Context, namespace, name string) (belfry.ID, error) {
	ids, err := list(ctx, s, Read, "look up a job by its name", idField, FindName, namespace, name)
	return first(ids, err, store.NoSuchName(name))
}

func (s Store) JobNames(ctx context.Context, namespace string, ids []belfry.ID) (map[belfry.ID]string, error) {
	return toMap(list(ctx, s, Read, "look up the names of jobs", pairFields[belfry.ID, string], `
SELECT id, name FROM belfry.jobs WHERE id = ANY($1::uuid[]) AND namespace = $2 AND name IS NOT NULL
 UNION ALL SELECT id, name FROM belfry.ended WHERE id = ANY($1::uuid[]) AND namespace = $2 AND name IS NOT NULL`, ids, namespace))
}

func (s Store) Revisions(ctx context.Context, namespace string, id belfry.ID, before, limit int) (revisions []belfry.Revision, err error) {
	err = s.DB.Do(ctx, Read, "list the revisions of a job", func(t Tx) error {
		jobs, err := all(t, idField, `SELECT id FROM belfry.jobs WHERE namespace = $1 AND id = $2 UNION ALL SELECT id FROM belfry.ended WHERE namespace = $1 AND id = $2`, namespace, id)
		if _, err := first(jobs, err, store.NoSuch("job", id)); err != nil {
			return err
		}
		type row struct {
			belfry.Revision
			spec string
		}
		rows, err := all(t, func(r *row) []any { return []any{&r.Number, &r.spec, &r.Payload, &r.ReplacedAt} }, ListRevisions, id, before, limit)
		for _, r := range rows {
			if r.Spec, err = s.Specs.Decode(r.spec); err != nil {
				return fmt.Errorf("revision %d of job %s: %w", r.Number, id, err)
			}
			revisions = append(revisions, r.Revision)
		}
		return err
	})
	return revisions, err
}

func (s Store) CachedResponse(ctx context.Context, namespace, key string) (duplicate *store.DuplicateRequest, err error) {
	err = s.DB.Do(ctx, Duty, "look up a request", func(t Tx) error {
		duplicate, err = DuplicateOf(t, namespace, key)
		return err
	})
	return duplicate, err
}

// DuplicateOf returns the request that has an idempotency key; nil if there is none.
func DuplicateOf(t Tx, namespace, key string) (*store.DuplicateRequest, error) {
	var hash []byte
	found, duplicate := false, &store.DuplicateRequest{}
	err := t.Query([]any{&hash, &duplicate.Response}, func() { found = true }, FindRequest, namespace, key)
	if err != nil || !found {
		return nil, err
	}
	copy(duplicate.Hash[:], hash)
	return duplicate, nil
}

// DeleteEnded deletes an ended job where it is. To purge its history too, a deleted job takes
// its place, which Prune purges.
func (s Store) DeleteEnded(ctx context.Context, namespace string, id belfry.ID, history bool) error {
	return s.DB.Do(ctx, Change, "delete an ended job", func(t Tx) error {
		n, err := t.Exec(`/* delete ended */ UPDATE belfry.ended SET status = 'deleted', updated_at = clock_timestamp() WHERE namespace = $1 AND id = $2 AND status <> 'deleted'`, namespace, id)
		if err == nil && n == 0 {
			err = store.NoSuch("job", id)
		}
		if err != nil || !history {
			return err
		}
		for _, sql := range []string{
			`INSERT INTO belfry.jobs (id, shard, namespace, revision, state, spec, created_at, updated_at, queue, type, purge)
SELECT id, shard, namespace, revision, 'deleted', spec, created_at, updated_at, queue, type, true FROM belfry.ended WHERE id = $1`,
			`INSERT INTO belfry.plans (job_id, shard, version, runs_made, zone_version, one_off) SELECT id, shard, 1, 0, '', true FROM belfry.ended WHERE id = $1`,
			`DELETE FROM belfry.ended WHERE id = $1`,
		} {
			if _, err := t.Exec(`/* purge ended */ `+sql, id); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s Store) Quarantine(ctx context.Context, job belfry.ID, why string) error {
	return s.run(ctx, Write, "quarantine a job", `/* quarantine */ UPDATE belfry.plans SET quarantined = $2 WHERE job_id = $1 AND quarantined IS DISTINCT FROM $2`, job, sanitize.Text(why, store.MaxError))
}

// JobNamespaces looks up one namespace after another in the index of lists, so that it costs
// the same however many jobs there are.
func (s Store) JobNamespaces(ctx context.Context) ([]string, error) {
	return list(ctx, s, Read, "list namespaces", func(name *string) []any { return []any{name} }, `
WITH RECURSIVE found (namespace) AS (
  SELECT (SELECT namespace FROM belfry.jobs WHERE state <> 'deleted' ORDER BY namespace LIMIT 1)
  UNION ALL
  SELECT (SELECT j.namespace FROM belfry.jobs j WHERE j.state <> 'deleted' AND j.namespace > found.namespace ORDER BY j.namespace LIMIT 1) FROM found WHERE found.namespace IS NOT NULL)
SELECT namespace FROM found WHERE namespace IS NOT NULL`)
}

func (s Store) RecordOutages(ctx context.Context, outages []store.Outage) error {
	return runEach(ctx, s, "record outages", outages, func(o *store.Outage) []any { return []any{o.Shard, orNull(o.From), o.To} },
		`/* record outages */ INSERT INTO belfry.outages (shard, began_at, ended_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`)
}

func (s Store) Outages(ctx context.Context, shards []int) ([]store.Outage, error) {
	outages, err := list(ctx, s, Duty, "list outages", func(o *store.Outage) []any { return []any{&o.Shard, &o.From, &o.To} },
		`/* list outages */ SELECT shard, began_at, ended_at FROM belfry.outages WHERE shard = ANY($1::integer[]) ORDER BY ended_at DESC LIMIT $2`, shards, store.MaxOutages)
	slices.Reverse(outages)
	return outages, err
}

func (s Store) AddTraceLinks(ctx context.Context, ids []belfry.ID, traceparent string) error {
	ctx = store.WithAudit(ctx, nil) // its entries belong to what is about to be written
	return s.run(ctx, Write, "add trace links", `/* add trace links */
INSERT INTO belfry.trace_links (id, traceparent, created_at) SELECT id, $2, clock_timestamp() FROM unnest($1::uuid[]) AS l (id) WHERE true ON CONFLICT DO NOTHING`, ids, traceparent)
}

func (s Store) TraceLinks(ctx context.Context, ids []belfry.ID) (map[belfry.ID]string, error) {
	return toMap(list(ctx, s, Read, "look up trace links", pairFields[belfry.ID, string], `/* trace links */ SELECT id, traceparent FROM belfry.trace_links WHERE id = ANY($1::uuid[])`, ids))
}

// HasOthers says whether there are jobs or runs of other namespaces.
const HasOthers = `SELECT EXISTS (SELECT 1 FROM belfry.jobs WHERE namespace <> $1) OR EXISTS (SELECT 1 FROM belfry.ended WHERE namespace <> $1)
    OR EXISTS (SELECT 1 FROM belfry.history WHERE namespace <> $1)`

// PurgeNamespace deletes the rows of a namespace. Those of some tables belong to its jobs.
func PurgeNamespace(t Tx, namespace string) error {
	for _, table := range []string{"plans", "revisions", "keys"} {
		if _, err := t.Exec(`DELETE FROM belfry.`+table+` WHERE job_id IN (SELECT id FROM belfry.jobs WHERE namespace = $1 UNION ALL SELECT id FROM belfry.ended WHERE namespace = $1)`, namespace); err != nil {
			return err
		}
	}
	for _, table := range []string{"triggers", "runs", "attempts", "history", "dead", "ended", "requests", "events", "monitors", "channels", "alerts", "failing", "activity", "jobs"} {
		if _, err := t.Exec(`DELETE FROM belfry.`+table+` WHERE namespace = $1`, namespace); err != nil {
			return err
		}
	}
	return nil
}

func (s Store) PutActivity(ctx context.Context, node belfry.ID, list []store.Activity) error {
	return runEach(ctx, s, "record activity", list, func(a *store.Activity) []any {
		return []any{a.Namespace, a.Minute, node, string(belfry.MustJSON(a.Counts))}
	}, `/* put activity */ INSERT INTO belfry.activity (namespace, minute, node, counts) VALUES ($1, $2, $3, $4)
ON CONFLICT (namespace, minute, node) DO UPDATE SET counts = excluded.counts`)
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
	return s.run(ctx, Write, "record a session", `INSERT INTO belfry.sessions (id, key_hash, person, seen_at) VALUES ($1, $2, $3, clock_timestamp()) ON CONFLICT DO NOTHING`, session.ID[:], session.Key[:], session.Person)
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
