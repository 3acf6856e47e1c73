package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/jsontext"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/schema"
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
// time zone of the job; empty is the latest run or skip, or else the next occurrence.
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

// Runs lists the runs of all jobs, or of one, latest first, like Jobs.
func (c *Client) Runs(ctx context.Context, filter belfry.RunFilter) iter.Seq2[belfry.Run, error] {
	return pages[belfry.Run](ctx, c, "list runs", runsPath, query(filter, filter.PageSize))
}

// JobRuns lists the runs of a job, latest first, like Jobs; of a deleted job by its id.
func (c *Client) JobRuns(ctx context.Context, ref string, filter belfry.JobRunFilter) iter.Seq2[belfry.Run, error] {
	return pages[belfry.Run](ctx, c, "list runs of job", JobPath(ref, "runs"), query(filter, filter.PageSize))
}

// Run returns a run with its failed attempts.
func (c *Client) Run(ctx context.Context, id belfry.ID) (belfry.Run, error) {
	return fetch[belfry.Run](ctx, c, "get run", http.MethodGet, runsPath+"/"+id.String(), nil)
}

// RunLog returns what the handler of an attempt wrote to its log, also while it runs.
func (c *Client) RunLog(ctx context.Context, id belfry.ID, q belfry.LogQuery) (belfry.RunLog, error) {
	selected := func(r *call) { r.query = query(q, 0) }
	return fetch[belfry.RunLog](ctx, c, "get log of run", http.MethodGet, runsPath+"/"+id.String()+"/log", nil, selected)
}

// CancelRun cancels a run: a waiting one at once, a running one when its worker has
// stopped, which the run does not show yet. A run that is settled in another way is a
// belfry.Conflict. Repeating it does nothing.
func (c *Client) CancelRun(ctx context.Context, id belfry.ID) (belfry.Run, error) {
	return fetch[belfry.Run](ctx, c, "cancel run", http.MethodPost, runsPath+"/"+id.String()+"/cancel", nil)
}

// DeadLetters lists dead letters, the latest first, like Jobs.
func (c *Client) DeadLetters(ctx context.Context, filter belfry.DeadFilter) iter.Seq2[belfry.DeadLetter, error] {
	return pages[belfry.DeadLetter](ctx, c, "list dead letters", deadPath, query(filter, filter.PageSize))
}

// DeadGroups counts dead letters by the kind of their failure, the largest group first.
func (c *Client) DeadGroups(ctx context.Context, filter belfry.DeadFilter) ([]belfry.DeadGroup, error) {
	filtered := func(q *call) { q.query = query(filter, filter.PageSize) }
	return fetch[[]belfry.DeadGroup](ctx, c, "group dead letters", http.MethodGet, deadPath+"/groups", nil, filtered)
}

// DeadLetter returns a dead letter with its payload and attempts.
func (c *Client) DeadLetter(ctx context.Context, run belfry.ID) (belfry.DeadLetter, error) {
	return fetch[belfry.DeadLetter](ctx, c, "get dead letter", http.MethodGet, deadPath+"/"+run.String(), nil)
}

