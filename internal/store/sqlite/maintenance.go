package sqlite

import (
	"context"
	"database/sql"

	"github.com/belfry-sh/belfry/internal/store"
)

const (
	selectNamespaces = `WITH RECURSIVE found (namespace) AS (
  SELECT min(namespace) FROM jobs WHERE state <> 'deleted'
  UNION ALL
  SELECT (SELECT min(j.namespace) FROM jobs j WHERE j.state <> 'deleted' AND j.namespace > found.namespace) FROM found WHERE found.namespace IS NOT NULL)
SELECT namespace FROM found WHERE namespace IS NOT NULL`
	hasOthers = `SELECT EXISTS (SELECT 1 FROM jobs WHERE namespace <> ?1) OR EXISTS (SELECT 1 FROM ended WHERE namespace <> ?1) OR EXISTS (SELECT 1 FROM history WHERE namespace <> ?1)`
)

// Namespaces looks up one namespace after another in the index of lists, so that it costs
// the same however many jobs there are.
func (s *Store) Namespaces(ctx context.Context) ([]string, error) {
	return readAll(ctx, s, "list namespaces", func(rows *sql.Rows, name *string) error { return rows.Scan(name) }, selectNamespaces)
}

// DeleteNamespace deletes without a condition where the tables have nothing else, which
// SQLite does without a look at the rows.
func (s *Store) DeleteNamespace(ctx context.Context, namespace string) error {
	return s.write(ctx, "delete a namespace", func(t *tx) error {
		others, err := t.exists(hasOthers, namespace)
		if err != nil {
			return err
		}
		if !others {
			for _, table := range []string{"plans", "revisions", "keys", "jobs", "triggers", "runs", "attempts", "history", "dead", "ended"} {
				if err := t.run(`DELETE FROM ` + table); err != nil {
					return err
				}
			}
		}
		for _, table := range []string{"plans", "revisions", "keys"} {
			if err := t.run(`DELETE FROM `+table+` WHERE job_id IN (SELECT id FROM jobs WHERE namespace = ?1 UNION ALL SELECT id FROM ended WHERE namespace = ?1)`, namespace); err != nil {
				return err
			}
		}
		for _, table := range []string{"triggers", "runs", "attempts", "history", "dead", "ended", "requests", "events", "jobs"} {
			if err := t.run(`DELETE FROM `+table+` WHERE namespace = ?`, namespace); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Store) Usage(ctx context.Context) (store.Usage, error) {
	return readValue(ctx, s, "measure the tables", func(t *tx) (u store.Usage, err error) {
		err = t.get([]any{&u.Bytes}, `SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size`)
		return u, err
	})
}
