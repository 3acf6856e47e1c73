package sqlstore

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	selectAPIKeys = `SELECT id, key_id, hash, spec, used_at FROM belfry.api_keys `
	insertAPIKey  = `INSERT INTO belfry.api_keys (id, key_id, hash, spec, changed_at) VALUES ($1, $2, $3, $4, clock_timestamp()) ON CONFLICT DO NOTHING`
)

// apiKeyRow is a key with its hash as the database has it.
type apiKeyRow struct {
	store.APIKey
	hash []byte
}

func apiKeyFields(r *apiKeyRow) []any {
	return []any{&r.Order, &r.ID, &r.hash, store.JSONColumn{To: &r.APIKey.APIKey}, &r.LastUsedAt}
}

// apiKeys are the keys of rows. A hash of another length belongs to no secret.
func apiKeys(rows []apiKeyRow) []store.APIKey {
	list := make([]store.APIKey, len(rows))
	for i, r := range rows {
		list[i] = r.APIKey
		copy(list[i].Hash[:], r.hash)
	}
	return list
}

func apiKeyValues(k store.APIKey) []any {
	spec := k.APIKey
	spec.ID, spec.Key, spec.Status, spec.LastUsedAt, spec.ExpiresSeconds = "", "", "", nil, belfry.Optional[int]{}
	return []any{k.Order, k.ID, k.Hash[:], string(belfry.MustJSON(spec))}
}

func (s Store) CreateAPIKey(ctx context.Context, k store.APIKey) (bool, error) {
	n, err := s.exec(ctx, Write, "create an API key", insertAPIKey, apiKeyValues(k)...)
	return n > 0, err
}

func (s Store) ListAPIKeys(ctx context.Context, page store.Page) ([]store.APIKey, error) {
	rows, err := list(ctx, s, Read, "list API keys", apiKeyFields, selectAPIKeys+`WHERE id < $1 ORDER BY id DESC LIMIT $2`, startAfter(page), page.Limit)
	return apiKeys(rows), err
}

func (s Store) ChangedAPIKeys(ctx context.Context, since time.Time) (keys []store.APIKey, at time.Time, err error) {
	err = s.DB.Do(ctx, Duty, "read API keys", func(t Tx) error {
		if at, err = now(t); err != nil {
			return err
		}
		rows, err := all(t, apiKeyFields, selectAPIKeys+`WHERE changed_at >= $1`, since)
		keys = apiKeys(rows)
		return err
	})
	return keys, at, err
}

func (s Store) EditAPIKey(ctx context.Context, id string, edit store.EditAPIKey) (k store.APIKey, err error) {
	var refused error
	err = s.DB.Do(ctx, Change, "edit an API key", func(t Tx) error {
		rows, err := all(t, apiKeyFields, selectAPIKeys+`WHERE key_id = $1 FOR UPDATE`, id)
		if _, err = first(rows, err, store.NoSuchAPIKey(id)); err != nil {
			return err
		}
		k = apiKeys(rows)[0]
		at, err := now(t)
		if err != nil {
			return err
		}
		changed, added, err := edit(k, at)
		if refused = err; err == nil && added != nil {
			_, err = t.Exec(insertAPIKey, apiKeyValues(*added)...)
		}
		if err == nil && changed != nil {
			k = *changed
			_, err = t.Exec(`UPDATE belfry.api_keys SET key_id = $2, hash = $3, spec = $4, changed_at = clock_timestamp() WHERE id = $1`, apiKeyValues(k)...)
		}
		return err
	})
	if err != nil {
		return store.APIKey{}, cmp.Or(refused, err)
	}
	return k, nil
}

func (s Store) UseAPIKeys(ctx context.Context, used map[string]time.Time) error {
	var args [][]any
	for id, at := range used {
		args = append(args, []any{id, at})
	}
	return s.DB.Do(ctx, Change, "record the use of API keys", func(t Tx) error {
		_, err := t.ExecEach(`UPDATE belfry.api_keys SET used_at = greatest(coalesce(used_at, $2), $2) WHERE key_id = $1`, args)
		return err
	})
}

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

