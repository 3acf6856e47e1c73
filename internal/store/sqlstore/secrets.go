package sqlstore

import (
	"context"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

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
	n, err := s.exec(ctx, Write, "delete a secret", `DELETE FROM belfry.secrets WHERE namespace = $1 AND name = $2`, namespace, name)
	if err == nil && n == 0 {
		err = store.NoSuchSecret(name)
	}
	return err
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
	return s.DB.Do(ctx, Change, "save data keys", func(t Tx) error {
		_, err := t.ExecEach(`/* save data keys */
INSERT INTO belfry.data_keys AS k (namespace, version, key_id, wrapped, created_at) VALUES ($1, $2, $3, $4, clock_timestamp())
ON CONFLICT (namespace, version) DO UPDATE SET key_id = excluded.key_id, wrapped = excluded.wrapped WHERE k.key_id = $5`, argsOf(keys, func(k *store.DataKey) []any {
			return []any{k.Namespace, k.Version, k.KeyID, k.Wrapped, from}
		}))
		return err
	})
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
