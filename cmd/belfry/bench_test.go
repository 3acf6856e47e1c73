package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry/internal/bench"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/postgres"
)

// benchJSON runs a benchmark and returns what it prints for programs.
func benchJSON(t *testing.T, args ...string) map[string]any {
	t.Helper()
	p := &testCLI{t: t}
	r := p.ok(append(args, "-o", "json")...)
	if r.err != "" {
		t.Errorf("without a terminal it says %q", r.err)
	}
	var result map[string]any
	if err := json.Unmarshal([]byte(r.out), &result); err != nil {
		t.Fatalf("it prints %s: %v", r.out, err)
	}
	for _, name := range []string{"early", "duplicates", "missing"} {
		if n, ok := result[name]; ok && n != 0.0 {
			t.Errorf("%v runs are %s", n, name)
		}
	}
	return result
}

func wantFields(t *testing.T, result map[string]any, want map[string]any, others ...string) {
	t.Helper()
	names := append(slices.Collect(maps.Keys(want)), others...)
	slices.Sort(names)
	if got := slices.Sorted(maps.Keys(result)); !slices.Equal(got, names) {
		t.Errorf("the fields are\n%q, want\n%q", got, names)
	}
	for name, value := range want {
		if result[name] != value {
			t.Errorf("%s is %v, want %v", name, result[name], value)
		}
	}
}

func TestBenchHotSecond(t *testing.T) {
	figures := []string{"created_per_second", "fired_seconds", "finished_seconds", "runs_per_second", "lag_ms", "cpu_seconds"}
	for _, tt := range []struct {
		name, mode, database string
		args                 []string
		others               []string
	}{
		{"in the node", "node", "sqlite", nil, nil},
		{"on PostgreSQL", "node", "postgres", nil, nil},
		{"in two nodes", "node", "postgres", []string{"--nodes", "2"}, []string{"nodes"}},
		{"by callbacks", "http", "sqlite", []string{"--http", "--concurrency", "20"}, []string{"client_per_second", "client_ratio"}},
		{"by workers", "worker", "sqlite", []string{"--worker", "--workers", "2", "--concurrency", "50"}, []string{"workers"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"bench", "hot-second", "--jobs", "200", "--lead", "4s"}, tt.args...)
			if tt.database == "postgres" {
				args = append(args, "--database-url", pgtest.Database(t, postgres.Migrate))
			}
			r := benchJSON(t, args...)
			wantFields(t, r, map[string]any{
				"jobs": 200.0, "mode": tt.mode, "database": tt.database, "version": version(), "concurrency": r["concurrency"],
				"early": 0.0, "duplicates": 0.0, "missing": 0.0,
			}, append(tt.others, figures...)...)
			fired, finished := r["fired_seconds"].(float64), r["finished_seconds"].(float64)
			if fired <= 0 || finished < fired {
				t.Errorf("the last run was fired after %g s and finished after %g s", fired, finished)
			}
			if lag := r["lag_ms"].(map[string]any)["max"].(float64); math.Abs(lag-1000*fired) > 0.001 {
				t.Errorf("the longest lag is %g ms, and the last was fired after %g s", lag, fired)
			}
		})
	}
}

func TestBenchSteady(t *testing.T) {
	t.Parallel()
	r := benchJSON(t, "bench", "steady", "--jobs", "1500", "--rate", "20", "--duration", "2s", "--lead", "4s", "--database-url", pgtest.Database(t, postgres.Migrate))
	wantFields(t, r, map[string]any{
		"jobs": 1500.0, "mode": "node", "database": "postgres", "version": version(), "concurrency": 4000.0, "rate": 20.0, "duration_seconds": 2.0, "runs": 40.0,
		"early": 0.0, "duplicates": 0.0, "missing": 0.0,
	}, "created_per_second", "bytes_per_job", "lag_ms", "memory_bytes", "dead_tuples", "cpu_seconds")
	for _, name := range []string{"begin", "end", "max"} {
		if n := r["memory_bytes"].(map[string]any)[name].(float64); n < 1<<20 {
			t.Errorf("the memory has %g bytes (%s)", n, name)
		}
	}
}

