package sqlstore

import (
	"context"
	"fmt"

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
	_, err := s.exec(ctx, Write, "quarantine a job", `/* quarantine */ UPDATE belfry.plans SET quarantined = $2 WHERE job_id = $1 AND quarantined IS DISTINCT FROM $2`, job, sanitize.Text(why, store.MaxError))
	return err
}
