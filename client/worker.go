package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/schema"
)

const (
	claimWait  = 10 * time.Second // how long the server may hold a claim that finds nothing
	claimSlack = 5 * time.Second  // network time of a claim
	maxClaim   = 100              // runs per claim, which bounds an answer
	maxRun     = 6*belfry.MaxPayload + 16<<10
	finishSize = 512 << 10 // bytes of results per request, unless one alone is larger
)

// What the server accepts in one request.
var (
	maxHeld    = schema.For[belfry.Heartbeat]().Field("held").MaxItems
	maxResults = schema.For[belfry.FinishRequest]().Field("results").MaxItems
)

// Claim claims up to claim.Limit runs for a worker, at most 100. It waits until there
// is one, ten seconds have passed or ctx is about to end. Like Heartbeat and Finish it
// is tried once: package worker repeats them.
func (c *Client) Claim(ctx context.Context, claim belfry.Claim) ([]*belfry.Run, error) {
	c.worker.Store(&claim.WorkerID)
	wait := claimWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)-claimSlack)
	}
	wait = max(wait.Truncate(time.Second), 0)
	claim.Limit, claim.WaitSeconds = min(claim.Limit, maxClaim), belfry.Some(wait.Seconds())
	q := workerCall("claim", claim.WorkerID)
	q.timeout = wait + claimSlack
	q.limit = int64(1<<20 + max(claim.Limit, 0)*maxRun)
	var reply belfry.ClaimReply
	if _, err := c.json(ctx, q, claim, &reply); err != nil {
		return nil, err
	}
	runs := make([]*belfry.Run, len(reply.Runs))
	for i, run := range reply.Runs {
		runs[i] = run.Run(claim.WorkerID)
	}
	return runs, nil
}

// Heartbeat reports that a worker is alive and returns what it must stop.
func (c *Client) Heartbeat(ctx context.Context, heartbeat belfry.Heartbeat) (reply belfry.HeartbeatReply, err error) {
	c.worker.Store(&heartbeat.WorkerID)
	if len(heartbeat.Held) > maxHeld {
		heartbeat.Held, heartbeat.Complete = nil, false // an incomplete list would release the others
	}
	_, err = c.json(ctx, workerCall("heartbeat", heartbeat.WorkerID), heartbeat, &reply)
	return reply, err
}

// Finish reports results, in as many requests as their size needs, and returns one
// verdict for each, in order. After an error the same results may be reported again.
// The token of each result says whose it is; the path names the worker that was last
// heard of, for the server's log.
func (c *Client) Finish(ctx context.Context, results []belfry.Result) ([]belfry.Verdict, error) {
	verdicts := make([]belfry.Verdict, 0, len(results))
	for len(results) > 0 {
		batch, err := resultBatch(results)
		if err != nil {
			return nil, err
		}
		var reply belfry.FinishReply
		q := workerCall("finish", *c.worker.Load())
		if _, err := c.json(ctx, q, map[string][]json.RawMessage{"results": batch}, &reply); err != nil {
			return nil, err
		}
		if len(reply.Verdicts) != len(batch) {
			return nil, fmt.Errorf("finish: %d verdicts for %d results", len(reply.Verdicts), len(batch))
		}
		verdicts = append(verdicts, reply.Verdicts...)
		results = results[len(batch):]
	}
	return verdicts, nil
}

// resultBatch writes the results that fit in one request, at least one.
func resultBatch(results []belfry.Result) (batch []json.RawMessage, err error) {
	size := 0
	for _, r := range results {
		r.Output = sanitize.Text(r.Output, belfry.MaxOutput)
		text, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("finish: %w", err)
		}
		if size += len(text) + 1; len(batch) == maxResults || size > finishSize && len(batch) > 0 {
			break
		}
		batch = append(batch, text)
	}
	return batch, nil
}

func workerCall(what string, worker belfry.ID) *call {
	q := newCall(what, http.MethodPost, apiPath+"/workers/"+worker.String()+"/"+what)
	q.once = true
	return q
}