const secretColumns = `namespace, name, value, coalesce(previous, ''), previous_until, allowed_hosts, created_at, updated_at`

// secretRow is a secret as it is stored.
type secretRow struct {
	store.SecretRecord
	hosts string
}

func secretFields(r *secretRow) []any {
	return []any{&r.Namespace, &r.Name, &r.Value, &r.Previous, &r.PreviousUntil, &r.hosts, &r.CreatedAt, &r.UpdatedAt}
}

func secretRecords(rows []secretRow) (records []store.SecretRecord) {
	for _, r := range rows {
		r.AllowedHosts = strings.Fields(r.hosts)
		records = append(records, r.SecretRecord)
	}
	return records
}

func (s Store) PutSecret(ctx context.Context, r store.SecretRecord, keep time.Duration) (store.SecretRecord, error) {
	saved, err := list(ctx, s, Write, "save a secret", secretFields, `/* put secret */
INSERT INTO belfry.secrets AS s (namespace, name, value, allowed_hosts, created_at, updated_at) VALUES ($1, $2, $3, $4, clock_timestamp(), clock_timestamp())
ON CONFLICT (namespace, name) DO UPDATE SET value = excluded.value, allowed_hosts = excluded.allowed_hosts, updated_at = excluded.updated_at,
       previous = CASE WHEN s.value = excluded.value THEN s.previous WHEN $5 THEN s.value END,
       previous_until = CASE WHEN s.value = excluded.value THEN s.previous_until WHEN $5 THEN clock_timestamp() + $6::interval END
RETURNING `+secretColumns, r.Namespace, r.Name, r.Value, strings.Join(r.AllowedHosts, " "), keep > 0, keep)
	return first(secretRecords(saved), err, store.NoSuchSecret(r.Name))
}

func (s Store) Secret(ctx context.Context, namespace, name string) (store.SecretRecord, error) {
	rows, err := list(ctx, s, Duty, "look up a secret", secretFields, `/* secret */ SELECT `+secretColumns+` FROM belfry.secrets WHERE namespace = $1 AND name = $2`, namespace, name)
	return first(secretRecords(rows), err, store.NoSuchSecret(name))
}

func (s Store) ListSecrets(ctx context.Context, namespace string) ([]store.SecretRecord, error) {
	rows, err := list(ctx, s, Read, "list secrets", secretFields, `SELECT `+secretColumns+` FROM belfry.secrets WHERE $1 = '' OR namespace = $1 ORDER BY namespace, name`, namespace)
	return secretRecords(rows), err
}

func (s Store) DeleteSecret(ctx context.Context, namespace, name string) error {
	return s.runFound(ctx, "delete a secret", store.NoSuchSecret(name), `DELETE FROM belfry.secrets WHERE namespace = $1 AND name = $2`, namespace, name)
}

func (s Store) JobsWithText(ctx context.Context, namespace string, texts [2]string, limit int) ([]store.TextJob, error) {
	return list(ctx, s, Search, "find jobs by their payload", func(j *store.TextJob) []any { return []any{&j.ID, &j.Name, &j.Payload} },
		`SELECT id, coalesce(name, ''), payload FROM belfry.jobs WHERE namespace = $1 AND state <> 'deleted' AND (payload LIKE $2 OR payload LIKE $3) ORDER BY id LIMIT $4`,
		namespace, "%"+texts[0]+"%", "%"+texts[1]+"%", limit)
}

func (s Store) DataKeys(ctx context.Context, namespace string) ([]store.DataKey, error) {
	return list(ctx, s, Duty, "read the data keys", func(k *store.DataKey) []any { return []any{&k.Namespace, &k.Version, &k.KeyID, &k.Wrapped} },
		`/* data keys */ SELECT namespace, version, key_id, wrapped FROM belfry.data_keys WHERE $1 = '' OR namespace = $1 ORDER BY namespace, version`, namespace)
}

