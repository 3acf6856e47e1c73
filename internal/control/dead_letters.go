package control

import (
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
	runs, result, err := c.selectDead(ctx, namespace, belfry.Discard{Filter: r.Filter, All: r.All, Limit: r.Limit, RunID: r.RunID})
	if err != nil {
		return belfry.DeadResult{}, err
	}
	if r.Payload != nil { // All are refused if the payload is invalid for one.
		for _, run := range runs {
			if _, err := c.redrivePayload(ctx, namespace, run, r.Payload); err != nil && !isNotFound(err) {
				return belfry.DeadResult{}, err
			}
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
		n, err := retryCounted(ctx, "discard dead letters", len(page), func() (int, error) {
			return c.store.Discard(ctx, namespace, page)
		})
		result.Done += n
		if err != nil {
			return result, err
		}
	}
	return result, nil
}

// selectDead finds the dead letters that a request is about, the oldest death first,
// and the result of a dry run.
func (c *Control) selectDead(ctx context.Context, namespace string, d belfry.Discard) (runs []belfry.ID, result belfry.DeadResult, err error) {
	if !d.RunID.IsZero() {
		if _, err = c.deadLetter(ctx, namespace, d.RunID); err == nil {
			runs, result.Matched = []belfry.ID{d.RunID}, 1
		}
		return runs, result, err
	}
	if d.Filter == (belfry.DeadFilter{}) && !d.All {
		return nil, result, invalid("the request is not valid", []belfry.FieldError{{
			Field: "filter", Message: `is empty; set what the dead letters have in common, or "all"`,
		}})
	}
	if d.Filter, err = c.resolveFilter(ctx, namespace, d.Filter); err != nil {
		return nil, result, err
	}
	limit := cmp.Or(d.Limit, maxDead)
	for page := (store.Page{}); len(runs) <= limit; {
		page.Limit = min(deadPage, limit+1-len(runs)) // The one beyond the limit shows whether there are more.
		letters, err := c.deadLetters(ctx, namespace, d.Filter, page)
		if err != nil {
			return nil, result, err
		}
		for _, letter := range letters {
			runs, page.After = append(runs, letter.ID), deadPosition(letter)
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
func (c *Control) redrive(ctx context.Context, namespace string, r belfry.Redrive, runs []belfry.ID, result *belfry.DeadResult) error {
	size, started, now := deadPage, 0, c.now()
	if r.Payload != nil {
		size = payloadPage
	}
	for page := range slices.Chunk(runs, size) {
		list := make([]store.Redrive, 0, len(page))
		for _, run := range page {
			next := store.Redrive{Run: run}
			var err error
			if r.Payload != nil {
				next.Payload, err = c.redrivePayload(ctx, namespace, run, r.Payload)
			}
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
		n, err := retryCounted(ctx, "redrive dead letters", len(list), func() (int, error) {
			return c.store.Redrive(ctx, namespace, list)
		})
		if err != nil {
			return err
		}
		result.Done += n
		result.LastAt = now.Add(list[len(list)-1].After)
	}
	return nil
}

// redrivePayload is the whole payload that a run gets if a request overrides it.
func (c *Control) redrivePayload(ctx context.Context, namespace string, run belfry.ID, override json.RawMessage) (json.RawMessage, error) {
	letter, err := c.deadLetter(ctx, namespace, run)
	if err != nil {
		return nil, err
	}
	job := belfry.Job{Manifest: belfry.Manifest{Spec: letter.Spec, Payload: letter.Payload}}
	payload, errors := validate.Payload(job, override)
	return payload, invalid("the payload is not valid for run "+run.String(), errors)
}
