package store_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/scheduler"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlite"
	"github.com/belfry-sh/belfry/worker"
)

// cost is what a batch takes, by what is counted: none of it depends on how fast or how busy the machine is.
type cost map[string]int64

// What is counted.
const (
	allocations    = "allocations"     // of Go
	allocatedBytes = "allocated_bytes" // of Go
	statements     = "statements"      // of PostgreSQL
	buffers        = "buffers"         // of PostgreSQL: pages it used, in memory or not
	walBytes       = "wal_bytes"
)

// A few batches go first, until statements have their plan and buffers their size. Then the least of several batches
// counts, since background work of a store, such as reading the clock, can only add to it.
const (
	warmUpBatches   = 6
	measuredBatches = 3
)

// TestCostsHaveNotGrown compares the cost of a thousand runs or jobs with the committed one. `make bench-guard` commits
// new ones.
func TestCostsHaveNotGrown(t *testing.T) {
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		t.Skip("the race detector allocates")
	}
	measured := costs{PerThousand: map[string]cost{}}
	for name, path := range costPaths {
		measured.PerThousand["sqlite: "+name] = pathCost(t, openSQLite(t), path)
	}
	measured.PerThousand["sqlite: recurring runs of a scheduler and a worker pool"] = nodeCost(t)
	t.Run("postgres", func(t *testing.T) {
		server := costServer(t)
		for name, path := range costPaths {
			f := openCostDatabase(t, server)
			measured.PerThousand["postgres: "+name] = pathCost(t, f, path)
			measured.PostgreSQL = int(f.count(t, `SELECT current_setting('server_version_num')::int / 10000`))
		}
	})
	if *rewrite {
		measured.commit(t)
		return
	}
	for _, problem := range measured.compare(readCosts(t)) {
		t.Errorf("%s; if that is intended, commit new figures with `make bench-guard`", problem)
	}
}

// costPath prepares a store and returns what does one batch of work. It calls measure with the parts of the work that count.
type costPath func(t tb, f *fixture) (runBatch func(measure func(part func())))

var costPaths = map[string]costPath{
	"jobs created": func(t tb, f *fixture) func(func(func())) {
		return func(measure func(func())) {
			jobs := make([]store.NewJob, batch)
			for i := range jobs {
				jobs[i] = f.job(f.minutesAgo(-60), withName(fmt.Sprint("job ", newID())))
			}
			measure(func() { f.createJobs(t, jobs...) })
		}
	},
	"recurring runs claimed in the node": func(t tb, f *fixture) func(func(func())) {
		f.createFleet(t)
		worker := f.registerWorker(t)
		return func(measure func(func())) {
			steps := f.decide(t, f.due(t))
			measure(func() { f.finish(t, successes(f.fireInto(t, slots(worker, batch), steps...).Claimed)...) })
		}
	},
	"recurring runs claimed by other processes": func(t tb, f *fixture) func(func(func())) {
		f.createFleet(t)
		worker := f.registerWorker(t)
		return func(measure func(func())) {
			steps := f.decide(t, f.due(t))
			measure(func() {
				f.fire(t, steps...)
				f.finish(t, successes(f.claim(t, worker, batch))...)
			})
		}
	},
	"one-offs created, claimed in the node and archived": func(t tb, f *fixture) func(func(func())) {
		worker := f.registerWorker(t)
		return func(measure func(func())) {
			jobs := make([]store.NewJob, batch)
			for i := range jobs {
				at := f.minutesAgo(5)
				jobs[i] = f.job(at, withSchedule(at.Format(time.RFC3339)))
			}
			measure(func() { f.createJobs(t, jobs...) })
			steps := f.decide(t, f.due(t))
			measure(func() { f.finish(t, successes(f.fireInto(t, slots(worker, batch), steps...).Claimed)...) })
			if n := f.count(t, `SELECT count(*) FROM ended`); n == 0 || n%batch != 0 {
				t.Fatalf("%d one-offs are archived, wants all of every batch of %d", n, batch)
			}
		}
	},
}

// pathCost returns the least cost of a batch.
func pathCost(t tb, f *fixture, path costPath) cost {
	runBatch := path(t, f)
	var all []cost
	for range warmUpBatches + measuredBatches {
		f.settle(t)
		c := cost{}
		runBatch(func(part func()) {
			stored := f.storedCost(t)
			c.add(heapCost(part))
			c.add(f.storedCost(t).minus(stored))
		})
		all = append(all, c)
	}
	return least(all[warmUpBatches:])
}

// heapCost counts the allocations of all goroutines.
func heapCost(do func()) cost {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return cost{allocations: int64(after.Mallocs - before.Mallocs), allocatedBytes: int64(after.TotalAlloc - before.TotalAlloc)}
}

