package sqlite

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	holdLease = `INSERT INTO leases (name, owner, epoch, expires_at) VALUES (?, ?, 1, ?)
ON CONFLICT (name) DO UPDATE SET
  owner = excluded.owner,
  epoch = leases.epoch + (leases.owner <> excluded.owner),
  expires_at = excluded.expires_at
WHERE leases.owner = excluded.owner OR leases.expires_at <= ?
RETURNING name, owner, epoch`

	// The rows stay, so that the epochs go on growing.
	releaseLease = `UPDATE leases SET expires_at = ? WHERE name = ? AND owner = ? AND expires_at > ?`

	selectLeases = `SELECT name, owner, epoch FROM leases WHERE substr(name, 1, length(?)) = ? AND expires_at > ? ORDER BY name`
)

func leaseFields(l *store.Lease) []any { return []any{&l.Name, bytesColumn{l.Owner[:]}, &l.Epoch} }

func (s *Store) Hold(ctx context.Context, owner belfry.ID, names []string, ttl time.Duration) ([]store.Lease, error) {
	return writeValue(ctx, s, "hold leases", func(t *tx) (leases []store.Lease, err error) {
		for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
			var l store.Lease
			held, err := t.find(leaseFields(&l), holdLease, name, owner[:], micro(t.now.Add(ttl)), micro(t.now))
			if err != nil {
				return nil, err
			}
			if held {
				leases = append(leases, l)
			}
		}
		return leases, nil
	})
}

func (s *Store) Release(ctx context.Context, owner belfry.ID, names []string) error {
	return s.write(ctx, "release leases", func(t *tx) error {
		for _, name := range names {
			if _, err := t.exec(releaseLease, micro(t.now), name, owner[:], micro(t.now)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Store) Held(ctx context.Context, prefix string) ([]store.Lease, error) {
	return readValue(ctx, s, "list leases", func(t *tx) ([]store.Lease, error) {
		return all(t, func(rows *sql.Rows, l *store.Lease) error { return rows.Scan(leaseFields(l)...) }, selectLeases, prefix, prefix, micro(t.now))
	})
}
