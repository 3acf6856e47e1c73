package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"strings"

	"github.com/belfry-sh/belfry"
)

// CreateJob creates a job. A name that is taken is a belfry.Conflict.
func (c *Client) CreateJob(ctx context.Context, m belfry.Manifest, options ...CallOption) (belfry.Job, error) {
	return fetch[belfry.Job](ctx, c, "create job", http.MethodPost, jobsPath, m, append(options, keyed)...)
}

// PutJob creates the job of a name, or changes it to what the manifest says; nothing
// changes if nothing differs. It reports whether the job was created, unless the
// answer to an earlier try was lost.
func (c *Client) PutJob(ctx context.Context, name string, m belfry.Manifest, options ...CallOption) (job belfry.Job, created bool, err error) {
	a, err := c.json(ctx, newCall("put job", http.MethodPut, JobPath(name), options...), m, &job)
	return job, err == nil && a.status == http.StatusCreated, err
}

// EditJob changes the fields that changes has when it is written as JSON: a map, a
// json.RawMessage, or a belfry.Manifest, of which the fields that are set count.
func (c *Client) EditJob(ctx context.Context, ref string, changes any, options ...CallOption) (belfry.Job, error) {
	return fetch[belfry.Job](ctx, c, "edit job", http.MethodPatch, JobPath(ref), changes, options...)
}

// DiffJob returns what PutJob would change, and changes nothing. The manifest may be
// anything that is written as the JSON of one.
func (c *Client) DiffJob(ctx context.Context, ref string, manifest any, options ...CallOption) (belfry.JobDiff, error) {
	return fetch[belfry.JobDiff](ctx, c, "compare job", http.MethodPut, JobPath(ref), manifest, append(options, parameter("dry_run", "true"))...)
}

// Job returns a job.
func (c *Client) Job(ctx context.Context, ref string) (belfry.Job, error) {
	return fetch[belfry.Job](ctx, c, "get job", http.MethodGet, JobPath(ref), nil)
}

// JobWithVersion returns a job and its version for IfMatch.
func (c *Client) JobWithVersion(ctx context.Context, ref string) (job belfry.Job, version string, err error) {
	a, err := c.json(ctx, newCall("get job", http.MethodGet, JobPath(ref)), nil, &job)
	if err != nil {
		return job, "", err
	}
	return job, strings.Trim(strings.TrimPrefix(a.header.Get("ETag"), "W/"), `"`), nil
}

// Jobs lists jobs, newest first, page by page while the loop runs. After an error,
// which is the last item, the list is incomplete.
func (c *Client) Jobs(ctx context.Context, filter belfry.JobFilter) iter.Seq2[belfry.Job, error] {
	return pages[belfry.Job](ctx, c, "list jobs", jobsPath, query(filter, filter.PageSize))
}

// PauseJob stops a job from firing until it is resumed.
func (c *Client) PauseJob(ctx context.Context, ref string) (belfry.Job, error) {
	return fetch[belfry.Job](ctx, c, "pause job", http.MethodPost, JobPath(ref, "pause"), nil)
}

// ResumeJob resumes a paused job.
func (c *Client) ResumeJob(ctx context.Context, ref string, r belfry.Resume) (belfry.Job, error) {
	return fetch[belfry.Job](ctx, c, "resume job", http.MethodPost, JobPath(ref, "resume"), r)
}

// CancelJob cancels the live runs of a job and plans nothing more. The job stays: it
// can be shown, edited and triggered.
func (c *Client) CancelJob(ctx context.Context, ref string) (belfry.Job, error) {
	return fetch[belfry.Job](ctx, c, "cancel job", http.MethodPost, JobPath(ref, "cancel"), nil)
}

// DeleteJob deletes a job. Its live runs finish and its history is kept, unless the
// options CancelRuns and PurgeHistory are given. A job that does not exist is a
// belfry.NotFound.
func (c *Client) DeleteJob(ctx context.Context, ref string, options ...CallOption) error {
	_, err := c.do(ctx, newCall("delete job", http.MethodDelete, JobPath(ref), options...))
	return err
}

// TriggerJob runs a job now and returns the id of the run. A payload that is not nil is
// written as JSON and replaces the job's own for this run.
func (c *Client) TriggerJob(ctx context.Context, ref string, payload any, options ...CallOption) (belfry.ID, error) {
	var t belfry.Trigger
	if payload != nil {
		text, err := json.Marshal(payload)
		if err != nil {
			return belfry.ID{}, belfry.Errorf(belfry.Invalid, "trigger job: the payload has no JSON form: %w", err)
		}
		t.Payload = text
	}
	result, err := fetch[belfry.TriggerResult](ctx, c, "trigger job", http.MethodPost, JobPath(ref, "trigger"), t, append(options, keyed)...)
	return result.RunID, err
}

// BackfillJob runs a job for past occurrences of its schedule.
func (c *Client) BackfillJob(ctx context.Context, ref string, b belfry.Backfill, options ...CallOption) (belfry.BackfillResult, error) {
	return fetch[belfry.BackfillResult](ctx, c, "backfill job", http.MethodPost, JobPath(ref, "backfill"), b, append(options, keyed)...)
}

// Revisions lists the revisions of a job, the current one first, like Jobs.
func (c *Client) Revisions(ctx context.Context, ref string) iter.Seq2[belfry.Revision, error] {
	return pages[belfry.Revision](ctx, c, "list revisions", JobPath(ref, "revisions"), nil)
}

// RollbackJob returns a job to an earlier revision.
func (c *Client) RollbackJob(ctx context.Context, ref string, revision int) (belfry.Job, error) {
	return fetch[belfry.Job](ctx, c, "roll back job", http.MethodPost, JobPath(ref, "rollback"), belfry.Rollback{Revision: revision})
}

// ExplainJob explains what was decided for an instant of a job, or what is planned. The
// instant is written as in RFC 3339, or as a wall time such as "2026-03-02 09:05" in the
// time zone of the job; empty is the latest decision, or else the next occurrence.
func (c *Client) ExplainJob(ctx context.Context, ref, at string) (belfry.Explanation, error) {
	var options []CallOption
	if at != "" {
		options = append(options, parameter("at", at))
	}
	return fetch[belfry.Explanation](ctx, c, "explain job", http.MethodGet, JobPath(ref, "why"), nil, options...)
}

// BulkJobs applies an action to all jobs that match, as many as the server takes in one
// request. Continue with Next as the Cursor until it is empty.
func (c *Client) BulkJobs(ctx context.Context, b belfry.Bulk, options ...CallOption) (belfry.BulkResult, error) {
	return fetch[belfry.BulkResult](ctx, c, "change jobs", http.MethodPost, jobsPath+"/actions", b, append(options, keyed, timeout(bulkTimeout))...)
}

// PreviewSchedule returns what a schedule means.
func (c *Client) PreviewSchedule(ctx context.Context, r belfry.PreviewRequest) (belfry.Preview, error) {
	return fetch[belfry.Preview](ctx, c, "preview schedule", http.MethodPost, apiPath+"/schedules/preview", r)
}
