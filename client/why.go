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
	At       time.Time     `json:"at"`
	Decision string        `json:"decision"`         // such as "ran", "skipped", "queued" or "planned"
	Reason   belfry.Reason `json:"reason,omitempty"` // of a skip or a dead letter
	Sentence string        `json:"sentence"`         // the whole answer, for people
	Run      *Run          `json:"run,omitempty"`    // or the skip
	Rule     WhyRule       `json:"rule"`             // by which it was decided
	Revision int           `json:"revision"`         // of the job, which the rule is from
	Previous *time.Time    `json:"previous"`         // the occurrences of the rule around the instant
	Next     *time.Time    `json:"next"`
	WaitsFor *WaitsFor     `json:"waits_for,omitempty"` // of a run that is alive and does not run
}

// WhyRule is the rule that an instant is judged by.
type WhyRule struct {
	Schedule    string `json:"schedule"`
	Resolved    string `json:"resolved_schedule,omitempty"`
	Timezone    string `json:"timezone"`
	Description string `json:"description"`
}

// WaitsFor is what a run waits for.
type WaitsFor struct {
	What    string      `json:"what"` // "worker", "slot", "run" or "time"
	Queue   string      `json:"queue,omitempty"`
	Handler string      `json:"handler,omitempty"`
	Workers int         `json:"workers"`         // that serve the queue and handler
	Slots   int         `json:"slots"`           // of all of them
	Running int         `json:"running"`         // runs of the queue and handler that they hold
	Ahead   int         `json:"ahead"`           // ready runs that come first
	Until   *time.Time  `json:"until,omitempty"` // when it may start
	Runs    []belfry.ID `json:"runs,omitempty"`  // of the same job that come first, at most 10
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
