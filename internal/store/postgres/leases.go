package postgres

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// Hold takes or renews each name unless another owner holds it. It is not detached: an
// owner that stopped waiting must not believe in a lease, and a lease that is taken
// without its owner's knowledge expires.
func (s *Store) Hold(ctx context.Context, owner belfry.ID, names []string, ttl time.Duration) ([]store.Lease, error) {
	leases, err := collect(ctx, s.priorityPool, scanInto(leaseFields), `/* hold */
INSERT INTO belfry.leases AS l (name, owner, epoch, expires_at)
SELECT name, $1, 1, clock_timestamp() + $3 * interval '1 millisecond' FROM (SELECT DISTINCT unnest($2::text[]) AS name) n ORDER BY name
ON CONFLICT (name) DO UPDATE
   SET owner = excluded.owner, epoch = l.epoch + CASE WHEN l.owner = excluded.owner THEN 0 ELSE 1 END,
       expires_at = clock_timestamp() + $3 * interval '1 millisecond'
 WHERE l.owner = excluded.owner OR l.expires_at <= clock_timestamp()
RETURNING name, owner, epoch`, uuid(owner), names, ttl.Milliseconds())
	return leases, wrapError("hold leases", err)
}

func (s *Store) Release(ctx context.Context, owner belfry.ID, names []string) error {
	_, err := s.priorityPool.Exec(ctx, `UPDATE belfry.leases SET expires_at = clock_timestamp() WHERE owner = $1 AND name = ANY($2)`, uuid(owner), names)
	return wrapError("release leases", err)
}

func (s *Store) Held(ctx context.Context, prefix string) ([]store.Lease, error) {
	leases, err := collect(ctx, s.priorityPool, scanInto(leaseFields),
		`SELECT name, owner, epoch FROM belfry.leases WHERE starts_with(name, $1) AND expires_at > clock_timestamp() ORDER BY name`, prefix)
	return leases, wrapError("list leases", err)
}

func leaseFields(l *store.Lease) []any { return []any{&l.Name, idColumn(&l.Owner), &l.Epoch} }