func TestBenchCreate(t *testing.T) {
	for path, args := range map[string][]string{"store": nil, "http": {"--http-bulk"}} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r := benchJSON(t, append([]string{"bench", "create", "--jobs", "700", "--data", dir, "--keep"}, args...)...)
			wantFields(t, r, map[string]any{"jobs": 700.0, "database": "sqlite", "version": version(), "path": path}, "created_per_second", "bytes_per_job")
			if bytes := r["bytes_per_job"].(float64); bytes < 200 || bytes > 5000 {
				t.Errorf("a job has %g bytes on disk", bytes)
			}
			p := withServer(t, "--data", dir)
			var kept []json.RawMessage
			p.json(&kept, "job", "list", "--limit", "0", "-n", bench.Namespace)
			if len(kept) != 700 {
				t.Errorf("%d jobs were kept", len(kept))
			}
		})
	}
}

// A database with other jobs is refused, and with --allow-other-jobs they are left as they
// are. Jobs that an earlier benchmark left are deleted.
func TestBenchRefusesADatabaseWithOtherJobs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serve := func(f func(p *testCLI)) {
		t.Run("server", func(t *testing.T) { f(withServer(t, "--data", dir)) })
	}
	serve(func(p *testCLI) {
		p.ok("job", "create", "report", "--schedule", "@yearly", "--handler", "h")
		p.ok("job", "create", "left", "--schedule", "@yearly", "--handler", "h", "-n", bench.Namespace)
	})
	p := &testCLI{t: t}
	args := []string{"bench", "create", "--jobs", "3", "--data", dir}
	const want = "belfry: bench create: the database has other jobs, in the namespace default, which would run meanwhile: use an empty database, or --allow-other-jobs\n"
	if r := p.run(args...); r.code != exitRefused || r.err != want || r.out != "" {
		t.Errorf("got %+v, want code %d and %q", r, exitRefused, want)
	}
	p.ok(append(args, "--allow-other-jobs")...)
	serve(func(p *testCLI) {
		p.job("report")
		if r := p.ok("job", "list", "-n", bench.Namespace); r.out != "" {
			t.Errorf("jobs are left:\n%s", r.out)
		}
	})
}

func TestBenchRefusesADatabaseInUse(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t, postgres.Migrate)
	p := &testCLI{t: t}
	refused := func(want string) {
		t.Helper()
		if r := p.run("bench", "create", "--jobs", "3", "--database-url", address); r.code != exitRefused || !strings.Contains(r.err, want) {
			t.Errorf("got %+v, want code %d and %q", r, exitRefused, want)
		}
	}
	t.Run("by a node", func(t *testing.T) {
		serving(t, "--database-url", address)
		waitForStore(t, address, func(s store.Store) (bool, error) {
			nodes, err := s.Held(t.Context(), "node/")
			return len(nodes) > 0, err
		})
		refused("a node is running on the database")
	})
	t.Run("by a benchmark", func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan int, 1)
		go func() {
			done <- execute(ctx, []string{"bench", "hot-second", "--jobs", "3", "--lead", "1h", "--database-url", address}, strings.NewReader(""), io.Discard, io.Discard)
		}()
		waitForJobs(t, address)
		refused("another benchmark uses the database")
		stop()
		<-done
	})
	p.ok("bench", "create", "--jobs", "3", "--database-url", address)
}

// waitForStore waits until a condition on a database holds.
func waitForStore(t *testing.T, address string, condition func(store.Store) (bool, error)) {
	t.Helper()
	s, err := postgres.Open(t.Context(), postgres.Options{URL: address})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		switch holds, err := condition(s); {
		case err != nil:
			t.Fatal(err)
		case holds:
			return
		case time.Now().After(deadline):
			t.Fatal("nothing happened for a minute")
		}
	}
}

// waitForJobs waits until a benchmark has jobs in a database.
func waitForJobs(t *testing.T, address string) {
	t.Helper()
	waitForStore(t, address, func(s store.Store) (bool, error) {
		found, err := s.JobNamespaces(t.Context())
		return slices.Contains(found, bench.Namespace), err
	})
}

func TestBenchThatIsInterruptedDeletesItsJobs(t *testing.T) {
	t.Run("on PostgreSQL", func(t *testing.T) {
		address := pgtest.Database(t, postgres.Migrate)
		interruptBench(t, func() { waitForJobs(t, address) }, "--database-url", address)
		waitForStore(t, address, func(s store.Store) (bool, error) {
			found, err := s.JobNamespaces(t.Context())
			if len(found) > 0 {
				t.Errorf("there are jobs in %q", found)
			}
			return true, err
		})
	})
	t.Run("on SQLite", func(t *testing.T) {
		dir := t.TempDir()
		t.Setenv("TMPDIR", dir)
		entries := func() []os.DirEntry {
			found, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			return found
		}
		interruptBench(t, func() {
			for deadline := time.Now().Add(time.Minute); len(entries()) == 0; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("there is no database after a minute")
				}
			}
		})
		if left := entries(); len(left) > 0 {
			t.Errorf("%s is left", left[0])
		}
	})
}

