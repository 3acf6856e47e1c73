package control

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/secret"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/validate"
)

// Limits of a request about dead letters.
const (
	maxDead     = 10_000
	deadPage    = 500
	payloadPage = 20 // that get another payload at once, since payloads may be large

	listDead = "list dead letters"
)

// ListDeadLetters returns the dead letters that match the filter, the latest death
// first, without payloads and attempts. The instants of positions are those of death.
func (c *Control) ListDeadLetters(ctx context.Context, namespace string, f belfry.DeadFilter, p store.Page) (_ []belfry.DeadLetter, _ store.Position, err error) {
	if f.JobID, err = c.resolveFilter(ctx, namespace, f.Job); err != nil {
		return nil, store.Position{}, err
	}
	letters, next, err := readPage(ctx, listDead, p, func(p store.Page) ([]belfry.DeadLetter, error) { return c.store.ListDeadLetters(ctx, namespace, f, p) }, deadPosition)
	for i := range letters {
		setComputed(&letters[i].Run)
	}
	return letters, next, err
}

// GroupDeadLetters counts the dead letters that match the filter by kind of failure,
// the largest group first.
func (c *Control) GroupDeadLetters(ctx context.Context, namespace string, f belfry.DeadFilter, limit int) (_ []belfry.DeadGroup, err error) {
	if f.JobID, err = c.resolveFilter(ctx, namespace, f.Job); err != nil {
		return nil, err
	}
	return retryRead(ctx, "group dead letters", func() ([]belfry.DeadGroup, error) { return c.store.GroupDeadLetters(ctx, namespace, f, limit) })
}

// DeadLetter finds a dead letter with its payload and all its attempts.
func (c *Control) DeadLetter(ctx context.Context, namespace string, id belfry.ID) (belfry.DeadLetter, error) {
	letter, err := c.deadLetter(ctx, namespace, id)
	letter.Payload = secret.Mask(letter.Payload)
	setComputed(&letter.Run)
	return letter, err
}

// deadLetter finds a dead letter with its true payload.
func (c *Control) deadLetter(ctx context.Context, namespace string, id belfry.ID) (belfry.DeadLetter, error) {
	return retryRead(ctx, "look up a dead letter", func() (belfry.DeadLetter, error) { return c.store.DeadLetter(ctx, namespace, id) })
}

func deadPosition(letter belfry.DeadLetter) store.Position {
	if letter.FinishedAt == nil {
		return store.Position{At: letter.ReadyAt, ID: letter.ID}
	}
	return store.Position{At: *letter.FinishedAt, ID: letter.ID}
}

// Redrive makes runs of dead letters again, with all their retries: they keep their
// ids, idempotency keys and attempts. If their job was edited since they were fired they
// run as it is now, unless the request says otherwise. A single one that does not exist
// is NotFound; a filter that matches none is no error. The payload is that of Trigger.
func (c *Control) Redrive(ctx context.Context, namespace string, r belfry.Redrive) (belfry.DeadResult, error) {
	if r.Payload != nil && r.RunID.IsZero() && r.Filter.Job == "" {
		return belfry.DeadResult{}, invalid("the redrive is not valid", []belfry.FieldError{{
			Field: "payload", Message: "is possible for the dead letters of one job only; set the job of the filter",
		}})
	}
	runs, result, err := c.selectDead(ctx, namespace, belfry.Discard{Filter: r.Filter, All: r.All, Limit: r.Limit, RunID: r.RunID})
	if err != nil {
		return belfry.DeadResult{}, err
	}
	jobs := currentJobs{c, namespace, map[belfry.ID]*belfry.Job{}}
	for i := range runs {
		if runs[i].edited = runs[i].edited && !r.AsFired; runs[i].edited {
			result.Edited++
		}
		if r.Payload == nil {
			continue
		}
		if _, err := c.redriven(ctx, jobs, runs[i], r.Payload); err != nil && !isNotFound(err) { // All are refused if it is invalid for one.
			return belfry.DeadResult{}, err
		}
	}
	if !r.DryRun {
		err = c.redrive(ctx, namespace, r, runs, &result)
	}
	return result, err
}

// Discard removes dead letters for good: they become history. Otherwise it is like
// Redrive.
func (c *Control) Discard(ctx context.Context, namespace string, d belfry.Discard) (belfry.DeadResult, error) {
	runs, result, err := c.selectDead(ctx, namespace, d)
	if err != nil || d.DryRun {
		return result, err
	}
	for page := range slices.Chunk(runs, deadPage) {
		ids := make([]belfry.ID, len(page))
		for i, run := range page {
			ids[i] = run.id
		}
		write, audit := c.audited(ctx, belfry.AuditEntry{Namespace: namespace, Action: belfry.AuditDiscard})
		auditDead(audit, page)
		n, err := retryCounted(ctx, "discard dead letters", len(page), func() (int, error) { return c.store.Discard(write, namespace, ids) })
		result.Done += n
		if err != nil {
			return result, err
		}
	}
	return result, nil
}

// selected is a dead letter that a request is about.
type selected struct {
	id, job    belfry.ID
	edited     bool   // the job was, since the run was fired
	hasPayload bool   // of its own
	name       string // of the job
}

func selectLetter(l belfry.DeadLetter) selected {
	return selected{l.ID, l.JobID, l.Edited(), l.HasPayload, l.JobName}
}

