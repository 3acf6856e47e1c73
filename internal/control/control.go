// Package control is the operations on jobs, runs, dead letters and workers: what the
// API offers. It validates input, resolves names, repeats calls of the store while
// their outcome is unknown, and hides secrets.
//
// Every method takes a namespace that validate.Namespace accepts and returns failures
// that users may see as a *belfry.Error. A job is found by its id or its name. Results
// are safe to show: payloads are masked. Only Claim returns true payloads.
package control

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/secret"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/validate"
)

// Store is what control needs of a store.
type Store interface {
	store.Jobs
	store.Runs
	store.History
	store.DeadLetters
	store.Sharding
	store.Clock
	store.Notifier
	PlansByJob(ctx context.Context, jobs []belfry.ID) ([]store.Due, error)
}

// Control works on one store. It is safe for concurrent use.
type Control struct {
	store    Store
	read     reader
	defaults plan.Defaults
	poller   claimPoller
}

// New returns a Control that works on s. The defaults must be those of the nodes that
// fire the jobs.
func New(s Store, d plan.Defaults) *Control {
	return &Control{store: s, read: reader{s}, defaults: d}
}

// now is the time of the store as it is stored.
func (c *Control) now() time.Time { return c.store.Now().UTC().Truncate(time.Microsecond) }

// resolve returns the id of the job that an id or a name refers to. Only a name is
// looked up: the job of an id may not exist.
func (c *Control) resolve(ctx context.Context, namespace, ref string) (belfry.ID, error) {
	if id, err := belfry.ParseID(ref); err == nil {
		return id, nil
	}
	name := strings.TrimSpace(ref)
	if name == "" || validate.Name(name) != "" {
		return belfry.ID{}, noSuchJob(ref)
	}
	return c.idByName(ctx, namespace, name)
}

func (c *Control) idByName(ctx context.Context, namespace, name string) (belfry.ID, error) {
	id, err := retryRead(ctx, "look up a job by its name", func() (belfry.ID, error) {
		return c.store.JobIDByName(ctx, namespace, name)
	})
	if isNotFound(err) {
		return belfry.ID{}, noSuchJob(name)
	}
	return id, err
}

func noSuchJob(ref string) error {
	return belfry.Errorf(belfry.NotFound, "there is no job with the id or name %q", sanitize.Text(ref, 200))
}

func isNotFound(err error) bool { return err != nil && belfry.CodeOf(err) == belfry.NotFound }

// invalid is the error about input with field errors; nil if there are none.
func invalid(message string, errors []belfry.FieldError) error {
	if len(errors) == 0 {
		return nil
	}
	return &belfry.Error{Code: belfry.Invalid, Message: message, Fields: errors}
}

func invalidJob(errors []belfry.FieldError) error { return invalid("the job is not valid", errors) }

// masked is a job that is safe to show.
func masked(job belfry.Job) belfry.Job {
	job.Payload = secret.Mask(job.Payload)
	return job
}

// job finds a job with its true payload.
func (c *Control) job(ctx context.Context, namespace, ref string) (belfry.Job, error) {
	id, err := c.resolve(ctx, namespace, ref)
	if err != nil {
		return belfry.Job{}, err
	}
	return c.read.Job(ctx, namespace, id)
}

// Get finds a job that is not deleted, or one that has ended.
func (c *Control) Get(ctx context.Context, namespace, ref string) (belfry.Job, error) {
	job, err := c.job(ctx, namespace, ref)
	return masked(job), err
}

// List returns the jobs that are not deleted and match the filter, newest first, and
// where the list continues: the zero position is its end, as in all lists. Jobs that
// have ended are included only if the filter has a status that they may have. A page
// may be short, or empty, and still be followed by others.
func (c *Control) List(ctx context.Context, namespace string, f belfry.JobFilter, p store.Page) ([]belfry.Job, store.Position, error) {
	jobs, next, err := c.list(ctx, namespace, f, p)
	for i := range jobs {
		jobs[i] = masked(jobs[i])
	}
	return jobs, next, err
}

func (c *Control) list(ctx context.Context, namespace string, f belfry.JobFilter, p store.Page) ([]belfry.Job, store.Position, error) {
	list, err := retryRead(ctx, "list jobs", func() (store.JobList, error) {
		return c.store.ListJobs(ctx, namespace, f, p)
	})
	return list.Jobs, store.Position{ID: list.Next}, err
}

// cutPage cuts a list that was read with one item more than a page has, and returns
// where it continues.
func cutPage[T any](list []T, limit int, position func(T) store.Position) ([]T, store.Position) {
	if len(list) <= limit || limit <= 0 {
		return list, store.Position{}
	}
	return list[:limit], position(list[limit-1])
}

// Version identifies one state of a job: it differs after every change of its name,
// tags, spec, payload or of whether it is paused, and stays while the job runs. It has
// only digits, lower case letters and a hyphen.
func Version(job belfry.Job) string {
	h := fnv.New64a()
	h.Write(binary.BigEndian.AppendUint64(job.ID[:], uint64(job.UpdatedAt.UnixMicro())))
	// Two changes may have the same time, so what needs no new revision counts too.
	for _, text := range append([]string{string(job.State), job.Name}, job.Tags...) {
		h.Write([]byte(text))
		h.Write([]byte{0xff}) // in no valid text
	}
	return strconv.FormatInt(int64(job.Revision), 36) + "-" + strconv.FormatUint(h.Sum64(), 36)
}

// Preview returns when a schedule fires. It refuses what Create would refuse, except a
// one-off that has passed.
func (c *Control) Preview(r belfry.PreviewRequest) (belfry.Preview, error) {
	p, errors := validate.New(c.now(), c.defaults).Preview(r)
	return p, invalid("the schedule is not valid", errors)
}
