package api

import (
	"context"
	"net/http"
	"reflect"
	"slices"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/openapi"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	apiPath  = "/api/v1"
	jobsPath = apiPath + "/jobs"
)

// dryRunQuery is the parameter of operations that can be tried.
type dryRunQuery struct {
	DryRun bool `json:"dry_run,omitempty" example:"true" doc:"Validate the request and answer what it would change, without changing anything."`
}

// deleteQuery says what happens to the runs and the history of a deleted job.
type deleteQuery struct {
	Runs    string `json:"runs,omitempty" enum:"finish,cancel" implicit:"finish" example:"cancel" doc:"What happens to live runs: they 'finish' or are cancelled ('cancel')."`
	History string `json:"history,omitempty" enum:"keep,delete" implicit:"keep" example:"keep" doc:"What happens to the history: 'keep' it for its retention, or 'delete' it when no run is live."`
}

var (
	manifestType = reflect.TypeFor[belfry.Manifest]()
	bodyErrors   = []int{http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity}
)

func errorsWith(more ...int) []int {
	return append(bodyErrors[:len(bodyErrors):len(bodyErrors)], more...)
}

const (
	notFound = http.StatusNotFound
	conflict = http.StatusConflict
	changed  = http.StatusPreconditionFailed
)

// spellings is said of every body that declares a job.
const spellings = "Names may also be written in camelCase (`maxRetries`), and retries as an object: `\"retryPolicy\": {\"maxRetries\": 3, \"backoffMs\": 5000}`, optionally with `maxBackoffMs`, `jitter`, " +
	"`strategy` and `delaysMs`. Null stands for the default. Fields that only responses have, such as `job_id` and `next_run_at`, are accepted without effect, so that a job can be sent back as it was shown; " +
	"`namespace` must be that of the request. Any other field is refused."

var (
	jobResponse  = openapi.JSON[belfry.Job](http.StatusOK, "The job.", "ETag")
	diffResponse = openapi.JSON[belfry.JobDiff](http.StatusOK, "Of a dry run: what would change.")
)

