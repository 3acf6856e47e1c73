// Package bench measures a node on this machine: how fast it registers jobs, how fast it
// works off jobs that are due at one instant, and how punctual it is at a steady rate. The
// jobs are in a namespace of their own, which is deleted at the end.
package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/node"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/postgres"
	"github.com/belfry-sh/belfry/internal/store/sqlite"
	"github.com/belfry-sh/belfry/worker"
)

// Namespace is that of the jobs. What is in it before is deleted, too: an earlier
// benchmark left it.
const Namespace = "belfry-bench"

// Mode is where the runs are executed.
type Mode string

// The modes.
const (
	ModeNode   Mode = "node"   // by a handler in the node that does nothing
	ModeHTTP   Mode = "http"   // by HTTP callbacks to a receiver in this process
	ModeWorker Mode = "worker" // by processes with a handler that does nothing
)

// handlerName is the handler, or the type of jobs, that does nothing.
const handlerName = "bench"

// Config is what all benchmarks have in common.
type Config struct {
	Jobs           int
	DatabaseURL    string // PostgreSQL; empty: SQLite
	Data           string // directory of SQLite; empty: a temporary one
	AllowOtherJobs bool   // although the database has jobs of others
	Keep           bool   // leaves the jobs and their history where they are

	Mode        Mode          // empty: nothing is executed
	Nodes       int           // that share the work, on PostgreSQL; 0: one
	Concurrency int           // of the node, or of each worker; 0: DefaultConcurrency
	Workers     int           // processes
	Lead        time.Duration // between the end of registering and the first instant; 0: enough to load the plans

	// WorkerCommand is a process that calls RunWorker with its standard streams.
	WorkerCommand func(ctx context.Context, server string, concurrency int) *exec.Cmd

	Version  string
	Progress func(stage string, done, total int) // is called often
	Log      *slog.Logger
}

// About says what was measured.
type About struct {
	Jobs        int    `json:"jobs"`
	Mode        Mode   `json:"mode,omitempty"`
	Database    string `json:"database"` // sqlite, postgres
	Version     string `json:"version"`
	Nodes       int    `json:"nodes,omitempty"`       // if there are several
	Concurrency int    `json:"concurrency,omitempty"` // of each node, or of each worker
	Workers     int    `json:"workers,omitempty"`     // processes
	Data        string `json:"data,omitempty"`        // where the database is, if it is a temporary one that is kept
}

// session is one benchmark under way.
type session struct {
	Config
	temporary bool          // the directory is removed at the end
	shared    store.Store   // PostgreSQL, open all the time; nil: SQLite, where only one may be open
	unlock    func()        // ends the lease on PostgreSQL
	skew      time.Duration // the clock of the store minus that of this process
	executed  recorder
	sink      *sink        // for HTTP callbacks; nil otherwise
	workerCPU atomic.Int64 // nanoseconds of the worker processes that have ended
}

// begin opens the database and makes sure that nothing of others is measured or deleted.
// The caller calls end.
func begin(ctx context.Context, c Config) (*session, error) {
	s := &session{Config: c, unlock: func() {}}
	if c.Concurrency == 0 {
		s.Concurrency = DefaultConcurrency[c.Mode]
	}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *session) open(ctx context.Context) (err error) {
	if s.Mode == ModeHTTP {
		if s.sink, err = newSink(&s.executed); err != nil {
			return err
		}
	}
	switch {
	case s.DatabaseURL != "":
		if s.shared, err = postgres.Open(ctx, postgres.Options{URL: s.DatabaseURL, Log: s.Log}); err != nil {
			s.shared = nil
			return fmt.Errorf("--database-url: %w", err)
		}
		s.skew = time.Until(s.shared.Now())
		if err := s.lock(ctx); err != nil {
			return err
		}
	case s.Data == "":
		if s.Data, err = os.MkdirTemp("", "belfry-bench-"); err != nil {
			return err
		}
		s.temporary = true
	}
	return s.withStore(ctx, func(st store.Store) error {
		if err := s.refuseOthers(ctx, st); err != nil {
			return err
		}
		return st.PurgeNamespace(ctx, Namespace)
	})
}

// refuseOthers returns an error if others use the database, unless they are allowed.
func (s *session) refuseOthers(ctx context.Context, st store.Store) error {
	if s.AllowOtherJobs {
		return nil
	}
	found, err := st.JobNamespaces(ctx)
	if err != nil {
		return err
	}
	if others := slices.DeleteFunc(found, func(name string) bool { return name == Namespace }); len(others) > 0 {
		return belfry.Errorf(belfry.Conflict, "the database has other jobs, in the namespace %s, which would run meanwhile: use an empty database, or --allow-other-jobs", others[0])
	}
	nodes, err := st.Held(ctx, store.NodeLeases)
	if err == nil && len(nodes) > 0 {
		err = belfry.Errorf(belfry.Conflict, "a node is running on the database, which would share the work: stop it, or use --allow-other-jobs")
	}
	return err
}

