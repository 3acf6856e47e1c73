package api

import (
	"net/http"
	"reflect"
)

const (
	exampleLines = `{"name": "nightly-report", "schedule": "30 2 * * *", "payload": {"url": "https://example.com/hooks/report"}}
{"name": "cleanup", "schedule": "@hourly", "payload": {"url": "https://example.com/hooks/cleanup"}}
`
	exampleArray = `[{"name": "nightly-report", "schedule": "30 2 * * *", "payload": {"url": "https://example.com/hooks/report"}},
 {"name": "cleanup", "schedule": "@hourly", "payload": {"url": "https://example.com/hooks/cleanup"}}]`
)

// manyOperations are those about many jobs at once.
func (a *api) manyOperations() []operation {
	return []operation{
		{
			id: "importJobs", method: "POST", path: bulkPath, group: groupJobs,
			summary: "Create many jobs",
			about: "Creates all jobs of the body or none. The body has a job a line, or is an array of jobs, and at most 64 MiB; each job has at most 1 MiB. It is taken in whole before " +
				"anything is stored, and must come at 64 KiB in 10 seconds or faster. What is wrong is told by line (`line 17.schedule`) or element (`[16].schedule`), " +
				"for up to 100 faults. Blank lines are skipped. Under an `Idempotency-Key` the very same bytes must be sent again.",
			parameters: []parameter{keyParameter},
			body: &content{
				media: []string{mediaLines, mediaJSON}, kind: reflect.TypeFor[[]jobInput](), required: true,
				examples: map[string]string{"A job a line": exampleLines, "An array": exampleArray},
			},
			answers:  []reply{writes[imported](http.StatusCreated, "The ids of the jobs, in the order of the body.")},
			refusals: refusing(readRefusals, taken),
			handler:  http.HandlerFunc(a.importJobs),
		},
		{
			id: "actOnJobs", method: "POST", path: actionsPath, group: groupJobs,
			summary: "Do something to many jobs",
			about: "Pauses, resumes, triggers, cancels or deletes every job that passes the filter, or redrives their dead letters (`retry`), newest job first. A dry run only counts them. " +
				"What fails for one job is told and does not keep the action from the others. Repeating it is harmless; under an `Idempotency-Key`, no job is triggered twice. " +
				"One request looks at 10,000 jobs at most: if the answer has a `next`, send the same again with it as `cursor`.",
			parameters: []parameter{keyParameter},
			body: reads[actionOrder](map[string]string{
				"Count what would be paused":      `{"action": "pause", "filter": {"tags": ["billing"]}, "dry_run": true}`,
				"Pause a queue":                   `{"action": "pause", "filter": {"queue": "reports", "status": "scheduled"}}`,
				"Redrive all dead letters":        `{"action": "retry", "all": true}`,
				"Delete a hundred jobs at a time": `{"action": "delete", "filter": {"search": "test-"}, "limit": 100}`,
			}),
			answers:  []reply{writes[acted](http.StatusOK, "What came of it.")},
			refusals: readRefusals,
			handler:  within(a, bulkPatience, readAction, a.act),
		},
	}
}