// jobOperations create, show, edit and delete jobs.
func (a *api) jobOperations() []operation {
	return []operation{
		handle(a, openapi.Operation{
			ID: "createJob", Method: "POST", Path: jobsPath, Group: groupJobs, Permission: auth.Write, Summary: "Create a job",
			Doc: "Stores a job and plans its first run, which the answer shows. Without a `type` it is an `http` job if its payload has a `url`, otherwise a `worker` job whose handler has the job's name. " +
				"An instant that is past by less than 30 minutes fires at once; an older one is refused.\n\n" + spellings,
			Headers: []string{keyHeader}, Body: manifestType, Examples: manifestExamples,
			Responses: []openapi.Response{openapi.JSON[belfry.Job](http.StatusCreated, "The job as it is stored.", "Location", "ETag"), diffResponse},
			Errors:    errorsWith(conflict),
		}, func(ctx context.Context, r *request, q dryRunQuery, body manifestBody) (response, error) {
			in := checkStatus(body.input)
			if q.DryRun {
				return a.shownDiff(a.Control.DiffCreate(ctx, r.namespace, in))
			}
			return a.createdJob(a.Control.Create(ctx, r.namespace, in, r.key))
		}),
		list(a, openapi.Operation{
			ID: "listJobs", Method: "GET", Path: jobsPath, Group: groupJobs, Permission: auth.Read, Summary: "List jobs",
			Doc: "The jobs of the namespace, newest first. Archived one-offs are listed only with a `status` that they may have: `completed`, `failed` or `cancelled`. A page may be short or empty and still have a next one.",
		}, func(ctx context.Context, r *request, f belfry.JobFilter, p store.Page) ([]belfry.Job, store.Position, error) {
			return a.Control.List(ctx, r.namespace, f, p)
		}),
		handle(a, openapi.Operation{
			ID: "getJob", Method: "GET", Path: jobsPath + "/{job}", Group: groupJobs, Permission: auth.Read, Summary: "Get a job",
			Doc:       "Values in the payload that look like secrets are shown as `***`. An archived one-off is found by its id or name for as long as its history is kept; it cannot be changed.",
			Responses: []openapi.Response{jobResponse}, Errors: []int{notFound},
		}, func(ctx context.Context, r *request, _, _ none) (response, error) {
			return a.shownJob(a.Control.Get(ctx, r.namespace, r.ref))
		}),
		handle(a, openapi.Operation{
			ID: "editJob", Method: "PATCH", Path: jobsPath + "/{job}", Group: groupJobs, Permission: auth.Write, Summary: "Edit a job",
			Doc: "Changes the fields that are given; null sets one back to its default. The payload is replaced as a whole; `***` in it keeps the secret that is stored at that place. " +
				"What is already due still runs as the job was. `status` pauses or resumes the job.\n\n" + spellings,
			Headers: []string{matchHeader}, Body: manifestType, Patch: true,
			Examples:  map[string]string{"Another time": `{"schedule": "0 3 * * *", "timezone": "Europe/Berlin"}`, "Pause": `{"status": "paused"}`},
			Responses: []openapi.Response{jobResponse, diffResponse}, Errors: errorsWith(notFound, conflict, changed),
		}, a.editJob),
		handle(a, openapi.Operation{
			ID: "putJob", Method: "PUT", Path: jobsPath + "/{job}", Group: groupJobs, Permission: auth.Write, Summary: "Create or replace a job",
			Doc: "With a name, creates the job or makes it what the body says; with an id, replaces a job that must exist. Fields that are left out have their defaults, except `status`: " +
				"without it a paused job stays paused. Nothing changes, not even the revision, if the job is already as declared, so that the request can be repeated. " +
				"With `If-Match: *` the job must exist. With `dry_run` the answer is what would change.\n\n" + spellings,
			Headers: []string{matchHeader}, Body: manifestType, Examples: map[string]string{"A job": exampleHTTPJob},
			Responses: []openapi.Response{jobResponse, diffResponse, openapi.JSON[belfry.Job](http.StatusCreated, "The job was created.", "Location", "ETag")},
			Errors:    errorsWith(notFound, conflict, changed),
		}, a.putJob),
		handle(a, openapi.Operation{
			ID: "deleteJob", Method: "DELETE", Path: jobsPath + "/{job}", Group: groupJobs, Permission: auth.Write, Summary: "Delete a job",
			Doc:     "Nothing more is planned, and the name is free again. Live runs finish and the history is kept, unless the parameters say otherwise.",
			Headers: []string{matchHeader}, Responses: []openapi.Response{{Status: http.StatusNoContent, Doc: "The job is deleted."}}, Errors: []int{notFound, conflict, changed},
		}, func(ctx context.Context, r *request, q deleteQuery, _ none) (response, error) {
			match, err := a.matchVersion(ctx, r)
			if err != nil {
				return response{}, err
			}
			err = a.Control.Delete(ctx, r.namespace, r.ref, match, control.DeleteOptions{CancelRuns: q.Runs == "cancel", PurgeHistory: q.History == "delete"})
			return response{status: http.StatusNoContent}, err
		}),
		list(a, openapi.Operation{
			ID: "listRevisions", Method: "GET", Path: jobsPath + "/{job}/revisions", Group: groupJobs, Permission: auth.Read, Summary: "List the revisions of a job",
			Doc: "Spec and payload of the job, now and before each edit, the current revision first. Runs name the revision they were fired from.", Errors: []int{notFound},
		}, func(ctx context.Context, r *request, _ none, p store.Page) ([]belfry.Revision, store.Position, error) {
			return a.Control.Revisions(ctx, r.namespace, r.ref, p)
		}),
		handle(a, openapi.Operation{
			ID: "rollbackJob", Method: "POST", Path: jobsPath + "/{job}/rollback", Group: groupJobs, Permission: auth.Write, Summary: "Roll back a job",
			Doc:       "Gives the job the spec and payload of an earlier revision. That is an edit too: it gets a new revision and can be undone. Name, tags and status stay.",
			Examples:  map[string]string{"To the second revision": `{"revision": 2}`},
			Responses: []openapi.Response{jobResponse}, Errors: errorsWith(notFound, conflict),
		}, func(ctx context.Context, r *request, _ none, body belfry.Rollback) (response, error) {
			return a.shownJob(a.Control.Rollback(ctx, r.namespace, r.ref, body))
		}),
	}
}

func (a *api) editJob(ctx context.Context, r *request, q dryRunQuery, body manifestBody) (response, error) {
	match, err := a.matchVersion(ctx, r)
	if err != nil {
		return response{}, err
	}
	if q.DryRun {
		return a.shownDiff(a.Control.DiffEdit(ctx, r.namespace, r.ref, match, body.patch(r.namespace)))
	}
	return a.shownJob(a.Control.Edit(ctx, r.namespace, r.ref, match, body.patch(r.namespace)))
}

