package api

import (
	"net/http"

	"github.com/belfry-sh/belfry"
)

// stateOperations are those that stop jobs, let them go on, and run them now.
func (a *api) stateOperations() []operation {
	return []operation{
		{
			id: "pauseJob", method: "POST", path: jobsPath + "/{id}/pause", group: groupJobs,
			summary:  "Pause a job",
			about:    "Keeps the job from firing until it is resumed; what is due already still runs. A job that is paused stays as it is.",
			answers:  []reply{writes[belfry.Job](http.StatusOK, "The job as it is now.", "ETag")},
			refusals: refusing(readRefusals, missing, taken),
			handler:  route(a, readBare, a.pauseJob),
		},
		{
			id: "resumeJob", method: "POST", path: jobsPath + "/{id}/resume", group: groupJobs,
			summary: "Resume a job",
			about: "Lets a paused job fire again. What fell into the pause is recorded as skipped, but a one-off that is overdue runs. With `catch_up` it is made up for instead, as the job's " +
				"`missed_window` says. A job that is not paused stays as it is; for one that was cancelled nothing is planned until its schedule is edited.",
			parameters: []parameter{filterBy[bool]("catch_up", "The same as in the body, which may then be left out.", true)},
			body: &content{media: []string{mediaJSON}, kind: typeOf[resumeInput](), examples: map[string]string{
				"Making up for the pause": `{"catch_up": true}`,
			}},
			answers:  []reply{writes[belfry.Job](http.StatusOK, "The job as it is now.", "ETag")},
			refusals: refusing(readRefusals, missing, taken),
			handler:  route(a, readResume, a.resumeJob),
		},
		{
			id: "triggerJob", method: "POST", path: jobsPath + "/{id}/trigger", group: groupRuns,
			summary: "Run a job now",
			about: "Asks for a run of the job, paused or not, beside its schedule; its `overlap` policy holds for it. The run may have a payload of its own: for an `http` job that " +
				"is the body of the request, never its address. The run is where `Location` says, at once.",
			parameters: []parameter{keyParameter},
			body: &content{media: []string{mediaJSON}, kind: typeOf[triggerInput](), examples: map[string]string{
				"With another payload": `{"payload": {"report_type": "monthly"}}`,
			}},
			answers:  []reply{writes[triggered](http.StatusAccepted, "The run that it becomes.", "Location")},
			refusals: refusing(readRefusals, missing, taken),
			handler:  route(a, readTrigger, a.triggerJob),
		},
	}
}

// runOperations are those that tell what became of jobs.
func (a *api) runOperations() []operation {
	return []operation{
		{
			id: "listJobRuns", method: "GET", path: jobsPath + "/{id}/runs", group: groupRuns,
			summary:    "List the runs of a job",
			about:      "Runs, those that are alive included, and occurrences that were skipped, with their reason; the latest first. Their attempts are told by each run alone.",
			parameters: pageParameters,
			answers:    []reply{writes[[]shownRun](http.StatusOK, "A page of runs.", "Link")},
			refusals:   []int{missing},
			handler:    route(a, readRunList, a.listRuns),
		},
		{
			id: "getJobHistory", method: "GET", path: jobsPath + "/{id}/history", group: groupRuns,
			summary:    "Get a job with its runs",
			about:      "The job, and in `executions` what the list of its runs has; the `Link` header leads to the executions before those.",
			parameters: pageParameters,
			answers:    []reply{writes[history](http.StatusOK, "The job and a page of its runs.", "Link")},
			refusals:   []int{missing},
			handler:    route(a, readHistory, a.jobHistory),
		},
		{
			id: "listRuns", method: "GET", path: runsPath, group: groupRuns,
			summary: "List the runs of all jobs",
			about:   "Runs and skipped occurrences of the whole namespace, the latest first. A page may be short, or empty, and still have a next one.",
			parameters: append([]parameter{
				filterBy[belfry.RunStatus]("status", "Only runs in this state; in any case. Dead letters are `dead`.", "dead"),
			}, pageParameters...),
			answers: []reply{writes[[]shownRun](http.StatusOK, "A page of runs.", "Link")},
			handler: route(a, readAllRuns, a.listAllRuns),
		},
		{
			id: "getRun", method: "GET", path: runsPath + "/{id}", group: groupRuns,
			summary:  "Get a run",
			about:    "A run with the attempts that failed. A trigger that is not fired yet is the run that it will be.",
			answers:  []reply{writes[shownRun](http.StatusOK, "The run.")},
			refusals: []int{missing},
			handler:  route(a, readTarget, a.getRun),
		},
	}
}
