package api

import (
	"net/http"

	"github.com/belfry-sh/belfry"
)

const exampleBackfill = `{"from": "2026-03-02T00:00:00+01:00", "to": "2026-03-03T00:00:00+01:00", "limit": 500, "dry_run": true}`

// endOperations are those that cancel what is planned or under way, make up for what
// has passed, and tell why something ran or did not.
func (a *api) endOperations() []operation {
	return []operation{
		{
			id: "cancelJob", method: "POST", path: jobsPath + "/{id}/cancel", group: groupJobs,
			summary: "Cancel a job",
			about: "Plans nothing more for the job, and cancels its runs that are alive and those that were asked for. The job stays, and can be given another schedule or deleted. " +
				"Cancelling it again changes nothing.",
			answers:  []reply{writes[belfry.Job](http.StatusOK, "The job as it is now.", "ETag")},
			refusals: refusing(readRefusals, missing, taken),
			handler:  route(a, readBare, a.cancelJob),
		},
		{
			id: "whyJob", method: "GET", path: jobsPath + "/{id}/why", group: groupRuns,
			summary: "Ask why a job ran or did not",
			about: "Says in a sentence what was decided for an instant of the job and by which rule; for a run that waits, what it waits for; and for the future, what is planned. " +
				"Without `at` it is about the latest occurrence that was decided, or a later run that somebody asked for and that is not over, or else about the next occurrence.",
			parameters: []parameter{filterBy[string]("at", "An instant with an offset or a `Z`, or a wall time without one, which is read in the job's time zone.", "2026-12-01T02:30")},
			answers:    []reply{writes[why](http.StatusOK, "What is known of that instant.")},
			refusals:   []int{missing},
			handler:    route(a, readQuestion, a.explain),
		},
		{
			id: "backfillJob", method: "POST", path: jobsPath + "/{id}/backfill", group: groupRuns,
			summary: "Run past occurrences",
			about: "Asks for a run at every instant from `from` to `to`, both included, that the job's schedule names now and that has passed, whether or not it ran before. The runs are of the kind " +
				"`backfill`, apart from the scheduled ones, and follow one after another unless the job's `overlap` is `parallel`. If there are more than `limit`, the answer says where to go on. " +
				"A dry run lists the instants and makes nothing.",
			parameters: []parameter{keyParameter},
			body: reads[backfillInput](map[string]string{
				"See what a day would be": exampleBackfill,
				"A day":                   `{"from": "2026-03-02T00:00:00+01:00", "to": "2026-03-03T00:00:00+01:00"}`,
			}),
			answers: []reply{
				writes[backfilled](http.StatusAccepted, "The runs that it becomes."),
				writes[backfilled](http.StatusOK, "Of a dry run: the instants that it would be."),
			},
			refusals: refusing(readRefusals, missing, taken),
			handler:  route(a, readBackfill, a.backfillJob),
		},
		{
			id: "cancelRun", method: "POST", path: runsPath + "/{id}/cancel", group: groupRuns,
			summary: "Cancel a run",
			about: "Ends a run. One that no worker holds is cancelled at once. The worker of one that is running is told at its next heartbeat, within 7 seconds, and ends the handler; if it succeeds all the same, " +
				"the run has succeeded. Cancelling a run again changes nothing; one that came to another end is refused with 409.",
			answers: []reply{
				writes[shownRun](http.StatusAccepted, "The run, which its worker is told to end."),
				writes[shownRun](http.StatusOK, "The run, which is cancelled."),
			},
			refusals: refusing(readRefusals, missing, taken),
			handler:  route(a, readBare, a.cancelRun),
		},
	}
}

// eventOperations are those that tell what nobody asked for.
func (a *api) eventOperations() []operation {
	return []operation{
		{
			id: "listEvents", method: "GET", path: eventsPath, group: groupEvents,
			summary:    "List events",
			about:      "What people should hear of, such as many runs at once after an outage; the latest first.",
			parameters: pageParameters,
			answers:    []reply{writes[[]belfry.Event](http.StatusOK, "A page of events.", "Link")},
			handler:    route(a, readEventList, a.listEvents),
		},
	}
}
