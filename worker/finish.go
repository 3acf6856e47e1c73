package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
)

const (
	maxBatch      = 4000            // results sent in one call
	maxBatchBytes = 4 << 20         // of outputs, logs and error texts in one call, unless one result alone is larger
	manyResults   = 100             // in one call: they come so quickly that more are worth waiting for
	maxGather     = 4               // times gatherDelay that a call waits for more
	finishTimeout = 8 * time.Second // below flushGrace: a call on a silent connection leaves time for a second one
)

// pendingResult is a result that the source has not accepted, with the worker that made
// it.
type pendingResult struct {
	worker belfry.ID
	result belfry.Result
}

// sendLoop sends results in the order they were made, until ctx ends. A result is sent
// at once if none is being sent; those that come meanwhile are the next batch. After a large
// batch the next one is gathered for a few milliseconds longer. A batch that fails is
// sent again in halves. A single result that fails moves behind the others: one that
// cannot be stored must not block them.
func (p *Pool) sendLoop(ctx context.Context) {
	retry := backoff{min: 50 * time.Millisecond, max: 2 * time.Second}
	limit, last := maxBatch, 0
	for {
		if last >= manyResults {
			p.gatherResults(ctx)
		}
		batch := p.batch(limit)
		if len(batch) == 0 {
			select {
			case <-p.sendable:
				continue
			case <-ctx.Done():
				return
			}
		}
		last = len(batch)
		verdicts, err := p.finish(ctx, batch)
		if err == nil {
			p.drop(len(batch))
			p.logLate(batch, verdicts)
			p.outage.recovered("finish")
			limit = min(2*limit, maxBatch)
			retry.next = 0
			continue
		}
		limit = max(len(batch)/2, 1)
		if code := belfry.CodeOf(err); code == belfry.Invalid || code == belfry.TooLarge { // also next time
			if len(batch) == 1 {
				p.dropOutput(err)
			}
			continue
		}
		if ctx.Err() == nil {
			p.outage.failed("finish", err)
		}
		if len(batch) == 1 {
			p.locked(func() { p.unsent = append(p.unsent[1:], p.unsent[0]) })
		}
		if !sleep(ctx, retry.delay()) {
			return
		}
	}
}

// gatherResults waits a few milliseconds for a larger batch: a few large calls cost the
// source less than many small ones, and the slots of these results are free already.
func (p *Pool) gatherResults(ctx context.Context) {
	for range maxGather {
		p.mu.Lock()
		enough := len(p.unsent) == 0 || len(p.unsent) >= min(p.concurrency*2/5, largeClaim)
		p.mu.Unlock()
		if enough || !sleep(ctx, gatherDelay) {
			return
		}
	}
}

// batch copies the oldest results that fit in one call. They stay in the queue
// until they are accepted.
func (p *Pool) batch(limit int) []belfry.Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	oldest := p.unsent[:min(limit, len(p.unsent))]
	batch, size := make([]belfry.Result, 0, len(oldest)), 0
	for _, pending := range oldest {
		size += len(pending.result.Output) + len(pending.result.Error) + len(pending.result.Log)
		if len(batch) > 0 && size > maxBatchBytes {
			break
		}
		batch = append(batch, pending.result)
	}
	return batch
}

func (p *Pool) finish(ctx context.Context, batch []belfry.Result) ([]belfry.Verdict, error) {
	call, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	verdicts, err := p.source.Finish(call, batch)
	if err == nil && len(verdicts) != len(batch) {
		err = errors.New("the source did not return a verdict for every result")
	}
	return verdicts, err
}

func (p *Pool) logLate(batch []belfry.Result, verdicts []belfry.Verdict) {
	for i, v := range verdicts {
		if v == belfry.VerdictLate {
			p.log.Info("a result came too late and changed nothing", "run", batch[i].RunID,
				"attempt", batch[i].Attempt, "trace_id", belfry.RunTraceID(batch[i].RunID), "outcome", batch[i].Outcome)
		}
	}
}

// drop removes the oldest results from the queue.
func (p *Pool) drop(n int) {
	p.mu.Lock()
	p.unsent = slices.Delete(p.unsent, 0, n) // The next results take the same memory.
	p.outstanding -= n
	p.mu.Unlock()
	signal(p.claimable)
	signal(p.changed)
}

// dropOutput removes the output and the log of the oldest result, which the source
// rejected. If it has none, the result is dropped; its run is offered again after its deadline.
func (p *Pool) dropOutput(err error) {
	p.mu.Lock()
	r := &p.unsent[0].result
	id, attempt, empty := r.RunID, r.Attempt, r.Output == "" && r.Log == ""
	r.Output, r.Log, r.LogOffset = "", "", 0
	p.mu.Unlock()
	if empty {
		p.log.Error("a result was rejected and is dropped", "run", id, "attempt", attempt, "trace_id", belfry.RunTraceID(id), "error", err)
		p.drop(1)
	}
}