// lock keeps other benchmarks off the database until unlock is called: they would delete
// the jobs.
func (s *session) lock(ctx context.Context) error {
	const name, ttl = "bench", 20 * time.Second
	owner, held := belfry.NewID(time.Now()), []string{name}
	leases, err := s.shared.Hold(ctx, owner, held, ttl)
	if err != nil {
		return err
	}
	if len(leases) == 0 {
		return belfry.Errorf(belfry.Conflict, "another benchmark uses the database, or was killed a moment ago: wait until it has ended, or use another database")
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var renewing sync.WaitGroup
	renewing.Go(func() {
		for sleep(ctx, ttl/4) == nil {
			if _, err := s.shared.Hold(ctx, owner, held, ttl); err != nil && ctx.Err() == nil {
				s.Log.Warn("the lease that keeps other benchmarks off the database could not be renewed", "error", err)
			}
		}
	})
	s.unlock = func() {
		stop()
		renewing.Wait()
		_ = s.shared.Release(context.WithoutCancel(ctx), owner, held) // it expires soon
	}
	return nil
}

// DefaultConcurrency is the fastest that was measured on 2 cores. With more HTTP callbacks
// at a time, client and receiver take longer for each.
var DefaultConcurrency = map[Mode]int{ModeNode: 4000, ModeHTTP: 1000, ModeWorker: 2000}

// end deletes what the benchmark made, also if ctx has ended.
func (s *session) end(ctx context.Context) error {
	if s.Keep || s.temporary {
		return s.close()
	}
	s.progress("deleting the jobs", 0, 0)
	ctx = context.WithoutCancel(ctx)
	err := s.withStore(ctx, func(st store.Store) error { return st.PurgeNamespace(ctx, Namespace) })
	if err != nil {
		err = fmt.Errorf("jobs of the namespace %s are left; the next benchmark deletes them: %w", Namespace, err)
		s.Log.Error(err.Error()) // of an interrupted command nothing else is printed
	}
	return errors.Join(err, s.close())
}

func (s *session) close() error {
	if s.shared != nil {
		s.unlock()
		s.shared.Close()
	}
	if s.sink != nil {
		s.sink.Close()
	}
	if s.temporary && !s.Keep {
		return os.RemoveAll(s.Data)
	}
	return nil
}

func (s *session) about() About {
	a := About{Jobs: s.Jobs, Mode: s.Mode, Database: "sqlite", Version: s.Version, Concurrency: s.Concurrency}
	if s.Mode == ModeWorker {
		a.Workers = s.Workers
	}
	if s.Nodes > 1 {
		a.Nodes = s.Nodes
	}
	if s.DatabaseURL != "" {
		a.Database = "postgres"
	}
	if s.temporary && s.Keep {
		a.Data = s.Data
	}
	return a
}

func (s *session) progress(stage string, done, total int) {
	if s.Progress != nil {
		s.Progress(stage, done, total)
	}
}

// withStore calls f with an open store.
func (s *session) withStore(ctx context.Context, f func(store.Store) error) error {
	if s.shared != nil {
		return f(s.shared)
	}
	st, err := sqlite.Open(ctx, sqlite.Options{Dir: s.Data, Log: s.Log})
	if err != nil {
		return err
	}
	return errors.Join(f(st), st.Close())
}

// execute runs the nodes, waits for an instant and calls f, which waits for so many runs. It returns
// the processor time since the instant.
func (s *session) execute(ctx context.Context, at time.Time, runs int, f func(ctx context.Context) error) (cpuSeconds float64, err error) {
	s.executed.reserve(runs)
	var before time.Duration
	err = s.runNodes(ctx, func(ctx context.Context, _ string) error {
		if err := s.waitUntil(ctx, at); err != nil {
			return err
		}
		before = cpuTime()
		return f(ctx)
	})
	return (cpuTime() - before + time.Duration(s.workerCPU.Load())).Seconds(), err
}

// runNodes runs the nodes, and the worker processes of the first one, while f runs, and
// then lets them drain: every run that was executed is settled.
func (s *session) runNodes(ctx context.Context, f func(ctx context.Context, server string) error) error {
	c := node.Defaults()
	c.Listen, c.Data, c.DatabaseURL, c.DatabaseWait = "127.0.0.1:0", s.Data, s.DatabaseURL, 0
	c.RateLimit, c.DrainTimeout, c.Version = 0, 10*time.Second, s.Version
	if s.sink != nil {
		c.AllowTargets = []string{"127.0.0.1"}
	}
	if s.Mode == ModeNode || s.Mode == ModeHTTP {
		c.Concurrency = s.Concurrency
	}
	c.Handlers = map[string]worker.Handler{handlerName: worker.HandlerFunc(func(_ context.Context, run *belfry.Run) error {
		s.executed.add(execution{run.ID, time.Now().UnixMicro()})
		return nil
	})}
	running, stop := context.WithCancel(ctx)
	defer stop()
	during, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var nodes errgroup.Group
	server := ""
	for range max(s.Nodes, 1) {
		n, err := node.New(ctx, c, s.Log)
		if err != nil {
			stop()
			return errors.Join(err, nodes.Wait())
		}
		if server == "" {
			server = "http://" + n.Addr().String()
		}
		nodes.Go(func() error {
			defer cancel(errors.New("a node ended"))
			return n.Run(running)
		})
	}
	var err error
	if s.Mode == ModeWorker {
		err = s.withWorkers(during, server, func(ctx context.Context) error { return f(ctx, server) })
	} else {
		err = f(during, server)
	}
	stop()
	return errors.Join(err, nodes.Wait())
}
