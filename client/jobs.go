package client

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
)

// CreateJob makes a job. A name that is taken is a belfry.Conflict.
func (c *Client) CreateJob(ctx context.Context, draft Draft, options ...CallOption) (belfry.Job, error) {
	q := newCall("create job", http.MethodPost, api+"/jobs", options...)
	q.drawKey()
	return c.job(ctx, q, draft)
}

// PutJob creates the job of the name, or makes the one that is there as the
// draft says; then nothing changes when nothing differs. It tells whether it was
// made now, as far as the answer to the first try was not lost.
func (c *Client) PutJob(ctx context.Context, name string, draft Draft, options ...CallOption) (job belfry.Job, made bool, err error) {
	path, err := pathOf(name, "")
	if err != nil {
		return job, false, err
	}
	a, err := c.json(ctx, newCall("put job", http.MethodPut, path, options...), draft, &job)
	return job, err == nil && a.status == http.StatusCreated, err
}

// EditJob changes the fields that changes has, when written as JSON: a map, a
// json.RawMessage, or a Draft, of which the fields that are set count.
func (c *Client) EditJob(ctx context.Context, ref string, changes any, options ...CallOption) (belfry.Job, error) {
	return c.jobOf(ctx, "edit job", http.MethodPatch, ref, "", changes, options...)
}

// Job looks at a job.
func (c *Client) Job(ctx context.Context, ref string) (belfry.Job, error) {
	return c.jobOf(ctx, "look at job", http.MethodGet, ref, "", nil)
}

// JobWithVersion looks at a job and gives the version to name in IfMatch.
func (c *Client) JobWithVersion(ctx context.Context, ref string) (job belfry.Job, version string, err error) {
	path, err := pathOf(ref, "")
	if err != nil {
		return job, "", err
	}
	a, err := c.json(ctx, newCall("look at job", http.MethodGet, path), nil, &job)
	if err != nil {
		return job, "", err
	}
	return job, strings.Trim(strings.TrimPrefix(a.header.Get("ETag"), "W/"), `"`), nil
}

// PauseJob lets a job make no runs until it is resumed.
func (c *Client) PauseJob(ctx context.Context, ref string) (belfry.Job, error) {
	return c.jobOf(ctx, "pause job", http.MethodPost, ref, "/pause", nil)
}

// ResumeJob ends a pause. What the job missed meanwhile stays missed, unless the
// option CatchUp is given.
func (c *Client) ResumeJob(ctx context.Context, ref string, options ...CallOption) (belfry.Job, error) {
	return c.jobOf(ctx, "resume job", http.MethodPost, ref, "/resume", nil, options...)
}

// DeleteJob deletes a job. Its live runs finish and its history is kept, unless
// the options CancelRuns and DeleteHistory are given. One that is not there is a
// belfry.NotFound.
func (c *Client) DeleteJob(ctx context.Context, ref string, options ...CallOption) error {
	path, err := pathOf(ref, "")
	if err != nil {
		return err
	}
	_, err = c.do(ctx, newCall("delete job", http.MethodDelete, path, options...))
	return err
}

// TriggerJob asks for a run now and gives its id. A payload that is not nil,
// written as JSON, replaces the job's own for this run.
func (c *Client) TriggerJob(ctx context.Context, ref string, payload any, options ...CallOption) (belfry.ID, error) {
	path, err := pathOf(ref, "/trigger")
	if err != nil {
		return belfry.ID{}, err
	}
	var body any
	if payload != nil {
		body = map[string]any{"payload": payload}
	}
	var out struct {
		RunID belfry.ID `json:"run_id"`
	}
	q := newCall("trigger job", http.MethodPost, path, options...)
	q.drawKey()
	_, err = c.json(ctx, q, body, &out)
	return out.RunID, err
}

// Rollback makes a job again what it was in an earlier revision.
func (c *Client) Rollback(ctx context.Context, ref string, revision int) (belfry.Job, error) {
	return c.jobOf(ctx, "roll back job", http.MethodPost, ref, "/rollback", map[string]int{"revision": revision})
}

// jobOf makes a call about a job that answers it.
func (c *Client) jobOf(ctx context.Context, what, method, ref, part string, body any, options ...CallOption) (belfry.Job, error) {
	path, err := pathOf(ref, part)
	if err != nil {
		return belfry.Job{}, err
	}
	return c.job(ctx, newCall(what, method, path, options...), body)
}

func (c *Client) job(ctx context.Context, q *call, body any) (job belfry.Job, err error) {
	_, err = c.json(ctx, q, body, &job)
	return job, err
}

// drawKey gives all tries of a call the same idempotency key.
func (q *call) drawKey() {
	if q.key == "" {
		q.key = belfry.NewID(time.Now()).String()
	}
}
