package control

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
)

// Limits on what a worker that is elsewhere may say at once.
const (
	maxLanes   = 200
	maxClaim   = 1000 // runs
	maxResults = 1000
	maxSlots   = 100_000
	maxNode    = 200     // bytes of a worker's name for people
	maxError   = 8 << 10 // bytes of what went wrong
)

// outcomes are those that a worker may tell of.
var outcomes = []belfry.Outcome{
	belfry.OutcomeSucceeded, belfry.OutcomeFailed, belfry.OutcomeTimedOut, belfry.OutcomeInterrupted, belfry.OutcomeSnoozed, belfry.OutcomeCancelled,
}

// Claim hands ready runs of the lanes, as in "queue/handler", to a worker. If there
// are none it waits for some, until the wait is over or ctx ends, which is no
// error. A worker that has not registered with a heartbeat gets none, but may do so
// meanwhile. If the outcome is unknown the error is Unavailable; what was claimed
// then is released by the worker's next list of what it holds.
func (c *Control) Claim(ctx context.Context, namespace string, claim belfry.Claim, wait time.Duration) ([]*belfry.Run, error) {
	p := problems{}
	claim.Lanes = p.lanes(namespace, claim.Lanes)
	p.between("limit", claim.Limit, 1, maxClaim)
	if len(claim.Lanes) == 0 {
		p.fault("lanes", `is missing; for example ["default/send-invoice"]`)
	}
	if err := p.err("the claim is not valid"); err != nil {
		return nil, err
	}
	claim.WorkerID = belfry.WorkerID(namespace, claim.WorkerID)
	runs, err := c.claim(ctx, claim)
	if err != nil || len(runs) > 0 || wait <= 0 {
		return runs, err
	}
	return c.await(ctx, claim, wait)
}

// claim asks once: a second claim after one of unknown outcome would take more.
func (c *Control) claim(ctx context.Context, claim belfry.Claim) ([]*belfry.Run, error) {
	if ctx.Err() != nil {
		return nil, nil
	}
	runs, err := c.store.Claim(ctx, claim)
	if err != nil && !known(err) {
		return nil, unavailable("claim runs", err)
	}
	return runs, err
}

// Heartbeat notes that a worker is alive and answers with what it lost and what was
// cancelled of its attempts. Lanes are those of Claim.
func (c *Control) Heartbeat(ctx context.Context, namespace string, beat belfry.Heartbeat) (orders belfry.HeartbeatReply, err error) {
	p := problems{}
	beat.Lanes = p.lanes(namespace, beat.Lanes)
	p.between("slots", beat.Slots, 0, maxSlots)
	p.between("held", len(beat.Held), 0, maxSlots)
	if err := p.err("the heartbeat is not valid"); err != nil {
		return belfry.HeartbeatReply{}, err
	}
	beat.Node = sanitize.Text(beat.Node, maxNode)
	beat.WorkerID = belfry.WorkerID(namespace, beat.WorkerID)
	err = insist(ctx, "note a heartbeat", func() error {
		orders, err = c.store.Heartbeat(ctx, beat)
		return err
	})
	return orders, err
}

// Finish settles attempts, and gives a verdict on each result. Of texts that are
// too long the beginning is kept.
func (c *Control) Finish(ctx context.Context, namespace string, results []belfry.Result) (verdicts []belfry.Verdict, err error) {
	p := problems{}
	p.between("results", len(results), 1, maxResults)
	own := make([]belfry.Result, len(results))
	for i, r := range results {
		field := fmt.Sprintf("results[%d].", i)
		if !slices.Contains(outcomes, r.Outcome) {
			p.fault(field+"outcome", choices(string(r.Outcome), outcomes))
		}
		if !(r.RetryAfterSeconds >= 0 && r.RetryAfterSeconds <= belfry.MaxDelay.Seconds()) {
			p.fault(field+"retry_after_seconds", fmt.Sprintf("must be from 0 to %.0f, not %s", belfry.MaxDelay.Seconds(), plain(r.RetryAfterSeconds)))
		}
		p.between(field+"http_status", r.HTTPStatus, 0, 999)
		r.Namespace = namespace
		r.Error = sanitize.Text(r.Error, maxError)
		r.Output = r.Output[:min(len(r.Output), belfry.MaxOutput)]
		own[i] = r
	}
	if err := p.err("the results are not valid"); err != nil {
		return nil, err
	}
	err = insist(ctx, "finish attempts", func() error {
		verdicts, err = c.store.Finish(ctx, own)
		return err
	})
	return verdicts, err
}

// problems collects what is wrong with what a worker says.
type problems struct{ faults []belfry.FieldError }

func (p *problems) fault(field, message string) {
	p.faults = append(p.faults, belfry.FieldError{Field: field, Message: message})
}

func (p *problems) between(field string, value, low, high int) {
	if value < low || value > high {
		p.fault(field, fmt.Sprintf("must be from %d to %d, not %d", low, high, value))
	}
}

func (p *problems) err(message string) error {
	if len(p.faults) == 0 {
		return nil
	}
	return &belfry.Error{Code: belfry.Invalid, Message: message, Fields: p.faults}
}

// lanes gives the lanes of a namespace that a worker names, as the store knows
// them.
func (p *problems) lanes(namespace string, lanes []string) []string {
	if len(lanes) > maxLanes {
		p.fault("lanes", fmt.Sprintf("has %d lanes, the most is %d", len(lanes), maxLanes))
		return lanes
	}
	own := make([]string, len(lanes))
	for i, lane := range lanes {
		if problem := checkLane(lane); problem != "" {
			p.fault(fmt.Sprintf("lanes[%d]", i), problem)
		}
		own[i] = belfry.NamespaceLane(namespace, lane)
	}
	return own
}

// checkLane says what is wrong with a lane of users' own handlers.
func checkLane(lane string) string {
	queue, handler, found := strings.Cut(lane, "/")
	switch {
	case !found:
		return `must be a queue and a handler; for example "default/send-invoice"`
	case !queues.MatchString(queue):
		return "the queue must have 1 to 100 letters, digits, dots, underscores and hyphens"
	}
	if problem := checkHandler(handler); problem != "" {
		return "the handler " + problem
	}
	return ""
}
