package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"math"

	"github.com/belfry-sh/belfry"
)

const selectRevisions = `SELECT revision, spec, payload, replaced_at FROM revisions
WHERE job_id = ? AND revision < ? ORDER BY revision DESC LIMIT ?`

// Revisions gives the earlier revisions of a job, latest first.
func (s *Store) Revisions(ctx context.Context, namespace string, id belfry.ID, before, limit int) (revisions []belfry.Revision, err error) {
	below := int64(before)
	if before == 0 {
		below = math.MaxInt64
	}
	err = s.read(ctx, "list the revisions of a job", func(t *tx) error {
		if _, err := t.visibleJob(namespace, id); err != nil {
			return err
		}
		revisions, err = all(t, t.scanRevision, selectRevisions, id[:], below, atMost(limit))
		return err
	})
	return revisions, err
}

func (t *tx) scanRevision(rows *sql.Rows, r *belfry.Revision) error {
	var spec string
	err := rows.Scan(&r.Number, &spec, payload{&r.Payload}, maybe{&r.ReplacedAt})
	if err != nil {
		return err
	}
	if r.Spec, err = t.specs.Decode(spec); err != nil {
		return fmt.Errorf("revision %d: %w", r.Number, err)
	}
	return nil
}
