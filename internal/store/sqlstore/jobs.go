package sqlstore

import (
	"context"
	"fmt"

	"github.com/belfry-sh/belfry"
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
	err = s.DB.Do(ctx, Read, "look up a request", func(t Tx) error {
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
