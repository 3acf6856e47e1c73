package control

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
)

// Limits on what is decided about dead letters at once.
const (
	maxDecided = 10_000 // in one call
	deadPage   = 500
	minRate    = 0.001 // a second
	maxRate    = 1000
)

// DeadLetters gives the dead letters that pass the filter, the latest death first,
// without payloads and attempts. The instants of the page are those of death.
func (c *Control) DeadLetters(ctx context.Context, namespace string, filter DeadFilter, page RunPage) (letters []belfry.DeadLetter, err error) {
	err = insist(ctx, "list dead letters", func() error {
		letters, err = c.store.DeadLetters(ctx, namespace, filter, page)
		return err
	})
	return letters, err
}

// DeadLetter finds one with its payload and all its attempts.
func (c *Control) DeadLetter(ctx context.Context, namespace string, run belfry.ID) (letter belfry.DeadLetter, err error) {
	err = insist(ctx, "look up a dead letter", func() error {
		letter, err = c.store.DeadLetter(ctx, namespace, run)
		return err
	})
	return letter, err
}

// DeadGroups counts the dead letters that pass the filter by the kind of their
// failure, the largest group first.
func (c *Control) DeadGroups(ctx context.Context, namespace string, filter DeadFilter, limit int) (groups []belfry.DeadGroup, err error) {
	err = insist(ctx, "group dead letters", func() error {
		groups, err = c.store.DeadGroups(ctx, namespace, filter, limit)
		return err
	})
	return groups, err
}

// DeadOrder says which dead letters are meant: one run, or those that pass the
// filter. A filter that lets everything pass needs All.
type DeadOrder struct {
	Run    belfry.ID
	Filter DeadFilter
	All    bool
	Limit  int  // of the filter's, the latest deaths first; zero, and at most: 10,000
	DryRun bool // count them, and do nothing
}

// RedriveOrder says which dead letters are run again, and how.
type RedriveOrder struct {
	DeadOrder

	// Payload takes the place of the one that they had, as in Trigger. With a filter
	// that is possible for those of one job.
	Payload json.RawMessage
	Rate    float64 // how many a second; zero: all at once
}

// DeadDone is what came of an order.
type DeadDone struct {
	Matched int       // that it was about
	Done    int       // fewer if others were faster, none of a dry run
	More    bool      // others match as well: ask again
	Until   time.Time // when the last one that is redriven may start
}

// Redrive makes runs of dead letters again, with all their retries: they keep their
// ids, idempotency keys and attempts, and what they were fired from. One that is
// not there is NotFound; a filter that finds none is no error.
func (c *Control) Redrive(ctx context.Context, namespace string, o RedriveOrder) (DeadDone, error) {
	p := problems{}
	o.check(&p)
	if o.Rate != 0 && !(o.Rate >= minRate && o.Rate <= maxRate) {
		p.fault("rate", fmt.Sprintf("must be from %s to %s runs a second, not %s; leave it out to start all at once", plain(minRate), plain(maxRate), plain(o.Rate)))
	}
	if o.Payload != nil && o.Run.IsZero() && o.Filter.Job.IsZero() {
		p.fault("payload", "can be given for the dead letters of one job only; name it as the filter's job")
	}
	if err := p.err("the order is not valid"); err != nil {
		return DeadDone{}, err
	}
	r := redriver{c: c, namespace: namespace, order: o, now: c.now()}
	if o.Payload != nil {
		// None is redriven with a payload that does not fit them all.
		look := o.DeadOrder
		look.DryRun = false
		if _, err := c.eachDead(ctx, namespace, look, r.check); err != nil {
			return DeadDone{}, err
		}
	}
	return c.eachDead(ctx, namespace, o.DeadOrder, r.redrive)
}

// Discard gives dead letters up: they become history. It is like Redrive
// otherwise.
func (c *Control) Discard(ctx context.Context, namespace string, o DeadOrder) (DeadDone, error) {
	p := problems{}
	o.check(&p)
	if err := p.err("the order is not valid"); err != nil {
		return DeadDone{}, err
	}
	return c.eachDead(ctx, namespace, o, func(ctx context.Context, runs []belfry.ID, done *DeadDone) error {
		n, err := decided(ctx, "discard dead letters", len(runs), func() (int, error) {
			return c.store.Discard(ctx, namespace, runs)
		})
		done.Done += n
		return err
	})
}

func (o DeadOrder) check(p *problems) {
	p.between("limit", o.Limit, 0, maxDecided)
	if o.Run.IsZero() && o.Filter == (DeadFilter{}) && !o.All {
		p.fault("filter", "is empty; say what the dead letters have in common, or that all of them are meant")
	}
}

// eachDead has something done about the dead letters that an order is about, the
// oldest death first, unless it is a dry run.
func (c *Control) eachDead(ctx context.Context, namespace string, o DeadOrder, do decision) (done DeadDone, err error) {
	if !o.Run.IsZero() {
		return c.oneDead(ctx, namespace, o, do)
	}
	runs, more, err := c.meantDead(ctx, namespace, o)
	if err != nil {
		return DeadDone{}, err
	}
	done = DeadDone{Matched: len(runs), More: more}
	if o.DryRun {
		return done, nil
	}
	for page := range slices.Chunk(runs, deadPage) {
		if err := do(ctx, page, &done); err != nil {
			return done, err
		}
	}
	return done, nil
}

// meantDead lists the dead letters that the filter of an order is about, the oldest
// death first, and says whether there are more.
func (c *Control) meantDead(ctx context.Context, namespace string, o DeadOrder) (runs []belfry.ID, more bool, err error) {
	limit := o.Limit
	if limit == 0 {
		limit = maxDecided
	}
	for page := (RunPage{}); len(runs) <= limit; {
		page.Limit = min(deadPage, limit+1-len(runs)) // the one beyond the limit tells whether there are more
		letters, err := c.DeadLetters(ctx, namespace, o.Filter, page)
		if err != nil {
			return nil, false, err
		}
		for _, letter := range letters {
			runs, page.BeforeID, page.BeforeAt = append(runs, letter.ID), letter.ID, diedAt(letter)
		}
		if len(letters) < page.Limit {
			break
		}
	}
	more = len(runs) > limit
	runs = runs[:min(len(runs), limit)]
	slices.Reverse(runs)
	return runs, more, nil
}

// decision is what is done about some dead letters.
type decision func(ctx context.Context, runs []belfry.ID, done *DeadDone) error

// oneDead is eachDead for a single one, which must be there.
func (c *Control) oneDead(ctx context.Context, namespace string, o DeadOrder, do decision) (DeadDone, error) {
	if _, err := c.DeadLetter(ctx, namespace, o.Run); err != nil {
		return DeadDone{}, err
	}
	done := DeadDone{Matched: 1}
	if o.DryRun {
		return done, nil
	}
	err := do(ctx, []belfry.ID{o.Run}, &done)
	return done, err
}

// diedAt is when a run became a dead letter.
func diedAt(letter belfry.DeadLetter) time.Time {
	if letter.FinishedAt == nil {
		return letter.ReadyAt
	}
	return *letter.FinishedAt
}

// decided asks a store that says for how many dead letters it did something. After
// an answer that was lost that is not known, and all count.
func decided(ctx context.Context, doing string, runs int, ask func() (int, error)) (n int, err error) {
	tries := 0
	err = insist(ctx, doing, func() error {
		tries++
		n, err = ask()
		return err
	})
	if err == nil && tries > 1 {
		n = runs
	}
	return n, err
}
