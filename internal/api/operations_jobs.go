package api

import (
	"context"
	"net/http"
	"net/url"
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

type dryRunQuery struct {
	DryRun bool `json:"dry_run,omitempty" example:"true" doc:"Validate the request and answer what it would change, without changing anything."`
}

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
		}, inNamespace(a.Control.List)),
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

// actionOperations pause, resume, cancel and trigger jobs, one or many, and preview
// schedules.
func (a *api) actionOperations() []operation {
	simple := func(id, path, summary, doc string, do func(ctx context.Context, namespace, ref string) (belfry.Job, error)) operation {
		return handle(a, openapi.Operation{
			ID: id, Method: "POST", Path: jobsPath + "/{job}/" + path, Group: groupJobs, Permission: auth.Operate, Summary: summary, Doc: doc,
			Responses: []openapi.Response{jobResponse}, Errors: errorsWith(notFound, conflict),
		}, func(ctx context.Context, r *request, _, _ none) (response, error) {
			return a.shownJob(do(ctx, r.namespace, r.ref))
		})
	}
	return []operation{
		simple("pauseJob", "pause", "Pause a job", "Stops the job from firing until it is resumed; what is already due still runs. A paused job stays as it is.", a.Control.Pause),
		handle(a, openapi.Operation{
			ID: "resumeJob", Method: "POST", Path: jobsPath + "/{job}/resume", Group: groupJobs, Permission: auth.Operate, Summary: "Resume a job",
			Doc: "Lets a paused job fire again. Occurrences during the pause are recorded as skipped, except that an overdue one-off runs. With `catch_up` they count as missed, and the job catches up as " +
				"`missed_window` says. A job that is not paused stays as it is; a cancelled one plans nothing until its schedule is edited.",
			Optional: true, Examples: map[string]string{"Catching up": `{"catch_up": true}`}, Responses: []openapi.Response{jobResponse}, Errors: errorsWith(notFound, conflict),
		}, func(ctx context.Context, r *request, _ none, body belfry.Resume) (response, error) {
			return a.shownJob(a.Control.Resume(ctx, r.namespace, r.ref, body))
		}),
		simple("cancelJob", "cancel", "Cancel a job", "Cancels the live and pending runs of the job and plans nothing more. The job stays, and can be given another schedule or deleted. Repeating it changes nothing.", a.Control.CancelJob),
		handle(a, openapi.Operation{
			ID: "triggerJob", Method: "POST", Path: jobsPath + "/{job}/trigger", Group: groupRuns, Permission: auth.Operate, Summary: "Run a job now",
			Doc: "Creates a run of the job, paused or not, beside its schedule; its `overlap` policy applies. The run may have its own payload: for an `http` job that " +
				"is the body of the request, never its address. The run can be read at `Location` immediately.",
			Headers: []string{keyHeader}, Optional: true, Examples: map[string]string{"With its own payload": `{"payload": {"report_type": "monthly"}}`},
			Responses: []openapi.Response{openapi.JSON[belfry.TriggerResult](http.StatusAccepted, "The run that the trigger becomes.", "Location")}, Errors: errorsWith(notFound, conflict),
		}, func(ctx context.Context, r *request, _ none, body belfry.Trigger) (response, error) {
			result, err := a.Control.Trigger(ctx, r.namespace, r.ref, body, r.key)
			return acceptedRun(result.RunID, result, err)
		}),
		handle(a, openapi.Operation{
			ID: "backfillJob", Method: "POST", Path: jobsPath + "/{job}/backfill", Group: groupRuns, Permission: auth.Operate, Summary: "Run past occurrences",
			Doc: "Creates a run for every past occurrence of the current schedule from `from` to `to`, both included, whether it ran before or not. The runs are of kind " +
				"`backfill` and follow one after another unless `overlap` is `parallel`. If there are more than `limit`, the answer says where to continue. A dry run only lists the occurrences.",
			Headers: []string{keyHeader},
			Examples: map[string]string{
				"See what a day would be": `{"from": "2026-03-02T00:00:00+01:00", "to": "2026-03-03T00:00:00+01:00", "limit": 500, "dry_run": true}`,
				"A day":                   `{"from": "2026-03-02T00:00:00+01:00", "to": "2026-03-03T00:00:00+01:00"}`,
			},
			Responses: []openapi.Response{openapi.JSON[belfry.BackfillResult](http.StatusAccepted, "The runs."), openapi.JSON[belfry.BackfillResult](http.StatusOK, "Of a dry run: the occurrences.")},
			Errors:    errorsWith(notFound, conflict),
		}, func(ctx context.Context, r *request, _ none, body belfry.Backfill) (response, error) {
			result, err := a.Control.Backfill(ctx, r.namespace, r.ref, body, r.key)
			if body.DryRun {
				return response{body: result}, err
			}
			return response{status: http.StatusAccepted, body: result}, err
		}),
		a.importOperation(),
		handleWithin(a, bulkTimeout, openapi.Operation{
			ID: "bulkJobs", Method: "POST", Path: jobsPath + "/actions", Group: groupJobs, Permission: auth.Operate, Summary: "Apply an action to many jobs",
			Doc: "Pauses, resumes, triggers, cancels or deletes every job that matches the filter, or redrives their dead letters (`retry`), newest job first. A dry run only counts. " +
				"A failure for one job is reported and does not stop the action for the others. Repeating it is harmless; with an `Idempotency-Key` no job is triggered twice. " +
				"One request handles 10,000 jobs at most: if the answer has a `next`, send the same request again with it as `cursor`.",
			Headers: []string{keyHeader},
			Examples: map[string]string{
				"Count what would be paused":      `{"action": "pause", "filter": {"tags": ["billing"]}, "dry_run": true}`,
				"Pause a queue":                   `{"action": "pause", "filter": {"queue": "reports", "status": "scheduled"}}`,
				"Redrive all dead letters":        `{"action": "retry", "all": true}`,
				"Delete a hundred jobs at a time": `{"action": "delete", "filter": {"search": "test-"}, "limit": 100}`,
			},
			Responses: []openapi.Response{openapi.JSON[belfry.BulkResult](http.StatusOK, "The result.")}, Errors: bodyErrors,
		}, a.bulkJobs),
		a.previewOperation(),
	}
}

