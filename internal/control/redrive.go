package control

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// payloadPage is how many dead letters get another payload at once, since payloads
// may be large.
const payloadPage = 20

// redriver carries out one order.
type redriver struct {
	c         *Control
	namespace string
	order     RedriveOrder
	now       time.Time
	started   int // how many come before the next one
}

// check looks whether the payload of the order fits some dead letters.
func (r *redriver) check(ctx context.Context, runs []belfry.ID, _ *DeadDone) error {
	for _, run := range runs {
		if _, err := r.payload(ctx, run); err != nil && !gone(err) {
			return err
		}
	}
	return nil
}

// redrive starts some dead letters, each at its time.
func (r *redriver) redrive(ctx context.Context, runs []belfry.ID, done *DeadDone) error {
	size := len(runs)
	if r.order.Payload != nil {
		size = payloadPage
	}
	for chunk := range slices.Chunk(runs, size) {
		list := make([]store.Redrive, 0, len(chunk))
		for _, run := range chunk {
			payload, err := r.payload(ctx, run)
			if gone(err) {
				continue
			} else if err != nil {
				return err
			}
			list = append(list, store.Redrive{Run: run, After: r.next(), Payload: payload})
		}
		if len(list) == 0 {
			continue
		}
		n, err := decided(ctx, "redrive dead letters", len(list), func() (int, error) {
			return r.c.store.Redrive(ctx, r.namespace, list)
		})
		if err != nil {
			return err
		}
		done.Done += n
		done.Until = r.now.Add(list[len(list)-1].After)
	}
	return nil
}

// next is how long the next run waits at the rate of the order.
func (r *redriver) next() (after time.Duration) {
	if r.order.Rate > 0 {
		after = time.Duration(float64(r.started) / r.order.Rate * float64(time.Second)).Round(time.Microsecond)
	}
	r.started++
	return after
}

// payload is the whole payload that a run gets; nil: the one that it had.
func (r *redriver) payload(ctx context.Context, run belfry.ID) (json.RawMessage, error) {
	if r.order.Payload == nil {
		return nil, nil
	}
	letter, err := r.c.DeadLetter(ctx, r.namespace, run)
	if err != nil {
		return nil, err
	}
	payload, faults := payloadFor(belfry.Job{Spec: letter.Spec, Payload: letter.Payload}, r.order.Payload)
	if len(faults) > 0 {
		return nil, &belfry.Error{Code: belfry.Invalid, Message: "the payload is not valid for run " + run.String(), Fields: faults}
	}
	return payload, nil
}

// gone tells that a dead letter is none any more.
func gone(err error) bool {
	var e *belfry.Error
	return errors.As(err, &e) && e.Code == belfry.NotFound
}
