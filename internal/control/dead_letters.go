package control

import (
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
)

// ListDeadLetters returns the dead letters that match the filter, the latest death
// first, without payloads and attempts. The instants of positions are those of death.
func (c *Control) ListDeadLetters(ctx context.Context, namespace string, f belfry.DeadFilter, p store.Page) ([]belfry.DeadLetter, store.Position, error) {
	f, err := c.resolveFilter(ctx, namespace, f)
	if err != nil {
		return nil, store.Position{}, err
	}
	letters, err := c.deadLetters(ctx, namespace, f, store.Page{After: p.After, Limit: p.Limit + 1})
	letters, next := cutPage(letters, p.Limit, deadPosition)
	for i := range letters {
		letters[i].IdempotencyKey = letters[i].Key()
	}
	return letters, next, err
}

// GroupDeadLetters counts the dead letters that match the filter by kind of failure,
// the largest group first.
func (c *Control) GroupDeadLetters(ctx context.Context, namespace string, f belfry.DeadFilter, limit int) ([]belfry.DeadGroup, error) {
	f, err := c.resolveFilter(ctx, namespace, f)
	if err != nil {
		return nil, err
	}
	return retryRead(ctx, "group dead letters", func() ([]belfry.DeadGroup, error) {
		return c.store.GroupDeadLetters(ctx, namespace, f, limit)
	})
}

// DeadLetter finds a dead letter with its payload and all its attempts.
func (c *Control) DeadLetter(ctx context.Context, namespace string, id belfry.ID) (belfry.DeadLetter, error) {
	letter, err := c.deadLetter(ctx, namespace, id)
	if err != nil {
		return belfry.DeadLetter{}, err
	}
	letter.Payload = secret.Mask(letter.Payload)
	letter.IdempotencyKey = letter.Key()
	return letter, nil
}

// resolveFilter resolves the job that a filter names.
func (c *Control) resolveFilter(ctx context.Context, namespace string, f belfry.DeadFilter) (belfry.DeadFilter, error) {
	if f.Job == "" {
		return f, nil
	}
	id, err := c.resolve(ctx, namespace, f.Job)
	f.JobID = id
	return f, err
}

func (c *Control) deadLetters(ctx context.Context, namespace string, f belfry.DeadFilter, p store.Page) ([]belfry.DeadLetter, error) {
	return retryRead(ctx, "list dead letters", func() ([]belfry.DeadLetter, error) {
		return c.store.ListDeadLetters(ctx, namespace, f, p)
	})
}

// deadLetter finds a dead letter with its true payload.
func (c *Control) deadLetter(ctx context.Context, namespace string, id belfry.ID) (belfry.DeadLetter, error) {
	return retryRead(ctx, "look up a dead letter", func() (belfry.DeadLetter, error) {
		return c.store.DeadLetter(ctx, namespace, id)
	})
}

// deadPosition is the position of a dead letter in a list.
func deadPosition(letter belfry.DeadLetter) store.Position {
	if letter.FinishedAt == nil {
		return store.Position{At: letter.ReadyAt, ID: letter.ID}
	}
	return store.Position{At: *letter.FinishedAt, ID: letter.ID}
}

// Redrive makes runs of dead letters again, with all their retries: they keep their
// ids, idempotency keys, attempts and revisions. A single one that does not exist is
// NotFound; a filter that matches none is no error. The payload is that of Trigger.
func (c *Control) Redrive(ctx context.Context, namespace string, r belfry.Redrive) (belfry.DeadResult, error) {
	if r.Payload != nil && r.RunID.IsZero() && r.Filter.Job == "" {
		return belfry.DeadResult{}, invalid("the redrive is not valid", []belfry.FieldError{{
			Field: "payload", Message: "is possible for the dead letters of one job only; set the job of the filter",
		}})
	}
	s, err := c.selectDead(ctx, namespace, belfry.Discard{Filter: r.Filter, All: r.All, DryRun: r.DryRun, Limit: r.Limit, RunID: r.RunID})
	if err != nil {
		return belfry.DeadResult{}, err
	}
	d := redriver{control: c, namespace: namespace, request: r, now: c.now()}
	if r.Payload != nil { // All are refused if the payload is invalid for one.
		if err := d.check(ctx, s.runs); err != nil {
			return belfry.DeadResult{}, err
		}
	}
	return s.each(func(runs []belfry.ID, result *belfry.DeadResult) error { return d.redrive(ctx, runs, result) })
}

// Discard removes dead letters for good: they become history. Otherwise it is like
// Redrive.
func (c *Control) Discard(ctx context.Context, namespace string, d belfry.Discard) (belfry.DeadResult, error) {
	s, err := c.selectDead(ctx, namespace, d)
	if err != nil {
		return belfry.DeadResult{}, err
	}
	return s.each(func(runs []belfry.ID, result *belfry.DeadResult) error {
		n, err := retryCounted(ctx, "discard dead letters", len(runs), func() (int, error) {
			return c.store.Discard(ctx, namespace, runs)
		})
		result.Done += n
		return err
	})
}

