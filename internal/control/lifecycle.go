package control

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/validate"
)

// Pause stops a job from firing until it is resumed. What is due already still runs. A
// paused job stays as it is.
func (c *Control) Pause(ctx context.Context, namespace, ref string) (belfry.Job, error) {
	return c.setPaused(ctx, belfry.AuditPause, namespace, ref, true, false)
}

// Resume lets a paused job fire again. The occurrences during the pause are recorded as
// skipped, or with CatchUp treated as missed; an overdue one-off runs in any case. A
// cancelled job is planned again, from now on. Any other job stays as it is.
func (c *Control) Resume(ctx context.Context, namespace, ref string, r belfry.Resume) (belfry.Job, error) {
	return c.setPaused(ctx, belfry.AuditResume, namespace, ref, false, r.CatchUp)
}

func (c *Control) setPaused(ctx context.Context, action belfry.AuditAction, namespace, ref string, paused, catchUp bool) (belfry.Job, error) {
	return c.editJob(ctx, action, namespace, ref, unprepared(func(job parsedJob, p plan.Plan, now time.Time) (*store.Change, error) {
		to := validate.Result{Manifest: job.Manifest, Paused: paused, Replan: !paused}
		to.Manifest.Spec = to.Manifest.Spec.WithDefaults()
		return c.change(job, p, to, catchUp, now)
	}))
}

// unprepared is an edit that needs nothing but the parsed job.
func unprepared(change edit) func(parsedJob, time.Time) (edit, error) {
	return func(parsedJob, time.Time) (edit, error) { return change, nil }
}

// CancelJob plans nothing more for a job and cancels its live runs and pending
// triggers. The job stays, no longer paused, and Resume or an edit of its schedule plans
// it again; but a one-off ends.
func (c *Control) CancelJob(ctx context.Context, namespace, ref string) (belfry.Job, error) {
	return c.editJob(ctx, belfry.AuditCancel, namespace, ref, unprepared(func(job parsedJob, p plan.Plan, now time.Time) (*store.Change, error) {
		job.State, job.UpdatedAt = belfry.JobActive, now // A schedule that cannot be parsed must not keep it alive.
		return &store.Change{Job: job.Job, Step: plan.Cancel(job.subject, p, now), Cancel: true}, nil
	}))
}

// DeleteOptions say what is removed with a job. The zero value lets its live runs finish
// and keeps its history.
type DeleteOptions struct {
	CancelRuns   bool // cancel its live runs
	PurgeHistory bool // delete its runs and skips as soon as no run is alive
}

// Delete makes a job invisible and plans nothing more for it. The match is that of
// Edit; a job that has ended cannot change, and has none.
func (c *Control) Delete(ctx context.Context, namespace, ref, match string, o DeleteOptions) error {
	id, err := c.resolve(ctx, namespace, ref)
	if err != nil {
		return err
	}
	found := false // by a try whose outcome may be unknown
	_, err = c.editJob(ctx, belfry.AuditDelete, namespace, id.String(), unprepared(func(job parsedJob, p plan.Plan, now time.Time) (*store.Change, error) {
		if err := checkVersion(job.Job, match); err != nil {
			return nil, err
		}
		found = true
		job.State, job.UpdatedAt = belfry.JobDeleted, now
		return &store.Change{Job: job.Job, Step: plan.Delete(job.subject, p, now), Cancel: o.CancelRuns, Purge: o.PurgeHistory}, nil
	}))
	if belfry.CodeOf(err) == belfry.Conflict && c.hasEnded(ctx, namespace, id) {
		found = false
		write, _ := c.audited(ctx, jobEntry(belfry.AuditDelete, namespace, id, ""))
		err = retryUnknown(ctx, "delete a job", func() error {
			err := c.store.DeleteEnded(write, namespace, id, o.PurgeHistory)
			found = found || !isNotFound(err)
			return err
		})
	}
	if isNotFound(err) && found {
		return nil // The first try did it, though its answer was lost.
	}
	return err
}

// Limits of a bulk action.
const (
	maxBulk     = 10_000 // jobs
	bulkPage    = 100
	bulkLists   = 500 // pages read, however few jobs match the filter
	bulkWorkers = 8   // jobs at the same time
)

// Bulk performs an action on the jobs that match a filter, newest first; a failure of
// one does not stop the others. Repeating it is harmless, and with a key no job is
// triggered twice. It stops at the limit, or after many pages, and returns the job after
// which to continue; zero at the end. With an error, it has done what the result says.
func (c *Control) Bulk(ctx context.Context, namespace string, b belfry.Bulk, after belfry.ID, k Key) (belfry.BulkResult, belfry.ID, error) {
	result := belfry.BulkResult{Failed: []belfry.BulkFailure{}}
	if !b.All && b.Filter.Empty() {
		return result, belfry.ID{}, invalid("the action is not valid", []belfry.FieldError{{
			Field: "filter", Message: `is empty; set what the jobs have in common, or "all"`,
		}})
	}
	if err := requireAction(ctx, b.Action); err != nil {
		return result, belfry.ID{}, err
	}
	b.Limit = cmp.Or(b.Limit, maxBulk)
	for range bulkLists {
		jobs, next, err := c.list(ctx, namespace, b.Filter, store.Page{After: store.Position{ID: after}, Limit: min(bulkPage, b.Limit-result.Matched)})
		if err != nil {
			return result, after, err
		}
		result.Matched += len(jobs)
		if !b.DryRun {
			if err := c.actOnAll(ctx, namespace, b.Action, jobs, k, &result); err != nil {
				return result, after, err
			}
		}
		if after = next.ID; after.IsZero() || result.Matched >= b.Limit {
			break
		}
	}
	return result, after, nil
}

