// Package pgtest starts a throw-away PostgreSQL server for tests and hands out one database a test.
// It also has a Proxy that stands between a client and a server and loses what the server answers.
//
// A test binary shares one server, which is started on first use and cannot outlive it, not even if it is killed.
// BELFRY_TEST_DATABASE_URL names a server to use instead; its account must be allowed to create databases.
// Without either, tests are skipped, or fail if BELFRY_TEST_REQUIRE_POSTGRES=1.
package pgtest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

const (
	envURL     = "BELFRY_TEST_DATABASE_URL"
	envRequire = "BELFRY_TEST_REQUIRE_POSTGRES"
)

// limit is for one statement of this package's own; it only stops a test that would hang.
const limit = 2 * time.Minute

// shared is the server that all tests of this binary use, for the binary's whole life.
var shared cluster

// skipped counts the tests that went without PostgreSQL.
var skipped atomic.Int64

// Available reports whether Database has a server to use, so that it will not skip.
func Available() bool { return os.Getenv(envURL) != "" || missing() == nil }

// Database returns the URL of a new database for tb alone, as a superuser unless BELFRY_TEST_DATABASE_URL says otherwise.
// The database is dropped when tb ends, whoever is still connected.
//
// It is a copy of a template that migrate was applied to, once for the whole test binary; migrate must have closed its
// connections when it returns. Functions are told apart by their code: closures made by one function literal count
// as the same function. Without migrate the database is empty.
func Database(tb testing.TB, migrate func(ctx context.Context, url string) error) string {
	tb.Helper()
	if os.Getenv(envURL) == "" {
		need(tb, missing())
	}
	if err := shared.start(); err != nil {
		tb.Fatal(err)
	}
	name, err := shared.create(migrate)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := shared.drop(name); err != nil {
			tb.Log(err)
		}
	})
	return shared.url(name)
}

// Durable returns a running server of tb's own that keeps what it commits (fsync, synchronous_commit and full_page_writes
// are on), for tests that crash it and for benchmarks. Further settings are given as "name=value". It is closed when tb ends.
// BELFRY_TEST_DATABASE_URL has no say here. The data lies in the system's folder for temporary files: for figures worth
// printing TMPDIR must lead to a real disk.
func Durable(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	need(tb, missing())
	bin, _ := installed()
	s, err := newServer(bin, os.TempDir(), slices.Concat(durable, settings)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// Main runs the tests, then stops the shared server and removes its data, or, on a server named from outside, drops the
// templates. A binary without it is still cleaned up after, except for those templates. Use it as
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
func Main(m *testing.M) int {
	code := m.Run()
	if n := skipped.Load(); n > 0 {
		fmt.Fprintf(os.Stderr, "\n*** TESTS SKIPPED FOR WANT OF POSTGRESQL: %d ***\n%s\n\n", n, advice)
	}
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}

const advice = "Install it with: apt-get install postgresql (it need not be started)\n" +
	"or name a running server in " + envURL + "."

// missing says why no server can be started here, or is nil.
func missing() error {
	_, err := installed()
	return err
}

// need skips tb, or fails it if PostgreSQL is required, when there is a reason why no server can be had.
func need(tb testing.TB, reason error) {
	tb.Helper()
	if reason == nil {
		return
	}
	if os.Getenv(envRequire) == "1" {
		tb.Fatalf("%v, and %s=1 forbids going without.\n%s", reason, envRequire, advice)
	}
	skipped.Add(1)
	tb.Skipf("\n*** SKIPPED FOR WANT OF POSTGRESQL ***\n%v.\n%s", reason, advice)
}
