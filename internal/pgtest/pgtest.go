// Package pgtest starts a temporary PostgreSQL server for tests and creates one database per test. It also has a Proxy
// between a client and a server that drops replies of the server.
//
// A test binary shares one server, which is started on first use and cannot outlive it, not even if it is killed.
// BELFRY_TEST_DATABASE_URL names a server to use instead; its account must be allowed to create databases.
// Without either, tests are skipped, or fail if BELFRY_TEST_REQUIRE_POSTGRES=1.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// skipped counts the tests that were skipped without PostgreSQL.
var skipped atomic.Int64

// Available reports whether Database has a server to use, so that it will not skip.
func Available() bool { return os.Getenv(envURL) != "" || checkInstalled() == nil }

// Database returns the URL of a new database for tb alone, as a superuser unless BELFRY_TEST_DATABASE_URL says otherwise.
// The database is dropped when tb ends, whoever is still connected.
//
// It is a copy of a template that migrate was applied to, once for the whole test binary; migrate must have closed its
// connections when it returns. Functions are distinguished by their code: closures of one function literal count as the
// same function. Without migrate the database is empty.
func Database(tb testing.TB, migrate func(ctx context.Context, url string) error) string {
	tb.Helper()
	if os.Getenv(envURL) == "" {
		requireServer(tb, checkInstalled())
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
// BELFRY_TEST_DATABASE_URL is ignored. The data is in the system's directory for temporary files: for benchmarks TMPDIR
// must be on a real disk.
func Durable(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	requireServer(tb, checkInstalled())
	s, err := StartDurable(settings...)
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

// StartDurable is Durable for a program that is not a test. The caller closes the server; it ends with the program at the
// latest.
func StartDurable(settings ...string) (*Server, error) {
	bin, err := installed()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, installHint)
	}
	return newServer(bin, os.TempDir(), slices.Concat(durable, settings)...)
}

// Main runs the tests, then stops the shared server and removes its data, or, on a server named from outside, drops the
// templates. A binary without it is still cleaned up after, except for those templates. Use it as
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
func Main(m *testing.M) int {
	code := m.Run()
	if n := skipped.Load(); n > 0 {
		fmt.Fprintf(os.Stderr, "\n*** TESTS SKIPPED WITHOUT POSTGRESQL: %d ***\n%s\n\n", n, installHint)
	}
	if err := errors.Join(sharedPooler.stop(), shared.stop()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}

const installHint = "Install it with: apt-get install postgresql (it need not be started)\n" +
	"or name a running server in " + envURL + "."

// checkInstalled returns why no server can be started here, or nil.
func checkInstalled() error {
	_, err := installed()
	return err
}

// requireServer skips tb, or fails it if PostgreSQL is required, if there is a reason why there is no server.
func requireServer(tb testing.TB, reason error) {
	tb.Helper()
	if reason == nil {
		return
	}
	if os.Getenv(envRequire) == "1" {
		tb.Fatalf("%v, and %s=1 requires it.\n%s", reason, envRequire, installHint)
	}
	skipped.Add(1)
	tb.Skipf("\n*** SKIPPED WITHOUT POSTGRESQL ***\n%v.\n%s", reason, installHint)
}

// minMajor is the oldest PostgreSQL that Belfry supports.
const minMajor = 15

// installed finds PostgreSQL on this machine once for the whole test binary.
var installed = sync.OnceValues(func() (string, error) { return findServer(candidates()) })

// candidates lists the directories that may have PostgreSQL's programs: those in PATH, then those of the usual packages,
// the newest version of each first.
func candidates() []string {
	var dirs []string
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
		"/usr/libexec/postgresql*",  // Alpine
		"/usr/pgsql-*/bin",          // the project's own RPMs
		"/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin",
		"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
		"/Library/PostgreSQL/*/bin",
		"/usr/local/pgsql/bin",
	} {
		found, _ := filepath.Glob(pattern)
		slices.SortFunc(found, func(a, b string) int { return firstNumber(b) - firstNumber(a) })
		dirs = append(dirs, found...)
	}
	return dirs
}

// findServer returns the first directory with a server that is new enough.
func findServer(dirs []string) (string, error) {
	var old []string
	for _, dir := range dirs {
		if _, err := exec.LookPath(filepath.Join(dir, "initdb")); err != nil {
			continue
		}
		major, err := version(dir)
		if err != nil {
			continue
		}
		if major >= minMajor {
			return dir, nil
		}
		old = append(old, fmt.Sprintf("version %d in %s", major, dir))
	}
	if len(old) > 0 {
		return "", fmt.Errorf("find PostgreSQL: version %d or newer is needed, there is only %s",
			minMajor, strings.Join(old, ", "))
	}
	return "", errors.New("find PostgreSQL: no directory with initdb and postgres on this machine")
}

// version asks the server in dir for its major version.
func version(dir string) (int, error) {
	out, err := exec.Command(filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("ask for the version in %s: %w", dir, err)
	}
	_, rest, _ := strings.Cut(string(out), ")") // postgres (PostgreSQL) 15.18 (Debian ...)
	return firstNumber(rest), nil
}

var digits = regexp.MustCompile(`\d+`)

// firstNumber returns the first number in s, or 0.
func firstNumber(s string) int {
	n, _ := strconv.Atoi(digits.FindString(s))
	return n
}
