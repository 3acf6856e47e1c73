package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

var migrations atomic.Int64

// migrateOnce leaves a table with one row and counts its calls.
func migrateOnce(ctx context.Context, url string) error {
	migrations.Add(1)
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "CREATE TABLE things (name text); INSERT INTO things VALUES ('first')")
	return err
}

func migrateOtherwise(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "CREATE TABLE others (name text)")
	return err
}

func TestDatabasePerTest(t *testing.T) {
	t.Run("together", func(t *testing.T) {
		for range 8 {
			t.Run("one of them", func(t *testing.T) {
				t.Parallel()
				conn := connect(t, Database(t, migrateOnce))
				do(t, conn, "INSERT INTO things VALUES ('mine')")
				if n := queryValue[int](t, conn, "SELECT count(*) FROM things"); n != 2 {
					t.Errorf("there are %d things, want the template's and mine", n)
				}
			})
		}
	})
	if n := migrations.Load(); n != 1 {
		t.Errorf("migrate ran %d times, want once for the test binary", n)
	}
}

func TestDatabaseIsMigrated(t *testing.T) {
	for _, c := range []struct {
		name    string
		migrate func(context.Context, string) error
		table   string
	}{
		{"one schema", migrateOnce, "things"},
		{"another schema", migrateOtherwise, "others"},
		{"no schema", nil, ""},
	} {
		conn := connect(t, Database(t, c.migrate))
		const tables = "SELECT coalesce(string_agg(tablename, ' '), '') FROM pg_tables WHERE schemaname = 'public'"
		if got := queryValue[string](t, conn, tables); got != c.table {
			t.Errorf("%s: the database has the tables %q, want %q", c.name, got, c.table)
		}
	}
}

func TestDatabaseIsDroppedWhileConnected(t *testing.T) {
	admin := connect(t, Database(t, nil))
	var name string
	t.Run("owner", func(t *testing.T) {
		conn, err := pgx.Connect(t.Context(), Database(t, nil))
		if err != nil {
			t.Fatal(err)
		}
		name = conn.Config().Database // the connection is left open
	})
	if queryValue[bool](t, admin, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name) {
		t.Errorf("database %s is still there after its test", name)
	}
}

func TestDatabaseMigrationFailure(t *testing.T) {
	broken := func(context.Context, string) error { return errors.New("no such column") }
	for range 2 {
		r := record(t, func(tb testing.TB) { Database(tb, broken) })
		if !strings.Contains(r.failed, "no such column") {
			t.Errorf("the test ended with %q, want the migration's error", r.failed)
		}
	}
}

func TestSharedServerSettings(t *testing.T) {
	if os.Getenv(envURL) != "" {
		t.Skip("the server was named from outside")
	}
	conn := connect(t, Database(t, nil))
	for name, want := range map[string]string{
		"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "jit": "off", "autovacuum": "on",
		"max_connections": "200", "deadlock_timeout": "200ms", "server_encoding": "UTF8", "TimeZone": "Asia/Kathmandu",
	} {
		if got := queryValue[string](t, conn, "SHOW "+name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

func TestSharedServerRequiresItsPassword(t *testing.T) {
	if os.Getenv(envURL) != "" {
		t.Skip("the server was named from outside")
	}
	config, err := pgx.ParseConfig(Database(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	config.Password = "guess"
	if conn, err := pgx.ConnectConfig(t.Context(), config); err == nil {
		conn.Close(t.Context())
		t.Error("a wrong password was accepted")
	}
}

func TestDatabaseLeaksNoGoroutine(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Run("owner", func(t *testing.T) { Database(t, migrateOnce) })
	goleak.VerifyNone(t, before)
}

func TestWithoutPostgreSQLTestsAreSkippedOrFail(t *testing.T) {
	count := skipped.Load()
	t.Cleanup(func() { skipped.Store(count) })
	reason := errors.New("find PostgreSQL: nothing there")

	t.Setenv(envRequire, "")
	r := record(t, func(tb testing.TB) { requireServer(tb, reason) })
	if r.failed != "" || !strings.Contains(r.skipped, reason.Error()) || !strings.Contains(r.skipped, "apt-get install postgresql") {
		t.Errorf("not required: failed with %q, skipped with %q, want a skip with the reason and the command", r.failed, r.skipped)
	}
	if skipped.Load() != count+1 {
		t.Error("the skipped test was not counted")
	}

	t.Setenv(envRequire, "1")
	r = record(t, func(tb testing.TB) { requireServer(tb, reason) })
	if r.skipped != "" || !strings.Contains(r.failed, reason.Error()) || !strings.Contains(r.failed, "apt-get install postgresql") {
		t.Errorf("required: failed with %q, skipped with %q, want a failure with the reason and the command", r.failed, r.skipped)
	}

	if r = record(t, func(tb testing.TB) { requireServer(tb, nil) }); r.failed+r.skipped != "" {
		t.Errorf("with PostgreSQL: failed with %q, skipped with %q, want neither", r.failed, r.skipped)
	}
}

func TestDatabaseAddressMustBeAURL(t *testing.T) {
	for address, good := range map[string]bool{
		"postgres://u:p@db.example:5432/postgres":  true,
		"postgresql://localhost/x?sslmode=disable": true,
		"host=localhost dbname=x":                  false,
		"postgres://localhost/x?dbname=y":          false,
		"mysql://localhost/x":                      false,
		"":                                         false,
		"postgres://%zz":                           false,
	} {
		if _, err := parseURL(address); (err == nil) != good {
			t.Errorf("address %q: error %v, want it accepted: %v", address, err, good)
		}
	}
}

func BenchmarkDatabase(b *testing.B) {
	Database(b, migrateOnce) // start the server and build the template
	for b.Loop() {
		name, err := shared.create(migrateOnce)
		if err != nil {
			b.Fatal(err)
		}
		if err := shared.drop(name); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		bin, err := installed()
		requireServer(b, err)
		s, err := newServer(bin, fastDir(), fast...)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// fakeInstall makes a directory that looks like PostgreSQL of a version.
func fakeInstall(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\necho 'postgres (PostgreSQL) %s'\n", version)
	for _, name := range []string{"initdb", "postgres"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFindServer(t *testing.T) {
	empty, old := t.TempDir(), fakeInstall(t, "14.9 (Ubuntu 14.9-0ubuntu0.22.04.1)")
	fifteen, next := fakeInstall(t, "15.18 (Debian 15.18-0+deb12u1)"), fakeInstall(t, "19beta1")
	clientOnly := fakeInstall(t, "17.2")
	if err := os.Remove(filepath.Join(clientOnly, "postgres")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		dirs   []string
		want   string
		reason string
	}{
		{"the first of two", []string{fifteen, next}, fifteen, ""},
		{"a beta", []string{next}, next, ""},
		{"after an old one", []string{old, next}, next, ""},
		{"after an empty and a missing folder", []string{empty, filepath.Join(empty, "missing"), fifteen}, fifteen, ""},
		{"after a folder without a server", []string{clientOnly, fifteen}, fifteen, ""},
		{"only an old one", []string{old}, "", "version 14"},
		{"nothing", nil, "", "no directory"},
	} {
		got, err := findServer(c.dirs)
		if got != c.want {
			t.Errorf("%s: found %q, want %q", c.name, got, c.want)
		}
		if c.reason != "" && (err == nil || !strings.Contains(err.Error(), c.reason)) {
			t.Errorf("%s: the error is %v, want it to say %q", c.name, err, c.reason)
		}
	}
}
