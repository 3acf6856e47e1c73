package sqlstore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/cache"
	"github.com/belfry-sh/belfry/internal/store"
)

// Quotas are the quotas of all namespaces as they were lately.
type Quotas struct {
	fresh cache.Cache[struct{}, map[string]belfry.Quota]
	last  atomic.Pointer[map[string]belfry.Quota] // for when the database does not answer
}

const (
	selectNamespaces = `SELECT name, quota, created_at, updated_at FROM belfry.namespaces `

	// Both databases know the length of a text without reading all of it.
	storedBytes = `coalesce(sum(octet_length(spec) + coalesce(octet_length(payload), 0)), 0)::bigint`
)

func namespaceFields(n *belfry.Namespace) []any {
	return []any{&n.Name, store.JSONColumn{To: &n.Quota}, &n.CreatedAt, &n.UpdatedAt}
}

func (s Store) Namespaces(ctx context.Context) ([]belfry.Namespace, error) {
	return list(ctx, s, Duty, "list namespaces", namespaceFields, `/* namespaces */ `+selectNamespaces+`ORDER BY name COLLATE "C"`)
}

func (s Store) Quota(ctx context.Context, namespace string) (belfry.Quota, error) {
	quotas, err := s.Quotas.fresh.Get(ctx, struct{}{}, store.QuotaAge, func(ctx context.Context) (map[string]belfry.Quota, error) {
		found, err := s.Namespaces(ctx)
		if last := s.Quotas.last.Load(); err != nil && last != nil {
			return *last, nil
		}
		quotas := make(map[string]belfry.Quota, len(found))
		for _, n := range found {
			quotas[n.Name] = n.Quota
		}
		if err == nil {
			s.Quotas.last.Store(&quotas)
		}
		return quotas, err
	})
	return quotas[namespace], err
}

func (s Store) NamespaceUsage(ctx context.Context, namespace string) (map[string]belfry.Usage, error) {
	type count struct {
		name  string
		usage belfry.Usage
	}
	usage := map[string]belfry.Usage{}
	err := s.DB.Do(ctx, Search, "count what namespaces use", func(t Tx) error {
		counts, err := all(t, func(c *count) []any { return []any{&c.name, &c.usage.Jobs, &c.usage.StoredBytes} }, `/* namespace usage */
SELECT namespace, count(*), `+storedBytes+` FROM belfry.jobs WHERE state <> 'deleted' AND ($1::text = '' OR namespace = $1::text) GROUP BY namespace`, namespace)
		for _, c := range counts {
			usage[c.name] = c.usage
		}
		if err != nil {
			return err
		}
		running, err := all(t, func(c *count) []any { return []any{&c.name, &c.usage.Running} }, `/* namespace usage */
SELECT namespace, count(*) FROM belfry.runs WHERE state = 'running' AND ($1::text = '' OR namespace = $1::text) GROUP BY namespace`, namespace)
		for _, c := range running {
			u := usage[c.name]
			u.Running = c.usage.Running
			usage[c.name] = u
		}
		return err
	})
	return usage, err
}

func (s Store) CreateNamespace(ctx context.Context, n belfry.Namespace) error {
	defer s.Quotas.fresh.Clear()
	return s.DB.Do(ctx, Change, "create a namespace", func(t Tx) error {
		changed, err := t.Exec(`INSERT INTO belfry.namespaces (name, quota, created_at, updated_at, limited_at)
SELECT $1::text, $2::text, $3::timestamptz, $3::timestamptz, clock_timestamp() WHERE (SELECT count(*) FROM belfry.namespaces) < $4::bigint
ON CONFLICT (name) DO NOTHING`, n.Name, string(belfry.MustJSON(n.Quota)), n.CreatedAt, store.MaxNamespaces)
		if err != nil || changed > 0 {
			return err
		}
		found, err := all(t, namespaceFields, selectNamespaces+`WHERE name = $1`, n.Name)
		switch {
		case err != nil:
			return err
		case len(found) == 0:
			return belfry.Errorf(belfry.Conflict, "there are %d namespaces, which is the most: delete one first", store.MaxNamespaces)
		case !found[0].CreatedAt.Equal(n.CreatedAt):
			return store.NameTaken("namespace", n.Name)
		}
		return nil // The reply to an earlier call was lost.
	})
}

func (s Store) EditNamespace(ctx context.Context, name string, edit store.EditQuota) (n belfry.Namespace, err error) {
	defer s.Quotas.fresh.Clear()
	var refused error
	err = s.DB.Do(ctx, Change, "edit a namespace", func(t Tx) error {
		if _, err := t.Exec(`INSERT INTO belfry.namespaces (name, quota, created_at, updated_at, limited_at)
VALUES ($1, '{}', clock_timestamp(), clock_timestamp(), clock_timestamp()) ON CONFLICT (name) DO NOTHING`, name); err != nil {
			return err
		}
		found, err := all(t, namespaceFields, selectNamespaces+`WHERE name = $1 FOR UPDATE`, name)
		if n, err = first(found, err, store.NoSuchNamespace(name)); err != nil {
			return err
		}
		before := n.Quota
		if n.Quota, refused = edit(before); refused != nil || n.Quota == before {
			return refused
		}
		if n.UpdatedAt, err = now(t); err != nil {
			return err
		}
		newlyLimited := n.MaxJobs > 0 && before.MaxJobs == 0 || n.MaxStoredBytes > 0 && before.MaxStoredBytes == 0
		_, err = t.Exec(`UPDATE belfry.namespaces SET quota = $2, updated_at = $3, limited_at = CASE WHEN $4 THEN $3 ELSE limited_at END,
jobs = CASE WHEN $4 THEN -1 ELSE jobs END, bytes = CASE WHEN $4 THEN -1 ELSE bytes END WHERE name = $1`, name, string(belfry.MustJSON(n.Quota)), n.UpdatedAt, newlyLimited)
		return err
	})
	if err != nil {
		return belfry.Namespace{}, cmp.Or(refused, err)
	}
	return n, nil
}

