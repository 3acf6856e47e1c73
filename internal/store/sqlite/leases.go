package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const hold = `INSERT INTO leases (name, owner, epoch, expires_at) VALUES (?, ?, 1, ?)
ON CONFLICT (name) DO UPDATE SET
  owner = excluded.owner,
  epoch = leases.epoch + (leases.owner <> excluded.owner),
  expires_at = excluded.expires_at
WHERE leases.owner = excluded.owner OR leases.expires_at <= ?
RETURNING name, owner, epoch`

func leaseFields(l *store.Lease) []any { return []any{&l.Name, key{l.Owner[:]}, &l.Epoch} }

// Hold takes or renews each name unless somebody else holds it.
func (s *Store) Hold(ctx context.Context, owner belfry.ID, names []string, ttl time.Duration) (leases []store.Lease, err error) {
	err = s.write(ctx, "hold leases", func(t *tx) error {
		for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
			var l store.Lease
			err := t.get(leaseFields(&l), hold, name, owner[:], micro(t.now.Add(ttl)), micro(t.now))
			if errors.Is(err, sql.ErrNoRows) {
				continue
			}
			if err != nil {
				return err
			}
			leases = append(leases, l)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return leases, nil
}

// Release ends the owner's hold. The rows stay, so that the epochs go on growing.
func (s *Store) Release(ctx context.Context, owner belfry.ID, names []string) error {
	return s.write(ctx, "release leases", func(t *tx) error {
		for _, name := range names {
			if _, err := t.exec(`UPDATE leases SET expires_at = ? WHERE name = ? AND owner = ? AND expires_at > ?`,
				micro(t.now), name, owner[:], micro(t.now)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Held lists the leases whose name starts with prefix and that have not expired.
func (s *Store) Held(ctx context.Context, prefix string) (leases []store.Lease, err error) {
	err = s.read(ctx, "list leases", func(t *tx) error {
		leases, err = all(t, func(rows *sql.Rows, l *store.Lease) error { return rows.Scan(leaseFields(l)...) },
			`SELECT name, owner, epoch FROM leases WHERE substr(name, 1, length(?)) = ? AND expires_at > ? ORDER BY name`, prefix, prefix, micro(t.now))
		return err
	})
	return leases, err
}