func (a *api) previewOperation() operation {
	return handle(a, openapi.Operation{
		ID: "previewSchedule", Method: "POST", Path: apiPath + "/schedules/preview", Group: groupSchedules, Permission: auth.Known, Summary: "Preview a schedule",
		Doc: "Describes a schedule in a sentence, warns of surprises, and lists its next occurrences with their local times; a note says where a clock change moved, skipped or repeated one. " +
			"Nothing is stored. `H` has a different value in each job; here it has that of no job. Errors name the field and the column, with an example.",
		Global: true,
		Examples: map[string]string{
			"A night with a clock change": `{"schedule": "30 2 * * *", "timezone": "Europe/Paris", "after": "2027-03-27T12:00:00Z", "count": 2}`,
			"A calendar rule": `{"schedule": "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE;BYHOUR=9;BYMINUTE=0;BYSECOND=0", "timezone": "America/New_York",
 "starts_at": "2027-03-01T00:00:00-05:00", "dst_overlap": "first"}`,
			"An interval that ends":          `{"schedule": "R5/2027-03-01T09:00:00Z/PT15M", "count": 10, "after": "2027-01-01T00:00:00Z"}`,
			"At a time that the job decides": `{"schedule": "H H(0-5) * * *", "timezone": "Asia/Tokyo", "dst_gap": "skip"}`,
		},
		Responses: []openapi.Response{openapi.JSON[belfry.Preview](http.StatusOK, "What the schedule means.")}, Errors: errorsWith(http.StatusBadRequest),
	}, func(ctx context.Context, _ *request, _ none, body belfry.PreviewRequest) (response, error) {
		return shown(a.Control.Preview(ctx, body))
	})
}

func (a *api) importOperation() operation {
	return a.handleRaw(openapi.Operation{
		ID: "importJobs", Method: "POST", Path: jobsPath + "/bulk", Group: groupJobs, Permission: auth.Write, Summary: "Create many jobs",
		Doc: "Creates all jobs of the body or none. The body has a job per line, or is an array of jobs, and at most 64 MiB; each job has at most 1 MiB. It is received completely before " +
			"anything is stored, and must arrive at 64 KiB per 10 seconds or faster. Errors are reported by line (`line 17.schedule`) or element (`[16].schedule`), " +
			"up to 100. Blank lines are skipped. With an `Idempotency-Key` exactly the same bytes must be sent again.",
		Headers: []string{keyHeader}, Query: []reflect.Type{reflect.TypeFor[dryRunQuery]()}, Body: reflect.TypeFor[[]belfry.Manifest](), Media: []string{openapi.MediaLines, openapi.MediaJSON},
		Examples: map[string]string{
			"A job per line": `{"name": "nightly-report", "schedule": "30 2 * * *", "payload": {"url": "https://example.com/hooks/report"}}
{"name": "cleanup", "schedule": "@hourly", "payload": {"url": "https://example.com/hooks/cleanup"}}
`,
			"An array": `[{"name": "nightly-report", "schedule": "30 2 * * *", "payload": {"url": "https://example.com/hooks/report"}},
 {"name": "cleanup", "schedule": "@hourly", "payload": {"url": "https://example.com/hooks/cleanup"}}]`,
		},
		Responses: []openapi.Response{openapi.JSON[belfry.ImportResult](http.StatusCreated, "The jobs."), openapi.JSON[belfry.ImportResult](http.StatusOK, "Of a dry run: how many jobs would be created.")},
		Errors:    errorsWith(conflict),
	}, a.importJobs)
}

// acceptedRun is the response of a run that was requested and will start.
func acceptedRun(id belfry.ID, body any, err error) (response, error) {
	return response{status: http.StatusAccepted, header: map[string]string{"Location": runsPath + "/" + id.String()}, body: body}, err
}

func (a *api) bulkJobs(ctx context.Context, r *request, _ none, body belfry.Bulk) (response, error) {
	scope := newCursorScope(jobsPath+"/actions", r.namespace, url.Values{"action": {string(body.Action)}, "filter": {string(belfry.MustJSON(body.Filter))}})
	after, err := scope.decode(body.Cursor)
	if err != nil {
		return response{}, invalid([]belfry.FieldError{{Field: "cursor", Message: err.Error()}})
	}
	result, next, err := a.Control.Bulk(ctx, r.namespace, body, after.ID, r.key)
	if err != nil {
		return response{}, err
	}
	if !next.IsZero() {
		result.Next = scope.encode(store.Position{ID: next})
	}
	for _, f := range result.Failed {
		if belfry.CodeOf(f.Err) == belfry.Internal {
			a.Log.Warn("a bulk action failed for a job", "action", body.Action, "job", f.JobID, "error", f.Err)
		}
	}
	return response{body: result}, nil
}