// RedriveDeadLetter runs a dead letter again, with all its retries. It keeps its id,
// idempotency key and attempts.
func (c *Client) RedriveDeadLetter(ctx context.Context, run belfry.ID, o belfry.RedriveOptions) (belfry.Run, error) {
	consumes := func(q *call) { q.consumes = true }
	again, err := fetch[belfry.Run](ctx, c, "redrive dead letter", http.MethodPost, deadPath+"/"+run.String()+"/redrive", o, consumes)
	if failed, ok := errors.AsType[*Error](err); ok && failed.maybeDone { // It may be gone because an earlier try redrove it.
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

func query(filter any, pageSize int) url.Values {
	out := url.Values{}
	v := reflect.ValueOf(filter)
	for _, f := range schema.Of(v.Type()).Fields {
		switch value := f.Value(v); {
		case value.IsZero():
		case f.Kind == schema.Texts:
			out[f.Query] = value.Interface().([]string)
		case f.Kind == schema.Time:
			out.Set(f.Query, value.Interface().(time.Time).Format(time.RFC3339Nano))
		default:
			out.Set(f.Query, fmt.Sprint(value.Interface()))
		}
	}
	if pageSize > 0 {
		out.Set("limit", strconv.Itoa(pageSize))
	}
	return out
}

// pages returns the items of all pages. A page may be empty and have a next one. Of the
// link to the next page only the query is used: the key goes nowhere else, and a proxy
// may know the server by another path.
func pages[T any](ctx context.Context, c *Client, what, path string, v url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		for query, more := v.Encode(), true; more; {
			var items []T
			target := path
			if query != "" {
				target += "?" + query
			}
			a, err := c.json(ctx, newCall(what, http.MethodGet, target), nil, &items)
			if err != nil {
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			var next string
			next, more = nextPage(a.header)
			if more && next == query {
				yield(none, fmt.Errorf("%s: %w", what, belfry.Errorf(belfry.Internal, "the next page is the same page: the list does not end")))
				return
			}
			query = next
		}
	}
}

// nextLink matches the link to the next page in a Link header.
var nextLink = regexp.MustCompile(`<([^<>]*)>[^<>,]*;\s*(?i:rel)="?next"?\s*(?:[;,]|$)`)

func nextPage(h http.Header) (query string, ok bool) {
	for _, match := range nextLink.FindAllStringSubmatch(strings.Join(h.Values("Link"), ","), -1) {
		if u, err := url.Parse(match[1]); err == nil {
			return u.RawQuery, true
		}
	}
	return "", false
}

const (
	claimWait  = 10 * time.Second // how long the server may hold a claim that finds nothing
	claimSlack = 5 * time.Second  // network time of a claim
	maxClaim   = 1000             // runs per claim
	largeClaim = 100              // runs per claim while they are large, which bounds an answer
	largeRun   = 4 << 10          // bytes of payload
	maxRun     = 6*belfry.MaxPayload + 16<<10
	finishSize = 512 << 10 // bytes of results per request, unless one alone is larger
)

// What the server accepts in one request.
var (
	maxHeld    = schema.For[belfry.Heartbeat]().Field("held").MaxItems
	maxResults = schema.For[belfry.FinishRequest]().Field("results").MaxItems
)

// Claim claims up to claim.Limit runs for a worker, at most 1,000, or 100 while the last
// ones had large payloads. It waits until there is one, ten seconds have passed or ctx is
// about to end. Like Heartbeat and Finish it is tried once: package worker repeats them.
func (c *Client) Claim(ctx context.Context, claim belfry.Claim) ([]*belfry.Run, error) {
	c.worker.Store(&claim.WorkerID)
	wait := claimWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)-claimSlack)
	}
	wait = max(wait.Truncate(time.Second), 0)
	most := largeClaim
	if c.smallRuns.Load() {
		most = maxClaim
	}
	claim.Limit, claim.WaitSeconds = min(claim.Limit, most), belfry.Some(wait.Seconds())
	limit := func(q *call) { q.limit = int64(1<<20 + max(claim.Limit, 0)*maxRun) }
	reply, err := workerCall[belfry.ClaimReply](ctx, c, "claim", claim.WorkerID, claim, timeout(wait+claimSlack), limit)
	if err != nil {
		return nil, err
	}
	runs, size := make([]*belfry.Run, len(reply.Runs)), 0
	for i, run := range reply.Runs {
		runs[i] = run.Run(claim.WorkerID)
		size += len(run.Payload)
	}
	if len(runs) > 0 {
		c.smallRuns.Store(size <= len(runs)*largeRun)
	}
	return runs, nil
}

// Heartbeat reports that a worker is alive and returns what it must stop.
func (c *Client) Heartbeat(ctx context.Context, heartbeat belfry.Heartbeat) (belfry.HeartbeatReply, error) {
	c.worker.Store(&heartbeat.WorkerID)
	if len(heartbeat.Held) > maxHeld {
		heartbeat.Held, heartbeat.Complete = nil, false // an incomplete list would release the others
	}
	return workerCall[belfry.HeartbeatReply](ctx, c, "heartbeat", heartbeat.WorkerID, heartbeat)
}

// Finish reports results, in as many requests as their size needs, and returns one
// verdict for each, in order. After an error the same results may be reported again.
// The token of each result says whose it is; the path names the worker that was last
// heard of, for the server's log.
func (c *Client) Finish(ctx context.Context, results []belfry.Result) ([]belfry.Verdict, error) {
	verdicts := make([]belfry.Verdict, 0, len(results))
	for len(results) > 0 {
		body, n, err := resultBatch(results)
		if err != nil {
			return nil, err
		}
		reply, err := workerCall[belfry.FinishReply](ctx, c, "finish", *c.worker.Load(), body)
		if err != nil {
			return nil, err
		}
		if len(reply.Verdicts) != n {
			return nil, fmt.Errorf("finish: %d verdicts for %d results", len(reply.Verdicts), n)
		}
		verdicts = append(verdicts, reply.Verdicts...)
		results = results[n:]
	}
	return verdicts, nil
}

// resultBatch writes the results that fit in one request, at least one, and returns how
// many they are.
func resultBatch(results []belfry.Result) (body encodedBody, n int, err error) {
	const usual = 256 // bytes of a result
	body = append(make([]byte, 0, min(len(results), maxResults)*usual), `{"results":[`...)
	for ; n < len(results) && n < maxResults; n++ {
		start := len(body)
		if n > 0 {
			body = append(body, ',')
		}
		r := results[n]
		r.Output = sanitize.Text(r.Output, belfry.MaxOutput)
		if body, err = jsontext.Append(body, &r); err != nil {
			return nil, 0, fmt.Errorf("finish: %w", err)
		}
		if n > 0 && len(body) > finishSize {
			body = body[:start]
			break
		}
	}
	return append(body, "]}"...), n, nil
}

// workerCall makes a call of a worker, which is tried once.
func workerCall[T any](ctx context.Context, c *Client, what string, worker belfry.ID, body any, options ...CallOption) (T, error) {
	once := func(q *call) { q.once = true }
	return fetch[T](ctx, c, what, http.MethodPost, apiPath+"/workers/"+worker.String()+"/"+what, body, append(options, once)...)
}
