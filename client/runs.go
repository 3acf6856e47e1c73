package client

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"

	"github.com/belfry-sh/belfry"
)

const (
	runsPath = apiPath + "/runs"
	deadPath = apiPath + "/dead-letters"
)

// Runs lists the runs of all jobs, latest first, like Jobs.
func (c *Client) Runs(ctx context.Context, filter belfry.RunFilter) iter.Seq2[belfry.Run, error] {
	return pages[belfry.Run](ctx, c, "list runs", runsPath, query(filter, filter.PageSize))
}

// JobRuns lists the runs of a job, latest first, like Jobs.
func (c *Client) JobRuns(ctx context.Context, ref string) iter.Seq2[belfry.Run, error] {
	return pages[belfry.Run](ctx, c, "list runs of job", JobPath(ref, "runs"), nil)
}

// Run returns a run with its failed attempts.
func (c *Client) Run(ctx context.Context, id belfry.ID) (belfry.Run, error) {
	return fetch[belfry.Run](ctx, c, "get run", http.MethodGet, runsPath+"/"+id.String(), nil)
}

// CancelRun cancels a run: a waiting one at once, a running one when its worker has
// stopped, which the run does not show yet. A run that is settled in another way is a
// belfry.Conflict. Repeating it does nothing.
func (c *Client) CancelRun(ctx context.Context, id belfry.ID) (belfry.Run, error) {
	return fetch[belfry.Run](ctx, c, "cancel run", http.MethodPost, runsPath+"/"+id.String()+"/cancel", nil)
}

// Events lists events, latest first, like Jobs.
func (c *Client) Events(ctx context.Context) iter.Seq2[belfry.Event, error] {
	return pages[belfry.Event](ctx, c, "list events", apiPath+"/events", nil)
}

// DeadLetters lists dead letters, the latest first, like Jobs.
func (c *Client) DeadLetters(ctx context.Context, filter belfry.DeadFilter) iter.Seq2[belfry.DeadLetter, error] {
	return pages[belfry.DeadLetter](ctx, c, "list dead letters", deadPath, query(filter, filter.PageSize))
}

// DeadGroups counts dead letters by the kind of their failure, the largest group first.
func (c *Client) DeadGroups(ctx context.Context, filter belfry.DeadFilter) ([]belfry.DeadGroup, error) {
	path := deadPath + "/groups"
	if q := query(filter, filter.PageSize).Encode(); q != "" {
		path += "?" + q
	}
	return fetch[[]belfry.DeadGroup](ctx, c, "group dead letters", http.MethodGet, path, nil)
}

// DeadLetter returns a dead letter with its payload and attempts.
func (c *Client) DeadLetter(ctx context.Context, run belfry.ID) (belfry.DeadLetter, error) {
	return fetch[belfry.DeadLetter](ctx, c, "get dead letter", http.MethodGet, deadPath+"/"+run.String(), nil)
}

// RedriveDeadLetter runs a dead letter again, with all its retries. It keeps its id,
// idempotency key and attempts. A payload that is not nil replaces its own.
func (c *Client) RedriveDeadLetter(ctx context.Context, run belfry.ID, payload json.RawMessage) (belfry.Run, error) {
	q := newCall("redrive dead letter", http.MethodPost, deadPath+"/"+run.String()+"/redrive")
	q.consumes = true
	var again belfry.Run
	_, err := c.json(ctx, q, belfry.Trigger{Payload: payload}, &again)
	var failed *Error
	if errors.As(err, &failed) && failed.maybeDone { // It may be gone because an earlier try redrove it.
		if now, e := c.Run(ctx, run); e == nil && now.Status != belfry.RunDiscarded {
			return now, nil
		}
	}
	return again, err
}

// DiscardDeadLetter discards a dead letter: it becomes history.
func (c *Client) DiscardDeadLetter(ctx context.Context, run belfry.ID) error {
	_, err := c.do(ctx, newCall("discard dead letter", http.MethodDelete, deadPath+"/"+run.String()))
	return err
}

// RedriveDeadLetters runs the dead letters that match again. If an answer was lost and
// the call repeated, Done does not count what the first try did.
func (c *Client) RedriveDeadLetters(ctx context.Context, r belfry.Redrive) (belfry.DeadResult, error) {
	return fetch[belfry.DeadResult](ctx, c, "redrive dead letters", http.MethodPost, deadPath+"/redrive", r, timeout(bulkTimeout))
}

// DiscardDeadLetters discards the dead letters that match, and counts like
// RedriveDeadLetters.
func (c *Client) DiscardDeadLetters(ctx context.Context, d belfry.Discard) (belfry.DeadResult, error) {
	return fetch[belfry.DeadResult](ctx, c, "discard dead letters", http.MethodPost, deadPath+"/discard", d, timeout(bulkTimeout))
}
