// Package control does what people ask for: create, look up, pause, resume,
// trigger and delete. It checks what they hand in, and asks the store until the
// outcome is known.
//
// Every method takes a namespace that ValidNamespace accepts, and gives failures
// that people may see as a *belfry.Error. What it returns is the truth, secrets
// included: masking them is up to whoever shows it.
package control

import (
	"context"
	"regexp"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// Page asks for part of a list of jobs, RunPage for part of a list of runs.
type (
	Page    = store.Page
	RunPage = store.RunPage
)

// Control works on one store. It is safe for concurrent use.
type Control struct {
	store store.Store
}

// New returns a Control that works on s.
func New(s store.Store) *Control { return &Control{store: s} }

var namespaces = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

// ValidNamespace reports whether a namespace may have this name: 1 to 63 lower
// case letters, digits and hyphens.
func ValidNamespace(name string) bool { return namespaces.MatchString(name) }

// Get finds a job that is not deleted.
func (c *Control) Get(ctx context.Context, namespace string, id belfry.ID) (job belfry.Job, err error) {
	err = insist(ctx, "look up a job", func() error {
		job, err = c.store.Job(ctx, namespace, id)
		return err
	})
	return job, err
}

// List gives the jobs that are not deleted, newest first.
func (c *Control) List(ctx context.Context, namespace string, page Page) (jobs []belfry.Job, err error) {
	err = insist(ctx, "list jobs", func() error {
		jobs, err = c.store.ListJobs(ctx, namespace, page)
		return err
	})
	return jobs, err
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
