package sqlstore

import (
	"cmp"
	"context"
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
