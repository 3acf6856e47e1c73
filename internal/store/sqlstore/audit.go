package sqlstore

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// RecordAudit adds the audit entries of a context. A transaction that may be that of a request
// calls it just before its commit.
func RecordAudit(ctx context.Context, t Tx) error {
	entries := store.AuditOf(ctx).Entries()
	if len(entries) == 0 {
		return nil
	}
	_, err := t.ExecEach(`/* record audit */ INSERT INTO belfry.audit (id, namespace, job_id, first_id, last_id, actor_id, actor_name, action, body)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING`, argsOf(entries, func(e *belfry.AuditEntry) []any {
		var first belfry.ID
		if !e.Object.LastID.IsZero() {
			_ = first.UnmarshalText([]byte(e.Object.ID)) // of an import, which the program wrote
		}
		return []any{e.ID, e.Namespace, orNull(e.JobID), orNull(first), orNull(e.Object.LastID), e.Actor.ID, e.Actor.Name, string(e.Action), string(belfry.MustJSON(e))}
	}))
	return err
}

func (s Store) AddAudit(ctx context.Context, e belfry.AuditEntry) error {
	a := &store.Audit{}
	a.Set(e)
	return s.DB.Do(store.WithAudit(ctx, a), Change, "record an audit entry", func(Tx) error { return nil })
}

// ListAudit is a page of the entries that a scan reads, see AuditScan.
func ListAudit(scan string) string {
	return `/* list audit */ SELECT body FROM (SELECT * FROM belfry.audit WHERE ` + scan + ` LIMIT $4) a
 WHERE ($6 = '' OR actor_id = $6 OR actor_name = $6) AND ($7 = '' OR action = $7) ORDER BY id DESC LIMIT $8`
}

// FindImport finds the import of job $4 among the entries of the instant of the job's id.
const FindImport = `/* list audit */ SELECT body FROM belfry.audit
 WHERE namespace = $1 AND id < $2 AND id >= $3 AND first_id <= $4 AND last_id >= $4 AND ($5 = '' OR actor_id = $5 OR actor_name = $5) AND ($6 = '' OR action = $6) ORDER BY namespace DESC, id DESC LIMIT 1`

// AuditScan is the entries that an index has in order: of namespace $1, below id $2, from id $3
// on; $5 is the job.
func AuditScan(f belfry.AuditFilter) string {
	const between = ` AND id < $2 AND id >= $3`
	switch {
	case !f.JobID.IsZero():
		return `job_id = $5 AND namespace = $1` + between + ` ORDER BY job_id DESC, id DESC`
	case f.Scope == belfry.AuditAll:
		return `$1::text IS NOT NULL AND $5::uuid IS NOT NULL` + between + ` ORDER BY id DESC`
	}
	return `namespace = $1 AND $5::uuid IS NOT NULL` + between + ` ORDER BY namespace DESC, id DESC`
}

// ListAudit scans a bounded number of entries, more if there is time. The first entry of a job
// may be that of an import, which is not among those of the job: its id has the same instant.
func (s Store) ListAudit(ctx context.Context, namespace string, f belfry.AuditFilter, page store.Page) (found store.AuditList, err error) {
	if f.Scope == belfry.AuditGlobal {
		namespace = ""
	}
	after, since, scan, started := startAfter(page), store.FirstID(f.Since), AuditScan(f), time.Now()
	if !f.Until.IsZero() {
		after = lower(after, store.FirstID(f.Until))
	}
	scanned := s.ScanLimit
	if f.Actor == "" && f.Action == "" { // All of them match.
		scanned = page.Limit
	}
	fields := func(e *belfry.AuditEntry) []any { return []any{store.JSONColumn{To: e}} }
	err = s.DB.Do(ctx, Scan, "list audit entries", func(t Tx) error {
		for limit := page.Limit; limit > 0; after = found.Next {
			entries, err := all(t, fields, ListAudit(scan), namespace, after, since, scanned, f.JobID, f.Actor, string(f.Action), limit)
			if err != nil {
				return err
			}
			found.Entries, found.Next = append(found.Entries, entries...), belfry.ID{}
			if limit -= len(entries); limit == 0 {
				found.Next = entries[len(entries)-1].ID
				return nil
			}
			if err := t.Query([]any{&found.Next}, func() {}, `/* list audit */ SELECT id FROM belfry.audit WHERE `+scan+` LIMIT 1 OFFSET $4`, namespace, after, since, scanned-1, f.JobID); err != nil {
				return err
			}
			if found.Next.IsZero() && !f.JobID.IsZero() {
				created := f.JobID.Time()
				if from := created.Add(-time.Millisecond); from.After(f.Since) {
					since = store.FirstID(from)
				}
				imports, err := all(t, fields, FindImport, namespace, lower(after, store.FirstID(created.Add(time.Millisecond))), since, f.JobID, f.Actor, string(f.Action))
				found.Entries = append(found.Entries, imports...)
				return err
			}
			if found.Next.IsZero() || time.Since(started) > s.SearchTime {
				return nil
			}
		}
		return nil
	})
	return found, err
}

// PruneAudit is the only statement that deletes entries, and none updates them.
const PruneAudit = `/* prune audit */ DELETE FROM belfry.audit WHERE id IN (SELECT id FROM belfry.audit WHERE id < $1 ORDER BY id LIMIT $2)`

func lower(a, b belfry.ID) belfry.ID {
	if a.Compare(b) < 0 {
		return a
	}
	return b
}

func (s Store) PruneAudit(ctx context.Context, keep time.Duration) (pruned int, err error) {
	const batch = 5000
	for {
		n := 0
		err := s.DB.Do(ctx, Change, "prune audit entries", func(t Tx) error {
			at, err := now(t)
			if err == nil {
				n, err = t.Exec(PruneAudit, store.FirstID(at.Add(-keep)), batch)
			}
			return err
		})
		if pruned += n; err != nil || n < batch {
			return pruned, err
		}
	}
}
