package postgres

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
)

// firstSchema makes the schema as it was at first.
func firstSchema(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `CREATE SCHEMA belfry`); err != nil {
			return err
		}
		if _, err := tx.Exec(t.Context(), `CREATE TABLE belfry.migrations (version integer PRIMARY KEY, applied_at timestamptz NOT NULL)`); err != nil {
			return err
		}
		return applyFile(t.Context(), tx, "migrations/0001_path_of_a_run.sql", 1)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestJobsFromBeforeTheDoorAreFoundByIt(t *testing.T) {
	url := pgtest.Database(t, nil)
	firstSchema(t, url)
	exec(t, url, `INSERT INTO belfry.jobs (id, shard, namespace, name, revision, state, spec, created_at, updated_at)
		SELECT gen_random_uuid(), 0, 'default', name, 1, 'active', spec, clock_timestamp(), clock_timestamp() FROM (VALUES
			('Ärger am Morgen', '{"type":"http","queue":"mail","handler":"left over"}'),
			('ab', '{"type":"worker","queue":"default","handler":"send \"it\""}'),
			('abcabcabc', '{"schedule":"* * * * *"}'),
			('bad', 'this is not JSON'),
			(NULL, '{"type":"http","queue":"a/b"}')) AS j (name, spec)`)
	s := open(t, Options{URL: url})
	type row struct {
		Name, Handler *string
		Queue, Type   string
		Tags          []string
		Grams         []int64
	}
	rows, err := s.pool.Query(t.Context(), `SELECT name, handler, queue, type, tags, grams FROM belfry.jobs ORDER BY name NULLS LAST`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	if err != nil || len(got) != 5 {
		t.Fatalf("%d jobs are left: %v", len(got), err)
	}
	text := func(s *string) string {
		if s == nil {
			return "none"
		}
		return *s
	}
	for i, want := range []struct{ name, handler, queue, kind string }{
		{"ab", `send "it"`, "default", belfry.TypeWorker},
		{"abcabcabc", "none", "default", belfry.TypeHTTP},
		{"bad", "none", "default", belfry.TypeHTTP},
		{"Ärger am Morgen", "none", "mail", belfry.TypeHTTP},
		{"none", "none", "a/b", belfry.TypeHTTP},
	} {
		r := got[i]
		if text(r.Name) != want.name || text(r.Handler) != want.handler || r.Queue != want.queue || r.Type != want.kind || r.Tags != nil {
			t.Errorf("job %d is %+v of handler %s, wants %+v", i, r, text(r.Handler), want)
		}
		slices.Sort(r.Grams)
		if r.Name != nil && (!slices.Equal(r.Grams, nameTrigrams(*r.Name)) || (r.Grams == nil) != (nameTrigrams(*r.Name) == nil)) {
			t.Errorf("the grams of %q are %v, wants %v", *r.Name, r.Grams, nameTrigrams(*r.Name))
		}
	}
}
