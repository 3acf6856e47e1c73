package sqlite

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/belfry-sh/belfry"
)

func TestNewerSchemaIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := openDir(t, dir)
	fill(t, s, 0, `INSERT INTO migrations (version, applied_at) VALUES (99, 0)`)
	closeStore(t, s)
	_, err := Open(ctx, Options{Dir: dir})
	if belfry.CodeOf(err) != belfry.Invalid || !strings.Contains(err.Error(), "schema version 99") || !strings.Contains(err.Error(), "newer belfry") {
		t.Errorf("got %v, wants it to ask for a newer program", err)
	}
}

// TestFailedMigrationLeavesNothing applies a script that fails in its second
// statement, and then one that corrects it.
func TestFailedMigrationLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	s := openDir(t, dir)
	create(t, s, newJob(t, s, s.Now(), "* * * * *"))
	versions := `SELECT max(version) FROM migrations`
	known := count(t, s, versions)
	with := func(script string) fstest.MapFS {
		files := fstest.MapFS{}
		for n := range known {
			files[fmt.Sprintf("migrations/%04d_known.sql", n+1)] = &fstest.MapFile{}
		}
		files[fmt.Sprintf("migrations/%04d_more.sql", known+1)] = &fstest.MapFile{Data: []byte(script)}
		return files
	}
	tables := `SELECT count(*) FROM sqlite_schema WHERE name = 'more'`

	err := s.migrate(ctx, with(`CREATE TABLE more (id INTEGER); CREATE TABLE jobs (id INTEGER);`))
	if err == nil || !strings.Contains(err.Error(), "_more.sql") {
		t.Errorf("got %v, wants it to name the script", err)
	}
	if version, left := count(t, s, versions), count(t, s, tables); version != known || left != 0 {
		t.Errorf("the failed migration left version %d and %d tables", version, left)
	}
	closeStore(t, s)

	s = openDir(t, dir)
	if err := s.migrate(ctx, with(`CREATE TABLE more (id INTEGER);`)); err != nil {
		t.Fatal(err)
	}
	if version, added := count(t, s, versions), count(t, s, tables); version != known+1 || added != 1 {
		t.Errorf("the corrected migration left version %d and %d tables", version, added)
	}
	if n := count(t, s, `SELECT count(*) FROM jobs`); n != 1 {
		t.Errorf("%d jobs are left, wants 1", n)
	}
	closeStore(t, s)
	if _, err := Open(ctx, Options{Dir: dir}); belfry.CodeOf(err) != belfry.Invalid {
		t.Errorf("a program that knows version %d opens version %d: %v", known, known+1, err)
	}
}