// settle lets every batch begin in the same state: without what earlier ones left to clean up.
func (f *fixture) settle(t tb) {
	if f.server {
		f.exec(t, `VACUUM`)
	} else {
		f.exec(t, `PRAGMA wal_checkpoint(TRUNCATE)`)
	}
}

// storedCost returns what the database has counted so far. Statements that the store sends by the clock are left out.
func (f *fixture) storedCost(t tb) cost {
	if !f.server {
		log, err := os.Stat(f.file + "-wal")
		if err != nil {
			t.Fatalf("find the log of SQLite: %v", err)
		}
		return cost{walBytes: log.Size()}
	}
	var calls, pages, written int64
	err := f.tables.QueryRow(`SELECT sum(calls), sum(shared_blks_hit + shared_blks_read), pg_current_wal_insert_lsn() - '0/0' FROM storing`).Scan(&calls, &pages, &written)
	if err != nil {
		t.Fatalf("ask for the costs: %v", err)
	}
	return cost{statements: calls, buffers: pages, walBytes: written}
}

// costServer starts a server that counts statements, and that writes nothing by itself: no vacuum, no pages as a whole after
// a checkpoint.
func costServer(t *testing.T) *pgtest.Server {
	tables := openTables(t, "pgx", pgtest.Database(t, nil))
	var available bool
	if err := tables.QueryRow(`SELECT count(*) > 0 FROM pg_available_extensions WHERE name = 'pg_stat_statements'`).Scan(&available); err != nil {
		t.Fatal(err)
	}
	if !available {
		t.Skip("pg_stat_statements, from the package with PostgreSQL's contrib modules, is not installed")
	}
	return pgtest.Durable(t, "shared_preload_libraries=pg_stat_statements", "autovacuum=off", "full_page_writes=off",
		"wal_level=minimal", "max_wal_senders=0", "fsync=off")
}

var costDatabases atomic.Int64

func openCostDatabase(t *testing.T, server *pgtest.Server) *fixture {
	name := fmt.Sprint("cost_", costDatabases.Add(1))
	if _, err := openTables(t, "pgx", server.URL()).Exec("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	address := withDatabase(server.URL(), name)
	f := openPostgres(t, address, address)
	f.exec(t, `CREATE EXTENSION pg_stat_statements SCHEMA public`)
	f.exec(t, `CREATE VIEW storing AS SELECT s.* FROM public.pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
		WHERE d.datname = current_database() AND s.query !~ 'pg_notify|^SELECT clock_timestamp..$|storing'`)
	return f
}

// nodeBatches is how many batches of a node are measured. How many results it sends together depends on how its goroutines
// happen to run, on a busy machine more than on another: among so many batches one is as good as it gets.
const nodeBatches = 20

// nodeCost returns the least number of allocations of a node that runs a batch of jobs every minute of virtual time.
func nodeCost(t *testing.T) cost {
	var all []cost
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := sqlite.Open(ctx, sqlite.Options{Dir: dir, Shards: shards})
		if err != nil {
			t.Fatal(err)
		}
		f := &fixture{Store: s, origin: thisMinute(s)}
		jobs := make([]store.NewJob, batch)
		for i := range jobs {
			jobs[i] = f.job(f.minutesAgo(-1))
		}
		f.createJobs(t, jobs...)
		var handled atomic.Int64
		stop := startNode(s, func(context.Context, *belfry.Run) error { handled.Add(1); return nil })
		for i := range warmUpBatches + nodeBatches {
			time.Sleep(time.Until(f.minutesAgo(-i-1)) - time.Second)
			synctest.Wait()
			all = append(all, heapCost(func() {
				time.Sleep(2 * time.Second)
				synctest.Wait()
			}))
			if n := handled.Load(); n != int64(batch*(i+1)) {
				t.Fatalf("%d runs were handled after %d minutes, wants %d", n, i+1, batch*(i+1))
			}
		}
		stop()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return least(all[warmUpBatches:])
}

// startNode runs a scheduler and a pool on a store.
func startNode(s store.Store, handler worker.HandlerFunc) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	local := scheduler.NewLocal(ctx, s)
	sched := scheduler.New(s, scheduler.Options{Owner: newID(), Local: local})
	mux := worker.NewMux()
	mux.HandleFunc(belfry.TypeHTTP, handler)
	pool := worker.New(local, mux, worker.Node("here"), worker.Concurrency(batch))
	var parts sync.WaitGroup
	parts.Go(func() { sched.Run(ctx) })
	parts.Go(func() { pool.Run(ctx) })
	for shard := range s.Shards() {
		parts.Go(func() { sched.Lead(ctx, store.Term{Shard: shard, Since: s.Now()}) })
	}
	return func() {
		cancel()
		parts.Wait()
	}
}
