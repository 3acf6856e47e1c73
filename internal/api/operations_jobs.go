package api

import (
	"net/http"
	"reflect"

	"github.com/belfry-sh/belfry"
)

const (
	exampleHTTPJob = `{"name": "nightly-report", "schedule": "30 2 * * *", "timezone": "Europe/Paris", "tags": ["billing", "reports"],
 "payload": {"url": "https://example.com/hooks/report", "body": {"format": "pdf"}}}`
	exampleWorkerJob = `{"name": "send-weekly-report", "type": "worker", "handler": "send-report", "schedule": "0 9 * * 1", "timezone": "America/New_York",
 "payload": {"report_type": "weekly"}, "idempotency_key_template": "report-{{week}}", "max_retries": 3, "timeout_seconds": 120}`
	exampleCalendar = `{"name": "payroll", "schedule": "DTSTART:20270129T090000 RRULE:FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1", "timezone": "Europe/Paris",
 "payload": {"url": "https://example.com/hooks/payroll"}}`
	exampleInterval = `{"name": "poll", "schedule": "PT15M", "starts_at": "2030-03-01T09:00:00+01:00", "ends_at": "2030-03-31T18:00:00+02:00",
 "payload": {"url": "https://example.com/hooks/poll"}}`
	exampleSpread = `{"name": "cleanup", "schedule": "H 3 * * *", "timezone": "America/New_York", "jitter_seconds": 60, "dst_gap": "skip",
 "payload": {"url": "https://example.com/hooks/cleanup"}}`
	exampleCareful = `{"name": "settle-accounts", "schedule": "*/10 * * * *", "payload": {"url": "https://example.com/hooks/settle"}, "overlap": "queue", "max_queued": 5,
 "missed_window": "run_all", "max_missed": 12, "catch_up_window_seconds": 7200, "priority": "high", "retry_on": "server_errors", "retry_delays": [5, 30, 120], "retention_days": 30}`
	exampleOneOff = `{"name": "send-report", "schedule": "2030-03-01T09:00:00Z", "payload": {"url": "https://example.com/generate-report", "method": "POST"}}`
)

// spellings is said of every body that has a job in it.
const spellings = "Names of members may be written in camelCase too (`maxRetries`), and a policy of retries as an object of its own: " +
	"`\"retryPolicy\": {\"maxRetries\": 3, \"backoffMs\": 5000}`, with `maxBackoffMs`, `jitter`, `strategy` and `delaysMs` if need be. Null stands for the default. Members that only answers have, such as `id` and `next_run_at`, " +
	"are accepted without effect, so that a job can be handed back as it was shown; `namespace` must be the one that is asked in. Any other member is refused."

// jobOperations are those that make and look up jobs.
func (a *api) jobOperations() []operation {
	return []operation{
		{
			id: "createJob", method: "POST", path: jobsPath, group: groupJobs,
			summary: "Create a job",
			about: "Stores a job and plans its first run, which the answer tells. Without a `type` it is an `http` job if its payload has a `url`, and otherwise " +
				"one for a `worker` whose handler has the job's name. An instant that is past by less than 30 minutes fires at once; an older one is refused.\n\n" + spellings,
			parameters: []parameter{keyParameter},
			body: reads[jobInput](map[string]string{
				"An HTTP request every night":                   exampleHTTPJob,
				"Work for a handler of your own":                exampleWorkerJob,
				"Once":                                          exampleOneOff,
				"On the last working day of every month":        exampleCalendar,
				"Every 15 minutes for a month":                  exampleInterval,
				"At a minute of its own between three and four": exampleSpread,
				"With policies of its own":                      exampleCareful,
			}),
			answers:  []reply{writes[belfry.Job](http.StatusCreated, "The job as it is stored.", "Location", "ETag")},
			refusals: refusing(readRefusals, taken),
			handler:  route(a, readCreation, a.createJob),
		},
		{
			id: "listJobs", method: "GET", path: jobsPath, group: groupJobs,
			summary: "List jobs",
			about: "The jobs of the namespace, newest first. Each parameter narrows the list. One-offs that have ended are listed only with a `status` that they may have: " +
				"`completed`, `failed` or `cancelled`. The next page is where the `Link` header says; a page may be short, or empty, and still have a next one.",
			parameters: append([]parameter{
				filterBy[belfry.JobStatus]("status", "Only jobs that are doing this; in any case.", "paused"),
				{name: "type", in: "query", about: "Only jobs of this type: `http` or `worker`.", kind: reflect.TypeFor[string](), example: belfry.TypeHTTP},
				filterBy[string]("handler", "Only jobs that this handler runs.", "send-invoice"),
				filterBy[string]("queue", "Only jobs in this queue.", belfry.DefaultQueue),
				{name: "tag", in: "query", about: "Only jobs with this tag; given several times, with all of them.", kind: reflect.TypeFor[string](), many: true, example: "billing"},
				filterBy[string]("search", "Only jobs with this in their name, in any case.", "report"),
			}, pageParameters...),
			answers: []reply{writes[[]belfry.Job](http.StatusOK, "A page of jobs.", "Link")},
			handler: route(a, readJobList, a.listJobs),
		},
		{
			id: "getJob", method: "GET", path: jobsPath + "/{id}", group: groupJobs,
			summary:  "Get a job",
			about:    "What looks like a secret in its payload is shown as `***`. A one-off that has ended is still found, by its id or its name, for as long as its history is kept; it can no longer be changed.",
			answers:  []reply{writes[belfry.Job](http.StatusOK, "The job.", "ETag")},
			refusals: []int{missing},
			handler:  route(a, readTarget, a.getJob),
		},
	}
}

