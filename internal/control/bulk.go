package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/belfry-sh/belfry"
)

// BulkOrder says what is done to which jobs.
type BulkOrder struct {
	Action belfry.Action
	Filter JobFilter // one that lets everything pass needs All
	All    bool
	DryRun bool      // count them, and do nothing
	After  belfry.ID // go on after this job; zero: from the first
	Limit  int       // zero, and at most: 10,000

	// Key makes it safe to trigger again: no job gets a second run under the same.
	Key Key
}

// Bulked is what came of an order.
type Bulked struct {
	Matched int
	Done    int // none of a dry run
	Failed  []BulkFailure
	Next    belfry.ID // where to go on; zero: that was all
}

// BulkFailure is a job for which an action failed.
type BulkFailure struct {
	Job  belfry.ID
	Name string
	Err  error // mostly a *belfry.Error
}

// Limits on what is done to many jobs at once.
const (
	maxBulk   = 10_000 // jobs
	bulkPage  = 100
	bulkLists = 500 // looks at the list, however few jobs pass the filter
	bulkHands = 8   // jobs at the same time
)

// Bulk does something to the jobs that pass a filter, newest first: what fails for
// one does not keep it from the others. Doing the same again is harmless. It stops
// at the limit, or after a long look, and says where to go on; with an error, it has
// done what it says.
func (c *Control) Bulk(ctx context.Context, namespace string, o BulkOrder) (Bulked, error) {
	act, err := c.bulkAction(namespace, &o)
	if err != nil {
		return Bulked{}, err
	}
	out := Bulked{Next: o.After}
	for range bulkLists {
		list, err := c.List(ctx, namespace, o.Filter, Page{After: out.Next, Limit: min(bulkPage, o.Limit-out.Matched)})
		if err != nil {
			return out, err
		}
		out.Matched += len(list.Jobs)
		if !o.DryRun {
			if err := out.each(ctx, list.Jobs, act); err != nil {
				return out, err
			}
		}
		if out.Next = list.Next; out.Next.IsZero() || out.Matched >= o.Limit {
			break
		}
	}
	return out, nil
}

// bulkAction checks an order and gives what it does to a job.
func (c *Control) bulkAction(namespace string, o *BulkOrder) (func(context.Context, belfry.Job) error, error) {
	o.Action = belfry.Action(strings.ToLower(strings.TrimSpace(string(o.Action))))
	p := problems{}
	act, known := c.bulkActions(namespace, o.Key)[o.Action]
	if !known {
		p.fault("action", choices(string(o.Action), belfry.Actions))
	}
	if o.Limit == 0 {
		o.Limit = maxBulk
	}
	p.between("limit", o.Limit, 1, maxBulk)
	if f := o.Filter; !o.All && f.Status == "" && f.Type == "" && f.Handler == "" && f.Queue == "" && len(f.Tags) == 0 && f.Search == "" {
		p.fault("filter", "is empty; say what the jobs have in common, or that all of them are meant")
	}
	return act, p.err("the order is not valid")
}

func (c *Control) bulkActions(namespace string, k Key) map[belfry.Action]func(context.Context, belfry.Job) error {
	return map[belfry.Action]func(context.Context, belfry.Job) error{
		belfry.ActionPause: func(ctx context.Context, job belfry.Job) error {
			_, err := c.Pause(ctx, namespace, job.ID)
			return err
		},
		belfry.ActionResume: func(ctx context.Context, job belfry.Job) error {
			_, err := c.Resume(ctx, namespace, job.ID, false)
			return err
		},
		belfry.ActionTrigger: func(ctx context.Context, job belfry.Job) error {
			_, err := c.Trigger(ctx, namespace, job.ID, nil, k.of(job.ID))
			return err
		},
		belfry.ActionDelete: func(ctx context.Context, job belfry.Job) error {
			err := c.Delete(ctx, namespace, job.ID, "", DeleteOptions{})
			if gone(err) {
				return nil // Somebody else was faster.
			}
			return err
		},
		belfry.ActionCancel: func(ctx context.Context, job belfry.Job) error {
			_, err := c.CancelJob(ctx, namespace, job.ID)
			return err
		},
		belfry.ActionRetry: func(ctx context.Context, job belfry.Job) error {
			_, err := c.Redrive(ctx, namespace, RedriveOrder{DeadOrder: DeadOrder{Filter: DeadFilter{Job: job.ID}}})
			return err
		},
	}
}

// of is the key of one job's part of what is asked for under a key.
func (k Key) of(job belfry.ID) Key {
	if k.Text == "" {
		return Key{}
	}
	sum := sha256.Sum256([]byte(job.String() + k.Text))
	return Key{Text: "bulk-" + hex.EncodeToString(sum[:]), Hash: k.Hash}
}

// each does something to every one of some jobs, and counts. Only that the database
// does not answer, or the caller has left, is an error.
func (b *Bulked) each(ctx context.Context, jobs []belfry.Job, act func(context.Context, belfry.Job) error) error {
	errs := make([]error, len(jobs))
	var hands sync.WaitGroup
	var next atomic.Int64
	for range min(bulkHands, len(jobs)) {
		hands.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(jobs); i = int(next.Add(1)) - 1 {
				if errs[i] = ctx.Err(); errs[i] == nil {
					errs[i] = act(ctx, jobs[i])
				}
			}
		})
	}
	hands.Wait()
	var lost error
	for i, err := range errs {
		switch {
		case err == nil:
			b.Done++
		case ctx.Err() != nil || belfry.CodeOf(err) == belfry.Unavailable:
			lost = err
		default:
			b.Failed = append(b.Failed, BulkFailure{Job: jobs[i].ID, Name: jobs[i].Name, Err: err})
		}
	}
	if lost != nil && ctx.Err() != nil {
		return unavailable("do something to many jobs", ctx.Err())
	}
	return lost
}
