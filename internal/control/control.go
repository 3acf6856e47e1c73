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
	"errors"
	"fmt"
	"hash/fnv"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/cache"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/secret"
	"github.com/belfry-sh/belfry/internal/share"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/validate"
)

// Store is what control needs of a store.
type Store interface {
	store.Jobs
	store.Runs
	store.SharedRuns
	store.History
	store.DeadLetters
	store.Alerts
	store.Events
	store.Monitors
	store.APIKeys
	store.Namespaces
	store.Secrets
	store.Audits
	store.Sharding
	store.Clock
	store.Notifier
	store.PlanSamples
	store.Nodes
	store.Statistics
	store.Pinger
	store.Activities
	store.Sessions
	JobNamespaces(ctx context.Context) ([]string, error)
	PlansByJob(ctx context.Context, jobs []belfry.ID) ([]store.Due, error)
	Upcoming(ctx context.Context, w store.Window) ([]store.Planned, error)
	Held(ctx context.Context, prefix string) ([]store.Lease, error)
}

// Control works on one store. It is safe for concurrent use.
type Control struct {
	store     retryingStore
	defaults  plan.Defaults
	computing computing
	poller    claimPoller
	feed      eventFeed
	offers    Offers // nil: no scheduler of this node fills claims
	quotas    *share.Quotas
	sender    Sender // nil: channels cannot be tested
	messages  func(belfry.MessagePayload) []belfry.FieldError

	encryption Encryption // nil: nothing can be encrypted anew

	refuseShell bool                        // jobs may not give text for a shell
	refreshKeys func(context.Context) error // nil: API keys count later

	node        belfry.ID
	ownsAll     bool
	election    belfry.Election
	forecasting computing // apart from others, whose schedules it must not keep waiting
	forecasts   cache.Cache[forecastKey, belfry.Forecast]
	fleets      cache.Cache[struct{}, belfry.Fleet]
	usage       cache.Cache[struct{}, map[string]belfry.Usage] // of all namespaces
}

// New returns a Control that works on s. The defaults must be those of the nodes that
// fire the jobs.
func New(s Store, d plan.Defaults) *Control {
	return &Control{store: retryingStore{s}, defaults: d, computing: make(computing, max(1, runtime.GOMAXPROCS(0)/2)), forecasting: make(computing, 1)}
}

// LimitRunning has claims respect how many runs of a namespace may run at once. It is called
// before any claim.
func (c *Control) LimitRunning(q *share.Quotas) { c.quotas = q }

// FillClaims has claims that wait filled by a scheduler. It is called before any claim.
func (c *Control) FillClaims(o Offers) { c.offers = o }

// SendThrough sets how channels are tested. It is called before any of that.
func (c *Control) SendThrough(s Sender) { c.sender = s }

// CheckPayloads sets what is checked of messages beyond their form, and whether jobs may give
// text for a shell. It is called before any job is created.
func (c *Control) CheckPayloads(messages func(belfry.MessagePayload) []belfry.FieldError, allowShell bool) {
	c.messages, c.refuseShell = messages, !allowShell
}

