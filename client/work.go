package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/belfry-sh/belfry"
)

const (
	claimWait  = 10 * time.Second // how long the server may hold a claim that finds nothing
	claimSlack = 5 * time.Second  // what the way there and back may take
	maxClaim   = 100              // runs asked for at once, which bounds an answer
	maxRun     = 6*belfry.MaxPayload + 16<<10
	maxHeld    = 10_000    // attempts that a server lets a heartbeat list
	maxResults = 1000      // that it takes at once
	finishSize = 512 << 10 // bytes of results sent at once, unless one alone is larger
)

// Claim takes up to c.Limit runs for a worker, a hundred at most. It waits until
// there is something, ten seconds have passed or ctx is about to end. Like
// Heartbeat and Finish it is made once: package worker repeats them.
func (c *Client) Claim(ctx context.Context, claim belfry.Claim) ([]*belfry.Run, error) {
	c.worker.Store(&claim.WorkerID)
	wait := claimWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)-claimSlack)
	}
	claim.Limit = min(claim.Limit, maxClaim)
	body := struct {
		belfry.Claim
		Wait int `json:"wait_seconds"`
	}{claim, max(int(wait/time.Second), 0)}
	q := workerCall("claim", claim.WorkerID)
	q.timeout = max(wait, 0) + claimSlack
	q.limit = int64(1<<20 + max(claim.Limit, 0)*maxRun)
	var out struct {
		Runs []belfry.ClaimedRun `json:"runs"`
	}
	if _, err := c.json(ctx, q, body, &out); err != nil {
		return nil, err
	}
	runs := make([]*belfry.Run, len(out.Runs))
	for i, run := range out.Runs {
		runs[i] = run.Run(claim.WorkerID)
	}
	return runs, nil
}

// Heartbeat says that a worker is alive and learns what it must drop.
func (c *Client) Heartbeat(ctx context.Context, beat belfry.Heartbeat) (belfry.HeartbeatReply, error) {
	c.worker.Store(&beat.WorkerID)
	if len(beat.Held) > maxHeld {
		beat.Held, beat.Complete = nil, false // half a list would release the other half
	}
	var orders belfry.HeartbeatReply
	_, err := c.json(ctx, workerCall("heartbeat", beat.WorkerID), beat, &orders)
	return orders, err
}

// Finish hands in results, in as many requests as their size needs, and answers
// one verdict for each, in order. After an error the same results may be handed
// in again. The token of each says whose it is; the path names the worker that
// was last heard of, for the server's log.
func (c *Client) Finish(ctx context.Context, results []belfry.Result) ([]belfry.Verdict, error) {
	verdicts := make([]belfry.Verdict, 0, len(results))
	for len(results) > 0 {
		batch, err := batchOf(results)
		if err != nil {
			return nil, err
		}
		var out struct {
			Verdicts []belfry.Verdict `json:"verdicts"`
		}
		q := workerCall("finish", *c.worker.Load())
		if _, err := c.json(ctx, q, map[string][]json.RawMessage{"results": batch}, &out); err != nil {
			return nil, err
		}
		if len(out.Verdicts) != len(batch) {
			return nil, fmt.Errorf("finish: %d verdicts for %d results", len(out.Verdicts), len(batch))
		}
		verdicts = append(verdicts, out.Verdicts...)
		results = results[len(batch):]
	}
	return verdicts, nil
}

// batchOf writes the results that fit in one request, at least one.
func batchOf(results []belfry.Result) (batch []json.RawMessage, err error) {
	size := 0
	for _, r := range results {
		text, err := json.Marshal(struct {
			belfry.Result
			Output string `json:"output,omitempty"`
		}{r, sanitize.Text(string(r.Output), belfry.MaxOutput)})
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
	q := newCall(what, http.MethodPost, api+"/workers/"+worker.String()+"/"+what)
	q.once = true
	return q
}