// interruptBench interrupts a benchmark that would take an hour when begun returns.
func interruptBench(t *testing.T, begun func(), args ...string) {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	done := make(chan int, 1)
	var said bytes.Buffer
	go func() {
		done <- execute(ctx, append([]string{"bench", "hot-second", "--jobs", "50", "--lead", "1h"}, args...), strings.NewReader(""), io.Discard, &said)
	}()
	begun()
	interrupt()
	if code := <-done; code != exitInterrupted || said.String() != "belfry: bench hot-second: interrupted\n" {
		t.Errorf("exit code %d, it says %q", code, said.String())
	}
}

// A benchmark prints its result even if runs were early, duplicate or missing, and fails.
func TestBenchFailsIfRunsAreWrong(t *testing.T) {
	for _, q := range []bench.Quality{{Early: 1}, {Duplicates: 1}, {Missing: 1}, {}} {
		cmd := &cobra.Command{}
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(io.Discard)
		err := runBench(cmd, addBenchFlags(cmd, 1), func(context.Context, bench.Config) (bench.HotSecondResult, error) {
			return bench.HotSecondResult{Quality: q}, nil
		}, func(d *details, r bench.HotSecondResult) { d.addQuality(r.Quality) })
		if (err == nil) != q.OK() || err != nil && exitCode(err) != exitOther || !strings.Contains(out.String(), "Duplicates") {
			t.Errorf("%+v: error %v, printed %q", q, err, out.String())
		}
	}
}

func TestBenchFlags(t *testing.T) {
	p := &testCLI{t: t}
	for _, tt := range []struct{ args, want string }{
		{"hot-second --jobs 0", "--jobs: must be at least 1, not 0"},
		{"hot-second --http --worker", "use either --http or --worker"},
		{"hot-second --data a --database-url b", "use either --database-url or --data"},
		{"hot-second --worker --workers 0", "--workers: must be at least 1, not 0"},
		{"hot-second --nodes 2", "--nodes: must be at least 1, and several need --database-url"},
		{"hot-second --concurrency -1", "--concurrency: must be positive, not -1"},
		{"hot-second --lead -1s", "--lead: must be positive, not -1s"},
		{"create -o xml", `--output: "xml" is not one of table, wide, json, yaml`},
		{"steady --rate 0", "--rate: must be at least 1, not 0"},
		{"steady --rate 10 --jobs 599", "--jobs: must be at least 600"},
	} {
		r := p.run(append([]string{"bench"}, strings.Fields(tt.args)...)...)
		if r.code != exitUsage || !strings.Contains(r.err, tt.want) {
			t.Errorf("%s: got %+v, want code %d and %q", tt.args, r, exitUsage, tt.want)
		}
	}
}

func TestProgressBar(t *testing.T) {
	var out bytes.Buffer
	b := &progressBar{out: &out, on: true}
	b.show("running", 0, 1000)
	b.show("running", 1, 1000) // too soon
	b.show("running", 1000, 1000)
	io.WriteString(b, "a line\n")
	b.clear()
	b.clear()
	full := "running " + strings.Repeat("█", 30) + " 100% 1,000 of 1,000"
	want := clearLine + "running " + strings.Repeat("░", 30) + "   0% 0 of 1,000" + clearLine + full + clearLine + "a line\n" + full + clearLine
	if out.String() != want {
		t.Errorf("got  %q\nwant %q", out.String(), want)
	}
	out.Reset()
	b.on = false
	b.show("running", 1, 2)
	b.clear()
	if out.Len() > 0 {
		t.Errorf("without a terminal it prints %q", out.String())
	}
}

func TestGroupedNumbers(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 7: "7", 7.25: "7.2", 99.9: "99.9", 100.4: "100", 999: "999", 1000: "1,000", 1234567.8: "1,234,568"} {
		if got := grouped(n); got != want {
			t.Errorf("%g: got %s, want %s", n, got, want)
		}
	}
}