// selectDead finds the dead letters that a request is about, the oldest death first,
// and the result of a dry run.
func (c *Control) selectDead(ctx context.Context, namespace string, d belfry.Discard) (runs []selected, result belfry.DeadResult, err error) {
	if !d.RunID.IsZero() {
		letter, err := c.deadLetter(ctx, namespace, d.RunID)
		if err == nil {
			runs, result.Matched = []selected{selectLetter(letter)}, 1
		}
		return runs, result, err
	}
	if d.Filter == (belfry.DeadFilter{}) && !d.All {
		return nil, result, invalid("the request is not valid", []belfry.FieldError{{
			Field: "filter", Message: `is empty; set what the dead letters have in common, or "all"`,
		}})
	}
	if d.Filter.JobID, err = c.resolveFilter(ctx, namespace, d.Filter.Job); err != nil {
		return nil, result, err
	}
	limit := cmp.Or(d.Limit, maxDead)
	for page := (store.Page{}); len(runs) <= limit; {
		page.Limit = min(deadPage, limit+1-len(runs)) // The one beyond the limit shows whether there are more.
		letters, err := retryRead(ctx, listDead, func() ([]belfry.DeadLetter, error) { return c.store.ListDeadLetters(ctx, namespace, d.Filter, page) })
		if err != nil {
			return nil, result, err
		}
		for _, letter := range letters {
			runs, page.After = append(runs, selectLetter(letter)), deadPosition(letter)
		}
		if len(letters) < page.Limit {
			break
		}
	}
	result.More = len(runs) > limit
	runs = runs[:min(len(runs), limit)]
	result.Matched = len(runs)
	slices.Reverse(runs)
	return runs, result, nil
}

// retryCounted is retryUnknown for a call that returns how many dead letters it acted
// on. After an answer that was lost that is not known, and all count.
func retryCounted(ctx context.Context, doing string, runs int, call func() (int, error)) (int, error) {
	tries := 0
	n, err := retryRead(ctx, doing, func() (int, error) {
		tries++
		return call()
	})
	if err == nil && tries > 1 {
		n = runs
	}
	return n, err
}

// redrive starts dead letters, each at its time by the rate of the request. Those that
// are none any more are left out.
func (c *Control) redrive(ctx context.Context, namespace string, r belfry.Redrive, runs []selected, result *belfry.DeadResult) error {
	size, started, now := deadPage, 0, c.now()
	if r.Payload != nil || result.Edited > 0 {
		size = payloadPage
	}
	for page := range slices.Chunk(runs, size) {
		list := make([]store.Redrive, 0, len(page))
		jobs := currentJobs{c, namespace, map[belfry.ID]*belfry.Job{}}
		for _, run := range page {
			next, err := c.redriven(ctx, jobs, run, r.Payload)
			if isNotFound(err) {
				continue
			} else if err != nil {
				return err
			}
			if r.Rate > 0 {
				next.After = time.Duration(float64(started) / r.Rate * float64(time.Second)).Round(time.Microsecond)
			}
			started++
			list = append(list, next)
		}
		if len(list) == 0 {
			continue
		}
		write, audit := c.audited(ctx, belfry.AuditEntry{Namespace: namespace, Action: belfry.AuditRedrive})
		if r.Payload != nil && audit != nil {
			_, audit.Entry.After = auditChange([]belfry.FieldChange{{Field: "payload", New: secret.Mask(r.Payload)}})
		}
		auditDead(audit, page)
		n, err := retryCounted(ctx, "redrive dead letters", len(list), func() (int, error) { return c.store.Redrive(write, namespace, list) })
		if err != nil {
			return err
		}
		result.Done += n
		result.LastAt = now.Add(list[len(list)-1].After)
	}
	return nil
}

// currentJobs looks up each of the edited jobs of a page once.
type currentJobs struct {
	control   *Control
	namespace string
	found     map[belfry.ID]*belfry.Job // nil: it was deleted meanwhile
}

func (j currentJobs) get(ctx context.Context, id belfry.ID) (*belfry.Job, error) {
	if job, known := j.found[id]; known {
		return job, nil
	}
	job, err := j.control.store.Job(ctx, j.namespace, id)
	if err != nil && !isNotFound(err) {
		return nil, err
	}
	if j.found[id] = nil; err == nil && job.State != belfry.JobEnded {
		j.found[id] = &job
	}
	return j.found[id], nil
}

// redriven is how a dead letter runs again. An edited job gives it everything but a
// payload of its own, of which an HTTP request has only the body: its address and headers
// are those of the job. An override replaces either.
func (c *Control) redriven(ctx context.Context, jobs currentJobs, run selected, override json.RawMessage) (next store.Redrive, err error) {
	next.Run, next.JobID = run.id, run.job
	given := override != nil
	if run.edited {
		if next.Job, err = jobs.get(ctx, run.job); err != nil {
			return next, err
		}
	}
	var letter belfry.DeadLetter
	if override != nil && next.Job == nil || override == nil && next.Job != nil && run.hasPayload {
		if letter, err = c.deadLetter(ctx, jobs.namespace, run.id); err != nil {
			return next, err
		}
	}
	job := belfry.Job{Manifest: belfry.Manifest{Spec: letter.Spec, Payload: letter.Payload}}
	if next.Job != nil {
		job = *next.Job
		next.Weight = c.defaults.Weight(job.Priority)
		if override == nil && run.hasPayload {
			override = validate.OwnPayload(letter.Spec.Type, job.Type, letter.Payload)
			if !bytes.Equal(secret.Mask(override), override) && !validate.SameTarget(job.Type, letter.Payload, job.Payload) {
				return next, belfry.Errorf(belfry.Conflict, "run %s has a payload with secrets, and its job has another target now; redrive it as it was fired, or with another payload", run.id)
			}
			if next.Payload = job.Payload; override == nil {
				return next, nil
			}
		}
	}
	if override == nil {
		return next, nil
	}
	if given {
		if err := requireCommands(ctx, job.Type); err != nil {
			return next, err
		}
	}
	job.Namespace = jobs.namespace
	next.Payload, err = c.override(ctx, job, override, "the payload is not valid for run "+run.id.String())
	return next, err
}
