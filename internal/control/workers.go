package control

import (
	"context"
	"fmt"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/validate"
)

// What is kept of texts from workers.
const (
	maxNode  = 200     // bytes of the name of a node
	maxError = 8 << 10 // bytes of an error
)

// Claim hands ready runs of the queues and handlers to a worker. If there are none it
// waits for some, until WaitSeconds are over or ctx ends, which is no error. A worker
// that has not registered with a heartbeat gets none, but may register meanwhile. If
// the outcome is unknown the error is Unavailable; what was claimed then is released by
// the next complete heartbeat of the worker.
func (c *Control) Claim(ctx context.Context, namespace string, claim belfry.Claim) ([]*belfry.Run, error) {
	var err error
	if claim.Lanes, err = lanes(namespace, claim.Queues, claim.Handlers); err != nil {
		return nil, err
	}
	claim.Limit = max(claim.Limit, 1)
	claim.WorkerID = belfry.WorkerID(namespace, claim.WorkerID)
	runs, err := c.claim(ctx, claim)
	if err != nil || len(runs) > 0 || claim.WaitSeconds.Value() <= 0 {
		return runs, err
	}
	return c.waitForRuns(ctx, claim, time.Duration(claim.WaitSeconds.Value()*float64(time.Second)))
}

// claim calls the store once: a second claim after one of unknown outcome would take
// more.
func (c *Control) claim(ctx context.Context, claim belfry.Claim) ([]*belfry.Run, error) {
	if ctx.Err() != nil {
		return nil, nil
	}
	runs, err := c.store.Claim(ctx, claim)
	if !isKnown(err) {
		return nil, unavailable("claim runs", err)
	}
	return runs, err
}

// Heartbeat records that a worker is alive and returns which of its attempts are lost
// or cancelled.
func (c *Control) Heartbeat(ctx context.Context, namespace string, h belfry.Heartbeat) (reply belfry.HeartbeatReply, err error) {
	if h.Lanes, err = lanes(namespace, h.Queues, h.Handlers); err != nil {
		return reply, err
	}
	h.Node = sanitize.Text(h.Node, maxNode)
	h.WorkerID = belfry.WorkerID(namespace, h.WorkerID)
	reply, err = retryRead(ctx, "record a heartbeat", func() (belfry.HeartbeatReply, error) {
		return c.store.Heartbeat(ctx, h)
	})
	reply.Lost = append([]belfry.HeldAttempt{}, reply.Lost...)
	reply.Cancel = append([]belfry.HeldAttempt{}, reply.Cancel...)
	return reply, err
}

// Finish settles attempts, and returns a verdict for each result. Texts that are too
// long are cut.
func (c *Control) Finish(ctx context.Context, namespace string, results []belfry.Result) ([]belfry.Verdict, error) {
	own := make([]belfry.Result, len(results))
	for i, r := range results {
		r.Namespace = namespace
		r.Error = sanitize.Text(r.Error, maxError)
		r.Output = sanitize.Text(r.Output, belfry.MaxOutput)
		own[i] = r
	}
	return retryRead(ctx, "finish attempts", func() ([]belfry.Verdict, error) {
		return c.store.Finish(ctx, own)
	})
}

// lanes are the queues and handlers of a worker as the store names them.
func lanes(namespace string, queues, handlers []string) ([]string, error) {
	if len(queues) == 0 {
		queues = []string{belfry.DefaultQueue}
	}
	var errors []belfry.FieldError
	check := func(field string, names []string, problem func(string) string) {
		for i, name := range names {
			if message := problem(name); message != "" {
				errors = append(errors, belfry.FieldError{Field: fmt.Sprintf("%s[%d]", field, i), Message: message})
			}
		}
	}
	check("queue", queues, validate.Queue)
	check("handlers", handlers, validate.Handler)
	list := make([]string, 0, len(queues)*len(handlers))
	for _, queue := range queues {
		for _, handler := range handlers {
			list = append(list, belfry.NamespaceLane(namespace, belfry.Lane(queue, handler)))
		}
	}
	return list, invalid("the worker is not valid", errors)
}
