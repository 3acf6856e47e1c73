package sqlite

import (
	"testing"

	"github.com/belfry-sh/belfry"
)

// TestTranslation has every word that SQLite has another one for.
func TestTranslation(t *testing.T) {
	for sql, want := range map[string]string{
		`SELECT $1, $12 FROM belfry.jobs j WHERE j.id = ANY($1::uuid[])`: `SELECT ?1, ?12 FROM jobs j WHERE j.id IN (SELECT unhex(value, '-') FROM json_each(?1))`,
		`x.shard = ANY($2::integer[]) AND at < $3::timestamptz`:          `x.shard IN (SELECT value FROM json_each(?2)) AND at < ?3`,
		`FROM unnest($1::uuid[]) AS j (id)`:                              `FROM (SELECT unhex(value, '-') AS id FROM json_each(?1)) j`,
		`FROM unnest($1::uuid[], $2::text[]) AS c (job_id, name)`:        `FROM (SELECT unhex(value, '-') AS job_id, ?2 ->> key AS name FROM json_each(?1)) c`,
		`greatest(at, clock_timestamp() - interval '7 days')`:            `max(at, ?15 - 7*86400000000)`,
		`n * interval '24 hours' > interval '1 minute'`:                  `n * 86400000000 > 60000000`,
		`ORDER BY name COLLATE "C" FOR UPDATE OF x`:                      `ORDER BY name`,
		`LIMIT $1 FOR UPDATE SKIP LOCKED`:                                `LIMIT ?1`,
	} {
		if got := translate(sql); got != want {
			t.Errorf("%s\nis   %s\nwant %s", sql, got, want)
		}
	}
}

// TestNoListIsAnEmptyOne calls with lists that are nil, which SQLite's JSON would take for one
// null.
func TestNoListIsAnEmptyOne(t *testing.T) {
	s := openStore(t)
	if err := s.AddTraceLinks(ctx, nil, "x"); err != nil {
		t.Error(err)
	}
	if got, err := s.SkipsInARow(ctx, nil); len(got) > 0 || err != nil {
		t.Errorf("skips of no jobs: %v, %v", got, err)
	}
	if got, err := s.DeadLeft(ctx, nil); len(got) > 0 || err != nil {
		t.Errorf("dead letters of no causes: %v, %v", got, err)
	}
	if got, err := s.Redrive(ctx, belfry.DefaultNamespace, nil); got != 0 || err != nil {
		t.Errorf("redrove %d: %v", got, err)
	}
}