// changeOperations are those that edit jobs or delete them.
func (a *api) changeOperations() []operation {
	return []operation{
		{
			id: "changeJob", method: "PATCH", path: jobsPath + "/{id}", group: groupJobs,
			summary: "Change a job",
			about: "Changes the members that are given and leaves the others as they are; null sets one back to its default. The payload is replaced as a whole, and `***` in it keeps the secret " +
				"that is stored at that place. What is due already still runs as the job was. `status` pauses the job or lets it go on.\n\n" + spellings,
			parameters: []parameter{matchParameter},
			body: reads[jobChange](map[string]string{
				"Another time": `{"schedule": "0 3 * * *", "timezone": "Europe/Berlin"}`,
				"Pause":        `{"status": "paused"}`,
			}),
			answers:  []reply{writes[belfry.Job](http.StatusOK, "The job as it is now.", "ETag")},
			refusals: refusing(readRefusals, missing, taken, outdated),
			handler:  route(a, readChange, a.changeJob),
		},
		{
			id: "putJob", method: "PUT", path: jobsPath + "/{id}", group: groupJobs,
			summary: "Create or replace a job",
			about: "Under a name, creates the job or makes it what the body says; under an id, replaces a job that must be there. What the body leaves out has its default, but for `status`: " +
				"without it a paused job stays paused. Nothing changes, not even the revision, if the job is like that already, so that the same request may be repeated at will. " +
				"With `If-Match: *` the job must be there.\n\n" + spellings,
			parameters: []parameter{matchParameter},
			body:       reads[jobInput](map[string]string{"A job": exampleHTTPJob}),
			answers: []reply{
				writes[belfry.Job](http.StatusOK, "The job as it is now.", "ETag"),
				writes[belfry.Job](http.StatusCreated, "The job did not exist and was created.", "Location", "ETag"),
			},
			refusals: refusing(readRefusals, missing, taken, outdated),
			handler:  route(a, readReplacement, a.putJob),
		},
		{
			id: "deleteJob", method: "DELETE", path: jobsPath + "/{id}", group: groupJobs,
			summary: "Delete a job",
			about: "Nothing more is planned for it, and its name is free again. Runs that are alive finish, unless `runs` says that they are cancelled; the history stays for its " +
				"retention, unless `history` says that it goes, too. A one-off that has ended is found no more after that.",
			parameters: []parameter{
				matchParameter,
				{name: "runs", in: "query", about: "What becomes of runs that are alive: they `finish`, as when it is left out, or are cancelled (`cancel`).",
					kind: reflect.TypeFor[string](), words: runsAfter, example: "cancel"},
				{name: "history", in: "query", about: "What becomes of the records of its runs: they are kept (`keep`), as when it is left out, or go as soon as no run is alive (`delete`).",
					kind: reflect.TypeFor[string](), words: historyAfter, example: "keep"},
			},
			answers:  []reply{{status: http.StatusNoContent, about: "The job is gone."}},
			refusals: []int{missing, taken, outdated},
			handler:  route(a, readDeletion, a.deleteJob),
		},
		{
			id: "listRevisions", method: "GET", path: jobsPath + "/{id}/revisions", group: groupJobs,
			summary:    "List the revisions of a job",
			about:      "What the job is and what it was before each edit, the current one first. Runs tell the revision that they were fired from.",
			parameters: pageParameters,
			answers:    []reply{writes[[]revision](http.StatusOK, "A page of revisions.", "Link")},
			refusals:   []int{missing},
			handler:    route(a, readRevisionList, a.listRevisions),
		},
		{
			id: "rollbackJob", method: "POST", path: jobsPath + "/{id}/rollback", group: groupJobs,
			summary:  "Roll a job back",
			about:    "Makes the job what it was in an earlier revision. That is an edit too: it gets a new revision, and can itself be undone. Name, tags and whether it is paused stay.",
			body:     reads[rollback](map[string]string{"To the second revision": `{"revision": 2}`}),
			answers:  []reply{writes[belfry.Job](http.StatusOK, "The job as it is now.", "ETag")},
			refusals: refusing(readRefusals, missing, taken),
			handler:  route(a, readRollback, a.rollBack),
		},
	}
}
