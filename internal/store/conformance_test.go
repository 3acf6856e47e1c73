package store_test

import (
	"context"
	"database/sql"
	"flag"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/belfry-sh/belfry/internal/metrics"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/postgres"
	"github.com/belfry-sh/belfry/internal/store/sqlite"
)

// This is the conformance suite of the storage contract: every test runs over
// every backend, and the invariants are checked after each.

// shards is the number of shards of every store under test: few, so that each
// of them has several jobs.
const shards = 4

// TestMain keeps the random tests short, and free of files: what they draw are
// ids, which are others the next time. More checks are a flag away.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": "25", "rapid.shrinktime": "10s", "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			panic(err) // rapid has no such flag any more
		}
	}
	os.Exit(pgtest.Main(m))
}

// backend is one way to keep everything.
type backend struct {
	name string
	open func(tb testing.TB) *fixture
}

// backends are all of them. The last one is PostgreSQL behind PgBouncer in transaction
// mode, or used as if it were where that is not installed.
var backends = []backend{
	{"sqlite", openSQLite},
	{"postgres", func(tb testing.TB) *fixture {
		address := pgtest.Database(tb, postgres.Migrate)
		return openPostgres(tb, address, address)
	}},
	{"pgbouncer", func(tb testing.TB) *fixture {
		address := pgtest.Database(tb, postgres.Migrate)
		pooler := withParameter(address, "default_query_exec_mode", "exec")
		if pgtest.PoolerInstalled() {
			pooler = pgtest.Pooler(tb, address)
		}
		f := openPostgres(tb, pooler, address)
		f.pooled = true
		return f
	}},
}

// eachStore runs a test over a fresh store of every backend, side by side.
func eachStore(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	t.Parallel()
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, b))
		})
	}
}

// open gives a fresh store. When the test ends its invariants are checked, and
// then it is closed.
func open(tb testing.TB, b backend) *fixture {
	tb.Helper()
	f := b.open(tb)
	tb.Cleanup(func() {
		if !f.restarted { // what was opened later is closed by now
			checkWaiting(tb, f)
		}
		checkInvariants(tb, f)
	})
	return f
}

// fixture is a store under test with a second door to its tables.
type fixture struct {
	store.Store
	tables *sql.DB
	origin time.Time // the minute in which the test began
	server bool      // ids are uuid, times timestamptz, placeholders numbered
	pooled bool      // behind a pooler, where nobody can listen
	file   string    // of SQLite

	metrics *metrics.Metrics // of the store, and of those that are opened again

	// reopen opens the same database once more, as another node does. It is nil
	// where one process has the database to itself.
	reopen func(tb testing.TB) store.Store

	// again opens the same database after it was closed.
	openAgain func(tb testing.TB) store.Store

	restarted bool
}

// restart closes the store and opens it again.
func (f *fixture) restart(tb testing.TB) {
	tb.Helper()
	if err := f.Close(); err != nil {
		tb.Fatalf("close the store: %v", err)
	}
	f.Store, f.restarted = f.openAgain(tb), true
}

func openSQLite(tb testing.TB) *fixture {
	tb.Helper()
	dir, m := tb.TempDir(), metrics.New()
	again := func(tb testing.TB) store.Store {
		tb.Helper()
		s, err := sqlite.Open(context.Background(), sqlite.Options{Dir: dir, Shards: shards, Metrics: m})
		if err != nil {
			tb.Fatalf("open SQLite: %v", err)
		}
		closeAtEnd(tb, s)
		return s
	}
	s := again(tb)
	files, err := filepath.Glob(filepath.Join(dir, "*.db"))
	if err != nil || len(files) != 1 {
		tb.Fatalf("the folder has databases %v (%v), wants one", files, err)
	}
	query := url.Values{"_pragma": {"busy_timeout(20000)"}, "_txlock": {"immediate"}}
	tables := openTables(tb, "sqlite", "file:"+files[0]+"?"+query.Encode())
	return &fixture{Store: s, tables: tables, origin: thisMinute(s), openAgain: again, file: files[0], metrics: m}
}

// openPostgres opens a store, and the tables at the address of the server itself.
func openPostgres(tb testing.TB, address, server string) *fixture {
	tb.Helper()
	m := metrics.New()
	reopen := func(tb testing.TB) store.Store {
		tb.Helper()
		s, err := postgres.Open(context.Background(), postgres.Options{URL: address, Shards: shards, Metrics: m})
		if err != nil {
			tb.Fatalf("open PostgreSQL: %v", err)
		}
		closeAtEnd(tb, s)
		return s
	}
	s := reopen(tb)
	return &fixture{
		Store: s, tables: openTables(tb, "pgx", withParameter(server, "search_path", "belfry")), origin: thisMinute(s),
		server: true, reopen: reopen, openAgain: reopen, metrics: m,
	}
}

func thisMinute(s store.Store) time.Time { return s.Now().UTC().Truncate(time.Minute) }

// withDatabase returns the address of another database of the same server.
func withDatabase(address, name string) string {
	u, err := url.Parse(address)
	if err != nil {
		panic(err) // it was made by this suite
	}
	u.Path = "/" + name
	return u.String()
}

// withParameter sets a parameter of an address.
func withParameter(address, name, value string) string {
	u, err := url.Parse(address)
	if err != nil {
		panic(err) // it was made by this suite
	}
	query := u.Query()
	query.Set(name, value)
	u.RawQuery = query.Encode()
	return u.String()
}

func openTables(tb testing.TB, driver, address string) *sql.DB {
	tb.Helper()
	db, err := sql.Open(driver, address)
	if err != nil {
		tb.Fatalf("open the tables: %v", err)
	}
	db.SetMaxOpenConns(2)
	tb.Cleanup(func() { db.Close() })
	return db
}

// closeAtEnd closes the store when the test ends, and expects that to be quick
// and without an error.
func closeAtEnd(tb testing.TB, s store.Store) {
	tb.Cleanup(func() {
		start := time.Now()
		if err := s.Close(); err != nil {
			tb.Errorf("close the store: %v", err)
		}
		if took := time.Since(start); took > 10*time.Second {
			tb.Errorf("closing the store took %v", took)
		}
	})
}
