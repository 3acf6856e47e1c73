package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/belfry-sh/belfry"
)

// Why tells what was decided for an instant of a job, or is planned.
type Why struct {
	At       time.Time          `json:"at"`
	Decision belfry.Decision    `json:"decision"`
	Reason   belfry.Reason      `json:"reason,omitempty"` // of a skip or a dead letter
	Sentence string             `json:"sentence"`         // the whole answer, for people
	Run      *Run               `json:"run,omitempty"`    // or the skip
	Rule     belfry.RuleSummary `json:"rule"`             // by which it was decided
	Revision int                `json:"revision"`         // of the job, which the rule is from
	Previous *time.Time         `json:"previous"`         // the occurrences of the rule around the instant
	Next     *time.Time         `json:"next"`
	WaitsFor *belfry.Wait       `json:"waits_for,omitempty"` // of a run that is alive and does not run
}

// Why explains an instant of a job. It is given as in RFC 3339, or as a wall time
// such as "2026-03-02 09:05" in the job's zone; empty is the latest instant that
// was decided, or else the next one.
func (c *Client) Why(ctx context.Context, ref, at string) (why Why, err error) {
	path, err := pathOf(ref, "/why")
	if err != nil {
		return why, err
	}
	if at != "" {
		path += "?" + url.Values{"at": {at}}.Encode()
	}
	_, err = c.json(ctx, newCall("explain job", http.MethodGet, path), nil, &why)
	return why, err
}