// deadSelection is the dead letters that a request is about, the oldest death first.
type deadSelection struct {
	runs   []belfry.ID
	more   bool // others match too
	dryRun bool
}

// selectDead finds the dead letters that a request is about.
func (c *Control) selectDead(ctx context.Context, namespace string, d belfry.Discard) (s deadSelection, err error) {
	s.dryRun = d.DryRun
	if !d.RunID.IsZero() {
		s.runs = []belfry.ID{d.RunID}
		_, err = c.deadLetter(ctx, namespace, d.RunID)
		return s, err
	}
	if d.Filter == (belfry.DeadFilter{}) && !d.All {
		return s, invalid("the request is not valid", []belfry.FieldError{{
			Field: "filter", Message: `is empty; set what the dead letters have in common, or "all"`,
		}})
	}
	if d.Filter, err = c.resolveFilter(ctx, namespace, d.Filter); err != nil {
		return s, err
	}
	limit := d.Limit
	if limit == 0 {
		limit = maxDead
	}
	for page := (store.Page{}); len(s.runs) <= limit; {
		page.Limit = min(deadPage, limit+1-len(s.runs)) // The one beyond the limit shows whether there are more.
		letters, err := c.deadLetters(ctx, namespace, d.Filter, page)
		if err != nil {
			return s, err
		}
		for _, letter := range letters {
			s.runs, page.After = append(s.runs, letter.ID), deadPosition(letter)
		}
		if len(letters) < page.Limit {
			break
		}
	}
	s.more = len(s.runs) > limit
	s.runs = s.runs[:min(len(s.runs), limit)]
	slices.Reverse(s.runs)
	return s, nil
}

// each acts on the selection page by page, unless it is a dry run.
func (s deadSelection) each(act func(runs []belfry.ID, result *belfry.DeadResult) error) (belfry.DeadResult, error) {
	result := belfry.DeadResult{Matched: len(s.runs), More: s.more}
	if s.dryRun {
		return result, nil
	}
	for page := range slices.Chunk(s.runs, deadPage) {
		if err := act(page, &result); err != nil {
			return result, err
		}
	}
	return result, nil
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

// redriver performs one redrive.
type redriver struct {
	control   *Control
	namespace string
	request   belfry.Redrive
	now       time.Time
	started   int // how many start before the next one
}

// check checks that the payload of the request is valid for some dead letters.
func (d *redriver) check(ctx context.Context, runs []belfry.ID) error {
	for _, run := range runs {
		if _, err := d.payload(ctx, run); err != nil && !isNotFound(err) {
			return err
		}
	}
	return nil
}

// redrive starts some dead letters, each at its time. Those that are none any more are
// left out.
func (d *redriver) redrive(ctx context.Context, runs []belfry.ID, result *belfry.DeadResult) error {
	size := len(runs)
	if d.request.Payload != nil {
		size = payloadPage
	}
	for chunk := range slices.Chunk(runs, size) {
		list := make([]store.Redrive, 0, len(chunk))
		for _, run := range chunk {
			payload, err := d.payload(ctx, run)
			if isNotFound(err) {
				continue
			} else if err != nil {
				return err
			}
			list = append(list, store.Redrive{Run: run, After: d.nextDelay(), Payload: payload})
		}
		if len(list) == 0 {
			continue
		}
		n, err := retryCounted(ctx, "redrive dead letters", len(list), func() (int, error) {
			return d.control.store.Redrive(ctx, d.namespace, list)
		})
		if err != nil {
			return err
		}
		result.Done += n
		result.LastAt = d.now.Add(list[len(list)-1].After)
	}
	return nil
}

// nextDelay is how long the next run waits at the rate of the request.
func (d *redriver) nextDelay() (delay time.Duration) {
	if d.request.Rate > 0 {
		delay = time.Duration(float64(d.started) / d.request.Rate * float64(time.Second)).Round(time.Microsecond)
	}
	d.started++
	return delay
}

// payload is the whole payload that a run gets; nil: the one that it had.
func (d *redriver) payload(ctx context.Context, run belfry.ID) (json.RawMessage, error) {
	if d.request.Payload == nil {
		return nil, nil
	}
	letter, err := d.control.deadLetter(ctx, d.namespace, run)
	if err != nil {
		return nil, err
	}
	job := belfry.Job{Manifest: belfry.Manifest{Spec: letter.Spec, Payload: letter.Payload}}
	payload, errors := validate.Payload(job, d.request.Payload)
	return payload, invalid("the payload is not valid for run "+run.String(), errors)
}