// requireAction returns a Forbidden error if who asks may not apply an action.
func requireAction(ctx context.Context, action belfry.Action) error {
	if action == belfry.ActionDelete {
		return auth.Require(ctx, auth.Write)
	}
	return auth.Require(ctx, auth.Operate)
}

func (c *Control) act(ctx context.Context, namespace string, action belfry.Action, job belfry.Job, k Key) (err error) {
	ref := job.ID.String()
	switch action {
	case belfry.ActionPause:
		_, err = c.Pause(ctx, namespace, ref)
	case belfry.ActionResume:
		_, err = c.Resume(ctx, namespace, ref, belfry.Resume{})
	case belfry.ActionTrigger:
		_, err = c.Trigger(ctx, namespace, ref, belfry.Trigger{}, k.ofJob(job.ID))
	case belfry.ActionCancel:
		_, err = c.CancelJob(ctx, namespace, ref)
	case belfry.ActionRetry:
		_, err = c.Redrive(ctx, namespace, belfry.Redrive{Filter: belfry.DeadFilter{Job: ref}})
	case belfry.ActionDelete:
		if err = c.Delete(ctx, namespace, ref, "", DeleteOptions{}); isNotFound(err) {
			err = nil // Another request deleted it first.
		}
	default:
		err = belfry.Errorf(belfry.Internal, "there is no action %q", action)
	}
	return err
}

// ofJob is the key of one job's part of a bulk action.
func (k Key) ofJob(job belfry.ID) Key {
	if k.Text == "" {
		return Key{}
	}
	sum := sha256.Sum256([]byte(job.String() + k.Text))
	return Key{Text: "bulk-" + hex.EncodeToString(sum[:]), Hash: k.Hash}
}

// actOnAll performs an action on jobs, some at a time, and adds what came of it to a
// result. Only a database that does not answer, or a caller that has left, is an error
// of the whole.
func (c *Control) actOnAll(ctx context.Context, namespace string, action belfry.Action, jobs []belfry.Job, k Key, result *belfry.BulkResult) (lost error) {
	errs := make([]error, len(jobs))
	slots := make(chan struct{}, bulkWorkers)
	var workers sync.WaitGroup
	for i, job := range jobs {
		slots <- struct{}{}
		workers.Go(func() {
			if errs[i] = ctx.Err(); errs[i] == nil {
				errs[i] = c.act(ctx, namespace, action, job, k)
			}
			<-slots
		})
	}
	workers.Wait()
	for i, err := range errs {
		switch {
		case err == nil:
			result.Done++
		case ctx.Err() != nil:
			lost = unavailable("act on many jobs", ctx.Err())
		case belfry.CodeOf(err) == belfry.Unavailable:
			lost = err
		default:
			shown := "an internal error"
			if e, ok := errors.AsType[*belfry.Error](err); ok { // Users may see it, but not its cause.
				shown = (&belfry.Error{Message: e.Message, Fields: e.Fields}).Error()
			}
			result.Failed = append(result.Failed, belfry.BulkFailure{JobID: jobs[i].ID, Name: jobs[i].Name, Error: shown, Err: err})
		}
	}
	return lost
}

// Key is the idempotency key of a request, and a hash of the request. The same request
// with the same key within a week gets the first response, and nothing is done. The
// zero Key is none.
type Key struct {
	Text string
	Hash [32]byte
}

// request is what the store writes about a key; nil without one.
func (k Key) request(namespace string, response func() ([]byte, error)) *store.Request {
	if k.Text == "" {
		return nil
	}
	return &store.Request{Namespace: namespace, Key: k.Text, Hash: k.Hash, Response: response}
}

// cached returns the response of an earlier request with the key; nil if there is none.
// It comes before any validation: what was valid then need not be valid now.
func (c *Control) cached(ctx context.Context, namespace string, k Key) ([]byte, error) {
	if k.Text == "" {
		return nil, nil
	}
	earlier, err := retryRead(ctx, "look up an idempotency key", func() (*store.DuplicateRequest, error) {
		return c.store.CachedResponse(ctx, namespace, k.Text)
	})
	if err != nil || earlier == nil {
		return nil, err
	}
	return k.response(earlier)
}

// response returns the response of an earlier request, if it was the same request.
func (k Key) response(earlier *store.DuplicateRequest) ([]byte, error) {
	if earlier.Hash != k.Hash {
		return nil, invalid("the idempotency key was used for another request", []belfry.FieldError{{
			Field: "Idempotency-Key", Message: "was used with another request before; a key identifies one request and its repetitions",
		}})
	}
	return earlier.Response, nil
}

// duplicate returns the earlier response that an error carries, if it is about a key
// that was used before; otherwise the error.
func (k Key) duplicate(err error) ([]byte, error) {
	if earlier, ok := errors.AsType[*store.DuplicateRequest](err); ok {
		return k.response(earlier)
	}
	return nil, err
}

const badResponse = "decode the response cached under an idempotency key"

// decodeResponse decodes a cached response. It passes an error on.
func decodeResponse[T any](response []byte, err error) (v T, _ error) {
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(response, &v); err != nil {
		return v, belfry.Errorf(belfry.Internal, badResponse+": %w", err)
	}
	return v, nil
}