func (a *api) putJob(ctx context.Context, r *request, q dryRunQuery, body manifestBody) (response, error) {
	if _, err := belfry.ParseID(r.ref); err != nil { // the name in the path names the job
		if body.input.Name == "" {
			body.input.Name = r.ref
		} else if body.input.Name != r.ref {
			body.input.Errors = append(body.input.Errors, belfry.FieldError{Field: "name", Message: "is not the name in the path; leave it out, or rename the job with PATCH"})
		}
	}
	match, err := a.matchVersion(ctx, r)
	if belfry.CodeOf(err) == belfry.NotFound {
		err = staleVersion()
	}
	if err != nil {
		return response{}, err
	}
	if q.DryRun {
		return a.shownDiff(a.Control.DiffPut(ctx, r.namespace, r.ref, match, body.input))
	}
	job, created, err := a.Control.Put(ctx, r.namespace, r.ref, match, body.input)
	if created {
		return a.createdJob(job, err)
	}
	return a.shownJob(job, err)
}

// matchVersion is the version that control must find; empty for any.
func (a *api) matchVersion(ctx context.Context, r *request) (string, error) {
	c := r.match
	switch {
	case !c.given:
		return "", nil
	case len(c.tags) == 1 && c.tags[0] != "":
		return c.tags[0], nil
	}
	job, err := a.Control.Get(ctx, r.namespace, r.ref)
	if err != nil || c.any {
		return "", err
	}
	if version := control.Version(job); slices.Contains(c.tags, version) {
		return version, nil
	}
	return "", staleVersion()
}

func staleVersion() error {
	return belfry.Errorf(belfry.Changed, "the job is not the version that If-Match names; read it again")
}

func (a *api) shownJob(job belfry.Job, err error) (response, error) {
	job.Warnings = a.warnings(job.Manifest)
	return response{header: map[string]string{"ETag": `"` + control.Version(job) + `"`}, body: job}, err
}

func (a *api) createdJob(job belfry.Job, err error) (response, error) {
	out, err := a.shownJob(job, err)
	out.status, out.header["Location"] = http.StatusCreated, jobsPath+"/"+job.ID.String()
	return out, err
}

func (a *api) shownDiff(diff belfry.JobDiff, err error) (response, error) {
	diff.Job.Warnings = a.warnings(diff.Job.Manifest)
	return response{body: diff}, err
}

// warnings says what may keep a job from running as declared.
func (a *api) warnings(m belfry.Manifest) (list []string) {
	if a.Targets == nil || m.Type != "" && m.Type != belfry.TypeHTTP { // the type of an imported job may not be known yet
		return nil
	}
	if text := a.Targets.Warning(m.Payload); text != "" {
		list = append(list, text)
	}
	return list
}

const exampleHTTPJob = `{"name": "nightly-report", "schedule": "30 2 * * *", "timezone": "Europe/Paris", "tags": ["billing", "reports"],
 "payload": {"url": "https://example.com/hooks/report", "body": {"format": "pdf"}}}`

var manifestExamples = map[string]string{
	"An HTTP request every night": exampleHTTPJob,
	"Work for your own handler": `{"name": "send-weekly-report", "type": "worker", "handler": "send-report", "schedule": "0 9 * * 1", "timezone": "America/New_York",
 "payload": {"report_type": "weekly"}, "idempotency_key_template": "report-{{week}}", "max_retries": 3, "timeout_seconds": 120}`,
	"Once": `{"name": "send-report", "schedule": "2030-03-01T09:00:00Z", "payload": {"url": "https://example.com/generate-report", "method": "POST"}}`,
	"On the last working day of every month": `{"name": "payroll", "schedule": "DTSTART:20270129T090000 RRULE:FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1", "timezone": "Europe/Paris",
 "payload": {"url": "https://example.com/hooks/payroll"}}`,
	"Every 15 minutes for a month": `{"name": "poll", "schedule": "PT15M", "starts_at": "2030-03-01T09:00:00+01:00", "ends_at": "2030-03-31T18:00:00+02:00",
 "payload": {"url": "https://example.com/hooks/poll"}}`,
	"At a minute of its own between three and four": `{"name": "cleanup", "schedule": "H 3 * * *", "timezone": "America/New_York", "jitter_seconds": 60, "dst_gap": "skip",
 "payload": {"url": "https://example.com/hooks/cleanup"}}`,
	"With its own policies": `{"name": "settle-accounts", "schedule": "*/10 * * * *", "payload": {"url": "https://example.com/hooks/settle"}, "overlap": "queue", "max_queued": 5,
 "missed_window": "run_all", "max_missed": 12, "catch_up_window_seconds": 7200, "priority": "high", "retry_on": "server_errors", "retry_delays": [5, 30, 120], "retention_days": 30}`,
}
