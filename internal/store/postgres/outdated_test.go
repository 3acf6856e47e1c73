package postgres

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
)

// A look for few outdated plans among many ends in time, and loses none.
func TestALookForOutdatedPlansEnds(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate)})
	const plans = 2*zoneUpdateScanLimit + 100
	for _, statement := range []string{
		`INSERT INTO belfry.plans (job_id, shard, version, next_at, nominal_at, runs_made, zone_version)
			SELECT gen_random_uuid(), 0, 1, now(), now(), 0, '2000a' FROM generate_series(1, $1::integer)`,
		`UPDATE belfry.plans SET zone_version = '1999a' WHERE job_id IN
			(SELECT job_id FROM (SELECT job_id, row_number() OVER (ORDER BY job_id) AS n FROM belfry.plans) p WHERE n % 4000 = 0 OR n = $1)`,
		`INSERT INTO belfry.jobs (id, shard, namespace, revision, state, spec, created_at, updated_at, queue, type)
			SELECT job_id, 0, 'default', 1, 'active', '{}', now(), now(), 'default', 'http' FROM belfry.plans WHERE $1 > 0`,
	} {
		if _, err := s.pool.Exec(t.Context(), statement, plans); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := s.pool.Query(t.Context(), `SELECT job_id FROM belfry.plans WHERE zone_version = '1999a' ORDER BY job_id`)
	if err != nil {
		t.Fatal(err)
	}
	want, err := pgx.CollectRows(rows, pgx.RowTo[pgtype.UUID])
	if err != nil || len(want) != 5 {
		t.Fatalf("%d plans are outdated, %v", len(want), err)
	}
	var got []pgtype.UUID
	var after belfry.ID
	calls := 0
	for {
		due, next, err := s.PlansForZoneUpdate(t.Context(), []int{0}, "2000a", after, 10)
		if err != nil {
			t.Fatal(err)
		}
		calls++
		for _, d := range due {
			got = append(got, uuid(d.Plan.JobID))
		}
		if after = next; next.IsZero() {
			break
		}
	}
	if !slices.Equal(got, want) || calls != 3 {
		t.Errorf("in %d calls there were %v, wants %v", calls, got, want)
	}
}
