package client

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/belfry-sh/belfry"
)

const deadPath = api + "/dead-letters"

// DeadLetter is a dead letter as a server shows it. Only a single one has its
// payload, in which secrets are masked, and its attempts.
type DeadLetter struct {
	belfry.DeadLetter
	IdempotencyKey string `json:"idempotency_key"`
}

// DeadFilter is what the dead letters of a list have in common. Its zero fields
// let everything pass.
type DeadFilter struct {
	Job         string        `json:"job,omitempty"`   // its id or name
	Since       time.Time     `json:"since,omitzero"`  // when it died; inclusive
	Until       time.Time     `json:"until,omitzero"`  // exclusive
	Error       string        `json:"error,omitempty"` // part of the error of its last attempt, in any case of its letters
	Fingerprint string        `json:"fingerprint,omitempty"`
	Reason      belfry.Reason `json:"reason,omitempty"`
	PageSize    int           `json:"-"` // asked for at once, and of groups in all; zero is the server's choice
}

func (f DeadFilter) query() url.Values {
	v := url.Values{}
	set(v, "job", f.Job)
	instant(v, "since", f.Since)
	instant(v, "until", f.Until)
	set(v, "error", f.Error)
	set(v, "fingerprint", f.Fingerprint)
	set(v, "reason", string(f.Reason))
	size(v, f.PageSize)
	return v
}

func instant(v url.Values, name string, t time.Time) {
	if !t.IsZero() {
		v.Set(name, t.Format(time.RFC3339Nano))
	}
}

// DeadLetters lists dead letters, the latest death first, like Jobs.
func (c *Client) DeadLetters(ctx context.Context, filter DeadFilter) iter.Seq2[DeadLetter, error] {
	return pages[DeadLetter](ctx, c, "list dead letters", deadPath, filter.query())
}

// DeadGroups counts dead letters by the kind of their failure, the largest group
// first.
func (c *Client) DeadGroups(ctx context.Context, filter DeadFilter) (groups []belfry.DeadGroup, err error) {
	path := deadPath + "/groups"
	if query := filter.query().Encode(); query != "" {
		path += "?" + query
	}
	_, err = c.json(ctx, newCall("group dead letters", http.MethodGet, path), nil, &groups)
	return groups, err
}

// DeadLetter looks at a dead letter with its payload and attempts.
func (c *Client) DeadLetter(ctx context.Context, run belfry.ID) (letter DeadLetter, err error) {
	_, err = c.json(ctx, newCall("look at dead letter", http.MethodGet, deadPath+"/"+run.String()), nil, &letter)
	return letter, err
}

// RedriveDeadLetter has a dead letter run again, with all its retries. It keeps
// its id, idempotency key and attempts. A payload that is not nil, written as
// JSON, replaces the one that it had.
func (c *Client) RedriveDeadLetter(ctx context.Context, run belfry.ID, payload any) (again Run, err error) {
	var body any
	if payload != nil {
		body = map[string]any{"payload": payload}
	}
	q := newCall("redrive dead letter", http.MethodPost, deadPath+"/"+run.String()+"/redrive")
	q.moves = true
	_, err = c.json(ctx, q, body, &again)
	var told *Error
	if errors.As(err, &told) && told.doubt { // It may be gone because an earlier try redrove it.
		if now, failed := c.Run(ctx, run); failed == nil && now.Status != belfry.RunDiscarded {
			return now, nil
		}
	}
	return again, err
}

// DiscardDeadLetter gives a dead letter up: it becomes history.
func (c *Client) DiscardDeadLetter(ctx context.Context, run belfry.ID) error {
	_, err := c.do(ctx, newCall("discard dead letter", http.MethodDelete, deadPath+"/"+run.String()))
	return err
}

// Redrive says which dead letters run again, and how. An empty filter needs All.
type Redrive struct {
	Filter  DeadFilter `json:"filter"`
	All     bool       `json:"all,omitempty"`
	Payload any        `json:"payload,omitempty"` // written as JSON; replaces theirs unless it is nil
	Rate    float64    `json:"rate,omitempty"`    // how many a second are ready; zero: all at once
	Limit   int        `json:"limit,omitempty"`   // at most; zero is the server's choice
	DryRun  bool       `json:"dry_run,omitempty"` // only count
}

// Redriven is what became of a Redrive.
type Redriven struct {
	Matched int       `json:"matched"`
	Done    int       `json:"done"`
	More    bool      `json:"more"`             // there are others that match: ask again
	LastAt  time.Time `json:"last_at,omitzero"` // when the last of them is ready
}

// RedriveDeadLetters has the dead letters that match run again. When an answer was
// lost and the call was repeated, Done does not count what the first try did.
func (c *Client) RedriveDeadLetters(ctx context.Context, order Redrive) (Redriven, error) {
	var done Redriven
	err := c.decide(ctx, "redrive", order, &done)
	return done, err
}

// Discard says which dead letters are given up. An empty filter needs All.
type Discard struct {
	Filter DeadFilter `json:"filter"`
	All    bool       `json:"all,omitempty"`
	Limit  int        `json:"limit,omitempty"`   // at most; zero is the server's choice
	DryRun bool       `json:"dry_run,omitempty"` // only count
}

// Discarded is what became of a Discard.
type Discarded struct {
	Matched int  `json:"matched"`
	Done    int  `json:"done"`
	More    bool `json:"more"` // there are others that match: ask again
}

// DiscardDeadLetters gives up the dead letters that match, and counts like
// RedriveDeadLetters.
func (c *Client) DiscardDeadLetters(ctx context.Context, order Discard) (Discarded, error) {
	var done Discarded
	err := c.decide(ctx, "discard", order, &done)
	return done, err
}

// decide gives an order about many dead letters.
func (c *Client) decide(ctx context.Context, verb string, order, done any) error {
	q := newCall(verb+" dead letters", http.MethodPost, deadPath+"/"+verb)
	q.timeout = manyTimeout
	_, err := c.json(ctx, q, order, done)
	return err
}
