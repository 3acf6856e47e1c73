package client

import (
	"context"
	"net/http"

	"github.com/belfry-sh/belfry"
)

// Bulk is an action on all jobs that match. An empty filter needs All.
type Bulk struct {
	Action belfry.Action `json:"action"`
	Filter JobFilter     `json:"filter"`
	All    bool          `json:"all,omitempty"`
	DryRun bool          `json:"dry_run,omitempty"` // only count
	Limit  int           `json:"limit,omitempty"`   // jobs at once; zero is the server's choice
	Cursor string        `json:"cursor,omitempty"`  // Next of the call before
}

// BulkDone is what became of one call of a bulk action.
type BulkDone struct {
	Matched int           `json:"matched"`
	Done    int           `json:"done"`
	Failed  []BulkFailure `json:"failed"`
	Next    string        `json:"next"` // to go on with; empty at the end
}

// BulkFailure is a job that an action could not be done to, and why.
type BulkFailure struct {
	JobID belfry.ID `json:"job_id"`
	Name  string    `json:"name"`
	Error string    `json:"error"`
}

// Bulk does the same to all jobs that match, as many as the server takes at once.
// A caller goes on with Next as the Cursor until that is empty.
func (c *Client) Bulk(ctx context.Context, b Bulk, options ...CallOption) (done BulkDone, err error) {
	q := newCall("change jobs", http.MethodPost, api+"/jobs/actions", options...)
	q.drawKey()
	q.timeout = manyTimeout
	_, err = c.json(ctx, q, b, &done)
	return done, err
}