func (s Store) DeleteNamespace(ctx context.Context, name string) error {
	defer s.Quotas.fresh.Clear()
	return s.DB.Do(ctx, Change, "delete a namespace", func(t Tx) error {
		if _, err := t.Exec(`DELETE FROM belfry.namespaces WHERE name = $1`, name); err != nil {
			return err
		}
		jobs, err := held(t, name, `count(*)`)
		if err == nil && jobs > 0 {
			err = belfry.Errorf(belfry.Conflict, "the namespace %s has %d jobs: delete them first", name, jobs)
		}
		return err
	})
}

// held counts what a namespace has.
func held(t Tx, namespace, count string) (n int64, err error) {
	err = t.Query([]any{&n}, func() {}, `/* count jobs */ SELECT `+count+` FROM belfry.jobs WHERE namespace = $1 AND state <> 'deleted'`, namespace)
	return n, err
}

// IsLimited reports whether a namespace of the jobs has a quota that Reserve has to check.
func (s Store) IsLimited(ctx context.Context, usage map[string]belfry.Usage) (bool, error) {
	for namespace := range usage {
		if q, err := s.Quota(ctx, namespace); err != nil || store.IsLimited(q) {
			return err == nil, err
		}
	}
	return false, nil
}

// ReserveJobs is Reserve for new jobs. If all of them exist already, the reply to an earlier
// call was lost, and there is nothing to check.
func ReserveJobs(t Tx, pending *store.Spool) error {
	for _, namespace := range slices.Sorted(maps.Keys(pending.Usage())) { // in one order, so that no two wait for each other
		refused := Reserve(t, namespace, pending.Usage()[namespace])
		if belfry.CodeOf(refused) != belfry.QuotaExceeded {
			if refused != nil {
				return refused
			}
			continue
		}
		var ids []belfry.ID
		if err := pending.Each(func(r *store.NewRow) error { ids = append(ids, r.ID); return nil }); err != nil {
			return err
		}
		var existing int
		err := t.Query([]any{&existing}, func() {}, `/* create */
SELECT (SELECT count(*) FROM belfry.jobs WHERE id = ANY($1::uuid[])) + (SELECT count(*) FROM belfry.ended WHERE id = ANY($1::uuid[]))`, ids)
		if err != nil || existing < len(ids) {
			return cmp.Or(err, refused)
		}
	}
	return nil
}

// ReserveGrowth is Reserve for an edit, if the job becomes larger.
func ReserveGrowth(t Tx, before, after belfry.Job) error {
	specs := new(store.SpecEncoder)
	old, err := specs.Encode(before.Spec)
	if err != nil {
		return err
	}
	edited, err := specs.Encode(after.Spec)
	if err != nil {
		return err
	}
	if growth := len(edited) + len(after.Payload) - len(old) - len(before.Payload); growth > 0 && after.State != belfry.JobDeleted {
		return Reserve(t, after.Namespace, belfry.Usage{StoredBytes: int64(growth)})
	}
	return nil
}

// Reserve makes room in a namespace for what is about to be written, if its quota allows that.
// It locks the quota until the transaction ends. The row has what the namespace has at most,
// since what ends is not subtracted; only if that is too much, it is counted.
func Reserve(t Tx, namespace string, more belfry.Usage) error {
	var row struct {
		quota       belfry.Quota
		jobs, bytes int64
		limitedAt   time.Time
	}
	known := false
	err := t.Query([]any{store.JSONColumn{To: &row.quota}, &row.jobs, &row.bytes, &row.limitedAt}, func() { known = true },
		`/* reserve */ SELECT quota, jobs, bytes, limited_at FROM belfry.namespaces WHERE name = $1 FOR UPDATE`, namespace)
	if err != nil || !known {
		return err
	}
	at, err := now(t)
	if err != nil {
		return err
	}
	for _, r := range []struct {
		field, what string
		limit, more int64
		held        *int64
		count       string
	}{
		{"max_jobs", "jobs", int64(row.quota.MaxJobs), more.Jobs, &row.jobs, `count(*)`},
		{"max_stored_bytes", "bytes", row.quota.MaxStoredBytes, more.StoredBytes, &row.bytes, storedBytes},
	} {
		if r.limit == 0 || r.more == 0 {
			continue
		}
		if *r.held < 0 || *r.held+r.more > r.limit || at.Sub(row.limitedAt) < store.QuotaSettleTime {
			if *r.held, err = held(t, namespace, r.count); err != nil {
				return err
			}
		}
		if *r.held+r.more > r.limit {
			return store.QuotaExceeded(namespace, r.field, r.what, r.limit, *r.held, r.more)
		}
		*r.held += r.more
	}
	_, err = t.Exec(`/* reserve */ UPDATE belfry.namespaces SET jobs = $2, bytes = $3 WHERE name = $1`, namespace, row.jobs, row.bytes)
	return err
}