// validator validates the jobs of a namespace. It does not wait for anything.
func (c *Control) validator(namespace string, q belfry.Quota, now time.Time) *validate.Validator {
	v := validate.New(now, c.defaults)
	v.Messages, v.RefuseShell = c.messages, c.refuseShell
	v.Namespace, v.MinInterval = namespace, time.Duration(q.MinIntervalSeconds*float64(time.Second))
	return v
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

// resolveFilter returns the id of the job that a filter names; zero: it names none.
func (c *Control) resolveFilter(ctx context.Context, namespace, ref string) (id belfry.ID, err error) {
	if ref != "" {
		id, err = c.resolve(ctx, namespace, ref)
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
	return c.store.Job(ctx, namespace, id)
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
	list, err := retryRead(ctx, "list jobs", func() (store.JobList, error) { return c.store.ListJobs(ctx, namespace, f, p) })
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

// readPage reads a page of a list that the store gives in order.
func readPage[T any](ctx context.Context, doing string, p store.Page, read func(store.Page) ([]T, error), position func(T) store.Position) ([]T, store.Position, error) {
	list, err := retryRead(ctx, doing, func() ([]T, error) { return read(store.Page{After: p.After, Limit: p.Limit + 1}) })
	list, next := cutPage(list, p.Limit, position)
	return list, next, err
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
// one-off that has passed. It ends soon after ctx does.
func (c *Control) Preview(ctx context.Context, r belfry.PreviewRequest) (p belfry.Preview, err error) {
	err = c.computing.do(ctx, func() error {
		var errors []belfry.FieldError
		p, errors = validate.New(c.now(), c.defaults).Preview(ctx, r)
		return invalid("the schedule is not valid", errors)
	})
	if err == nil && ctx.Err() != nil {
		err = abandoned(ctx)
	}
	return p, err
}

// retryPauses are the waits before a call of unknown outcome is repeated.
var retryPauses = [...]time.Duration{50 * time.Millisecond, 250 * time.Millisecond}

// retryUnknown repeats a call of the store while its outcome is unknown; the contract
// of the store makes that safe. In the end the error is Unavailable, and wraps the cause
// for the log.
func retryUnknown(ctx context.Context, doing string, call func() error) error {
	for try := 0; ; try++ {
		err := call()
		switch {
		case isKnown(err):
			return err
		case try == len(retryPauses):
			return unavailable(doing, err)
		}
		select {
		case <-ctx.Done():
			return unavailable(doing, err)
		case <-time.After(retryPauses[try]):
		}
	}
}

// isKnown reports whether the outcome of a call is known by its error.
func isKnown(err error) bool {
	_, known := errors.AsType[*belfry.Error](err)
	_, earlier := errors.AsType[*store.DuplicateRequest](err)
	return err == nil || known || earlier
}

// unavailable joins what users may see with a cause that they may not.
func unavailable(doing string, cause error) error {
	shown := belfry.Errorf(belfry.Unavailable, "the database does not answer; try again")
	return fmt.Errorf("%s: %w: %w", doing, shown, cause)
}

// retryRead is retryUnknown for a call that returns something.
func retryRead[T any](ctx context.Context, doing string, call func() (T, error)) (v T, err error) {
	err = retryUnknown(ctx, doing, func() error {
		v, err = call()
		return err
	})
	return v, err
}

// retryingStore is a Store that repeats the reads of jobs whose outcome is unknown.
type retryingStore struct{ Store }

func (s retryingStore) Job(ctx context.Context, namespace string, id belfry.ID) (belfry.Job, error) {
	return retryRead(ctx, "look up a job", func() (belfry.Job, error) { return s.Store.Job(ctx, namespace, id) })
}

func (s retryingStore) DeletedJob(ctx context.Context, namespace string, id belfry.ID) (belfry.Job, error) {
	return retryRead(ctx, "look up a deleted job", func() (belfry.Job, error) { return s.Store.DeletedJob(ctx, namespace, id) })
}

func (s retryingStore) Revisions(ctx context.Context, namespace string, id belfry.ID, before, limit int) ([]belfry.Revision, error) {
	return retryRead(ctx, "list the revisions of a job", func() ([]belfry.Revision, error) {
		return s.Store.Revisions(ctx, namespace, id, before, limit)
	})
}

// ErrBusy is the Unavailable error of a request whose schedule could not be computed in
// time, because too many others were.
var ErrBusy = belfry.Errorf(belfry.Unavailable, "the server is busy with other schedules; try again")

const (
	maxComputeWait = 5 * time.Second        // for a turn
	shortCompute   = time.Millisecond       // what takes longer is followed by a rest
	maxComputeRest = 100 * time.Millisecond // also if the machine slept meanwhile
)

// computing bounds how many schedules are parsed and previewed at once. A schedule may
// take some milliseconds, and whoever sends many must leave the processors to firing: a
// turn that took long is not given to the next one before the same time has passed again.
type computing chan struct{}

// do waits for its turn and calls f, which must not wait for anything. Without a turn
// the error is ErrBusy, or Unavailable if ctx ended.
func (c computing) do(ctx context.Context, f func() error) error {
	if err := c.take(ctx); err != nil {
		return err
	}
	start := time.Now()
	defer func() {
		free := func() { <-c }
		if took := time.Since(start); took > shortCompute {
			time.AfterFunc(min(took, maxComputeRest), free)
		} else {
			free()
		}
	}()
	return f()
}

func (c computing) take(ctx context.Context) error {
	if ctx.Err() != nil {
		return abandoned(ctx)
	}
	late := time.NewTimer(maxComputeWait)
	defer late.Stop()
	select {
	case c <- struct{}{}:
		return nil
	case <-late.C:
		return ErrBusy
	case <-ctx.Done():
		return abandoned(ctx)
	}
}

// abandoned is the error of a computation that nobody waits for any more.
func abandoned(ctx context.Context) error {
	return belfry.Errorf(belfry.Unavailable, "the request ended before its schedule was computed: %w", context.Cause(ctx))
}

func (c *Control) compile(ctx context.Context, spec belfry.Spec) (policy *plan.Policy, err error) {
	err = c.computing.do(ctx, func() (err error) {
		policy, err = c.defaults.Compile(spec)
		return err
	})
	return policy, err
}
