// Package control does what people ask for: create, import, look up, edit, pause,
// resume, trigger, backfill, cancel and delete jobs, one or many; say why a job did
// or did not run; decide about dead letters; and claim and finish runs for workers
// that are elsewhere. It checks what they hand in, and asks the store until the
// outcome is known.
//
// Every method takes a namespace that ValidNamespace accepts, and gives failures
// that people may see as a *belfry.Error. What it returns is the truth, secrets
// included: masking them is up to whoever shows it.
package control

import (
	"context"
	"regexp"
	"strings"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// What lists are asked for by, and what they give.
type (
	Page       = store.Page
	RunPage    = store.RunPage
	JobFilter  = store.JobFilter
	JobList    = store.JobList
	RunFilter  = store.RunFilter
	RunList    = store.RunList
	DeadFilter = store.DeadFilter
	Revision   = store.Revision
)

// Control works on one store. It is safe for concurrent use.
type Control struct {
	store    store.Store
	defaults plan.Defaults
	gate     gate
}

// New returns a Control that works on s. The defaults must be those of the nodes
// that fire its jobs.
func New(s store.Store, d plan.Defaults) *Control { return &Control{store: s, defaults: d} }

var namespaces = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

// ValidNamespace reports whether a namespace may have this name: 1 to 63 lower
// case letters, digits and hyphens.
func ValidNamespace(name string) bool { return namespaces.MatchString(name) }

// Find gives the id of the job that a person means by an id or a name. Only a name
// is looked up: the job of an id may not be there.
func (c *Control) Find(ctx context.Context, namespace, ref string) (belfry.ID, error) {
	if id, err := belfry.ParseID(ref); err == nil {
		return id, nil
	}
	name := strings.TrimSpace(ref)
	if name == "" || checkName(name) != "" {
		return belfry.ID{}, noJobNamed(ref)
	}
	return c.named(ctx, namespace, name)
}

// named finds the job of a name.
func (c *Control) named(ctx context.Context, namespace, name string) (id belfry.ID, err error) {
	err = insist(ctx, "look up a job by its name", func() error {
		id, err = c.store.JobNamed(ctx, namespace, name)
		return err
	})
	if belfry.CodeOf(err) == belfry.NotFound {
		return belfry.ID{}, noJobNamed(name)
	}
	return id, err
}

func noJobNamed(ref string) error {
	return belfry.Errorf(belfry.NotFound, "there is no job with the id or name %q", sanitize.Text(ref, 200))
}

// Get finds a job that is not deleted, or one that has ended.
func (c *Control) Get(ctx context.Context, namespace string, id belfry.ID) (job belfry.Job, err error) {
	err = insist(ctx, "look up a job", func() error {
		job, err = c.store.Job(ctx, namespace, id)
		return err
	})
	return job, err
}

// List gives the jobs that are not deleted and pass the filter, newest first. Those
// that have ended are among them only if the filter asks for a status that they may
// have. A page may be short, or empty, and still be followed by others.
func (c *Control) List(ctx context.Context, namespace string, filter JobFilter, page Page) (list JobList, err error) {
	err = insist(ctx, "list jobs", func() error {
		list, err = c.store.ListJobs(ctx, namespace, filter, page)
		return err
	})
	return list, err
}

// Run finds a run, live or settled, with the attempts that failed.
func (c *Control) Run(ctx context.Context, namespace string, id belfry.ID) (run belfry.Run, err error) {
	err = insist(ctx, "look up a run", func() error {
		run, err = c.store.Run(ctx, namespace, id)
		return err
	})
	return run, err
}

// Runs gives the runs and skips of a job, latest occurrence first, without their
// attempts; NotFound if the job is not there or deleted.
func (c *Control) Runs(ctx context.Context, namespace string, job belfry.ID, page RunPage) (runs []belfry.Run, err error) {
	if _, err := c.Get(ctx, namespace, job); err != nil {
		return nil, err
	}
	err = insist(ctx, "list the runs of a job", func() error {
		runs, err = c.store.JobRuns(ctx, namespace, job, page)
		return err
	})
	return runs, err
}

// ListRuns gives the runs and skips of all jobs, latest first, without their
// attempts. A page may be short, or empty, and still be followed by others.
func (c *Control) ListRuns(ctx context.Context, namespace string, filter RunFilter, page Page) (list RunList, err error) {
	err = insist(ctx, "list runs", func() error {
		list, err = c.store.ListRuns(ctx, namespace, filter, page)
		return err
	})
	return list, err
}

// Events gives what was told of in a namespace, latest first.
func (c *Control) Events(ctx context.Context, namespace string, page Page) (events []belfry.Event, err error) {
	err = insist(ctx, "list events", func() error {
		events, err = c.store.Events(ctx, namespace, page)
		return err
	})
	return events, err
}