func (s Store) SaveDataKeys(ctx context.Context, from string, keys []store.DataKey) error {
	return runEach(ctx, s, "save data keys", keys, func(k *store.DataKey) []any { return []any{k.Namespace, k.Version, k.KeyID, k.Wrapped, from} }, `/* save data keys */
INSERT INTO belfry.data_keys AS k (namespace, version, key_id, wrapped, created_at) VALUES ($1, $2, $3, $4, clock_timestamp())
ON CONFLICT (namespace, version) DO UPDATE SET key_id = excluded.key_id, wrapped = excluded.wrapped WHERE k.key_id = $5`)
}

// textColumn is where a table has its encrypted text.
func textColumn(table string) string {
	switch table {
	case "channels":
		return "spec"
	case "secrets":
		return "value"
	}
	return "payload"
}

func (s Store) EncryptedTexts(ctx context.Context, after store.TextPlace, limit int) ([]store.EncryptedText, error) {
	fields := func(e *store.EncryptedText) []any { return []any{&e.ID, &e.Revision, &e.Namespace, &e.JobID, &e.Text} }
	args := []any{after.ID, limit}
	var sql string
	switch after.Table {
	case "jobs", "ended":
		sql = `SELECT id, 0, namespace, id, payload FROM belfry.` + after.Table + ` WHERE id > $1 AND payload IS NOT NULL ORDER BY id LIMIT $2`
	case "triggers", "runs", "dead":
		sql = `SELECT id, 0, namespace, job_id, payload FROM belfry.` + after.Table + ` WHERE id > $1 AND payload IS NOT NULL ORDER BY id LIMIT $2`
	case "revisions":
		args = append(args, after.Revision)
		sql = `SELECT job_id, revision, coalesce((SELECT namespace FROM belfry.jobs j WHERE j.id = job_id), (SELECT namespace FROM belfry.ended e WHERE e.id = job_id), ''), job_id, payload
  FROM belfry.revisions WHERE (job_id, revision) > ($1, $3) AND payload IS NOT NULL ORDER BY job_id, revision LIMIT $2`
	default:
		args = []any{after.Namespace, after.Name, limit}
		fields = func(e *store.EncryptedText) []any { return []any{&e.Namespace, &e.Name, &e.Text} }
		sql = `SELECT namespace, name, ` + textColumn(after.Table) + ` FROM belfry.` + after.Table + ` WHERE (namespace, name) > ($1, $2) ORDER BY namespace, name LIMIT $3`
	}
	texts, err := list(ctx, s, Read, "read encrypted texts", fields, `/* encrypted texts */ `+sql, args...)
	for i := range texts {
		texts[i].Table = after.Table
	}
	return texts, err
}

func (s Store) ReplaceTexts(ctx context.Context, texts []store.EncryptedText, by []string) (n int, err error) {
	err = s.DB.Do(ctx, Change, "replace encrypted texts", func(t Tx) error {
		n = 0
		for i, e := range texts {
			where, args := ` WHERE id = $3`, []any{by[i], e.Text, e.ID}
			switch {
			case e.ID == belfry.ID{}:
				where, args = ` WHERE namespace = $3 AND name = $4`, []any{by[i], e.Text, e.Namespace, e.Name}
			case e.Table == "revisions":
				where, args = ` WHERE job_id = $3 AND revision = $4`, append(args, e.Revision)
			}
			column := textColumn(e.Table)
			changed, err := t.Exec(`UPDATE belfry.`+e.Table+` SET `+column+` = $1`+where+` AND `+column+` = $2`, args...)
			if err != nil {
				return err
			}
			n += changed
		}
		return nil
	})
	return n, err
}
