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
	"slices"
	"strings"
	"time"

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

	Mode        Mode
	Concurrency int           // of the node, or of each worker; 0: the fastest that is sensible
	Lead        time.Duration // between the end of registering and the first instant; 0: enough to load the plans

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
	Concurrency int    `json:"concurrency,omitempty"`
	Data        string `json:"data,omitempty"` // where the database is, if it is a temporary one that is kept
}

// session is one benchmark under way.
type session struct {
	Config
	temporary bool          // the directory is removed at the end
	skew      time.Duration // the clock of the store minus that of this process
	executed  recorder
}

// begin opens the database for the first time and makes sure that nothing of others is
// measured or deleted. The caller calls end.
func begin(ctx context.Context, c Config) (*session, error) {
	s := &session{Config: c}
	if c.Concurrency == 0 {
		s.Concurrency = defaultConcurrency[c.Mode]
	}
	if c.DatabaseURL == "" && c.Data == "" {
		dir, err := os.MkdirTemp("", "belfry-bench-")
		if err != nil {
			return nil, err
		}
		s.Data, s.temporary = dir, true
	}
	err := s.withStore(ctx, func(st store.Store) error {
		found, err := st.Namespaces(ctx)
		if err != nil {
			return err
		}
		others := slices.DeleteFunc(found, func(name string) bool { return name == Namespace })
		if len(others) > 0 && !c.AllowOtherJobs {
			return belfry.Errorf(belfry.Conflict, "the database has jobs of others (%s), which would run meanwhile and be slowed down: use an empty database, or --allow-other-jobs", namespacesText(others))
		}
		return st.DeleteNamespace(ctx, Namespace)
	})
	if err != nil {
		s.removeTemporary()
		return nil, err
	}
	return s, nil
}

func namespacesText(names []string) string {
	const most = 3
	text := "namespace " + strings.Join(names[:min(len(names), most)], ", ")
	if len(names) > most {
		text += fmt.Sprintf(" and %d more", len(names)-most)
	}
	return text
}

// defaultConcurrency is the fastest of what was measured on 2 cores.
var defaultConcurrency = map[Mode]int{ModeNode: 2000, ModeHTTP: 100, ModeWorker: 1000}

// end deletes what the benchmark made, also if ctx has ended.
func (s *session) end(ctx context.Context) error {
	switch {
	case s.Keep:
		return nil
	case s.temporary:
		return s.removeTemporary()
	}
	s.progress("deleting the jobs", 0, 0)
	ctx = context.WithoutCancel(ctx)
	err := s.withStore(ctx, func(st store.Store) error { return st.DeleteNamespace(ctx, Namespace) })
	if err != nil {
		return fmt.Errorf("jobs of the namespace %s are left; the next benchmark deletes them: %w", Namespace, err)
	}
	return nil
}

func (s *session) removeTemporary() error {
	if !s.temporary {
		return nil
	}
	return os.RemoveAll(s.Data)
}

func (s *session) about() About {
	a := About{Jobs: s.Jobs, Mode: s.Mode, Database: "sqlite", Version: s.Version, Concurrency: s.Concurrency}
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

// withStore opens the store for a while. The node has one of its own, and on SQLite only
// one may be open.
func (s *session) withStore(ctx context.Context, f func(store.Store) error) error {
	st, err := s.open(ctx)
	if err != nil {
		return err
	}
	if s.DatabaseURL != "" {
		s.skew = time.Until(st.Now())
	}
	return errors.Join(f(st), st.Close())
}

func (s *session) open(ctx context.Context) (store.Store, error) {
	if s.DatabaseURL == "" {
		return sqlite.Open(ctx, sqlite.Options{Dir: s.Data, Log: s.Log})
	}
	st, err := postgres.Open(ctx, postgres.Options{URL: s.DatabaseURL, Log: s.Log})
	if err != nil {
		return nil, fmt.Errorf("--database-url: %w", err)
	}
	return st, nil
}

// runNode runs a node while f runs, and then lets it drain: every run that was executed
// is settled.
func (s *session) runNode(ctx context.Context, f func(ctx context.Context, n *node.Node) error) error {
	c := node.Defaults()
	c.Listen, c.Data, c.DatabaseURL, c.DatabaseWait = "127.0.0.1:0", s.Data, s.DatabaseURL, 0
	c.AllowTargets, c.RateLimit, c.DrainTimeout, c.Version = []string{"127.0.0.1"}, 0, 10*time.Second, s.Version
	if s.Mode != ModeWorker {
		c.Concurrency = s.Concurrency
	}
	c.Handlers = map[string]worker.Handler{handlerName: worker.HandlerFunc(func(_ context.Context, run *belfry.Run) error {
		s.executed.add(run.ID, time.Now())
		return nil
	})}
	n, err := node.New(ctx, c, s.Log)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	during, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() {
		ended <- n.Run(running)
		cancel(errors.New("the node ended"))
	}()
	err = f(during, n)
	stop()
	return errors.Join(err, <-ended)
}
