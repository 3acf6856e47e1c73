package api

import (
	"context"
	"net/http"
	"net/url"
	"reflect"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/openapi"
	"github.com/belfry-sh/belfry/internal/store"
)

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
