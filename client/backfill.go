package client

import (
	"context"
	"net/http"
	"time"

	"github.com/belfry-sh/belfry"
)

// Backfill asks for a run of every instant that a job's schedule has in a span of
// the past.
type Backfill struct {
	From   time.Time `json:"from,omitzero"`
	To     time.Time `json:"to,omitzero"`     // inclusive
	Limit  int       `json:"limit,omitempty"` // runs at most; zero is the server's choice
	DryRun bool      `json:"dry_run,omitempty"`
}

// Backfilled is what a backfill makes, or, as a dry run, would make.
type Backfilled struct {
	Count    int         `json:"count"`
	Instants []time.Time `json:"instants"`
	Runs     []belfry.ID `json:"runs"`               // in the order of the instants; none of a dry run
	More     bool        `json:"more"`               // the limit left some out
	NextFrom time.Time   `json:"next_from,omitzero"` // where those begin
}

// Backfill asks for runs of a job for instants of the past.
func (c *Client) Backfill(ctx context.Context, ref string, b Backfill, options ...CallOption) (done Backfilled, err error) {
	path, err := pathOf(ref, "/backfill")
	if err != nil {
		return done, err
	}
	q := newCall("backfill job", http.MethodPost, path, options...)
	q.drawKey()
	_, err = c.json(ctx, q, b, &done)
	return done, err
}
