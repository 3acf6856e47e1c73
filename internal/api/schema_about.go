package api

import "maps"

// about says of every component, and of every member of one, what it is. A test
// proves that nothing is left out and that nothing is said of what is not there.
var about = func() map[string]string {
	all := maps.Clone(aboutWork)
	maps.Copy(all, aboutOrders)
	return all
}()

// aboutWork is of jobs, their runs, and the workers that run them.
var aboutWork = map[string]string{
	"Job":           "What to run and when.",
	"Job.id":        "Drawn when the job is created. Ids sort by the time of their creation.",
	"Job.namespace": "The namespace that the job lives in. Jobs of other namespaces are not seen.",
	"Job.name":      "A name for people, unique among the jobs of its namespace. Every path takes it in place of the id.",
	"Job.tags":      "Words to find the job by, sorted, each once.",
	"Job.revision":  "Grows with every edit of how the job runs. A run keeps the revision that it was fired from.",
	"Job.status":    "What the job is doing, derived at the moment it is read.",
	"Job.payload": "What the job works on: of type `http` the request to make, otherwise whatever the handler wants. " +
		"Values that look like secrets are shown as `***`.",
	"Job.next_run_at": "When the job fires next; null when nothing is planned.",
	"Job.last_run_at": "The scheduled instant of the latest run; null before the first.",
	"Job.parked":      "Why the job cannot be fired for now, such as a payload that cannot be rendered. It is tried again from time to time, and at once after an edit. Missing if it can.",
	"Job.created_at":  "When the job was created.",
	"Job.updated_at":  "When the job was last edited.",

	"Spec.type":    "What the runs are: `http` requests, or calls of a handler in a `worker` program of your own.",
	"Spec.handler": "Of type `worker`, the handler that runs the job.",
	"Spec.schedule": "When it runs, in one of four forms that are told by their shape. Cron: five fields, six with seconds first or seven with the year last, " +
		"`@daily` and its kin, `@every 90s`, and `H` for a value that depends on the job alone, as in `H 3 * * *`. A calendar rule of RFC 5545, such as " +
		"`FREQ=WEEKLY;BYDAY=MO,WE;BYHOUR=9`, with lines DTSTART, RDATE and EXDATE if need be. An interval of ISO 8601, such as `PT15M` or " +
		"`R5/2027-03-01T09:00:00Z/P1D`. One instant, such as `2027-01-31T09:00:00Z`.",
	"Spec.resolved_schedule": "The schedule with a value for every `H` in it; missing without one.",
	"Spec.timezone":          "The IANA time zone that the schedule is read in.",
	"Spec.dst_gap":           "What becomes of a wall time that the clock skips, as when summer time begins. Left out: `skip` if `missed_window` is `skip`, and otherwise `run`.",
	"Spec.dst_overlap": "When a wall time runs that the clock shows twice, as when summer time ends: at the `first` of the two, or at `both`. Left out: at both for rules " +
		"like every 15 minutes, at the first for others.",
	"Spec.starts_at": "Nothing runs before this instant. Intervals and calendar rules that do not name their beginning are counted from it; for those it is the time of " +
		"creation if it is left out.",
	"Spec.ends_at":        "Nothing runs after this instant.",
	"Spec.max_runs":       "How many runs the schedule makes in all; then the job is done. Triggers do not count. Left out or 0: no limit.",
	"Spec.jitter_seconds": "How many seconds after its occurrence a run may start. How much it is depends on nothing but the job and the occurrence, and always ends before the next one.",
	"Spec.missed_window":  "What becomes of occurrences at which nobody was in charge, such as during an outage. One that is late only because workers are busy is not missed, and a one-off runs however late, unless it says `skip`.",
	"Spec.max_missed":     "How many missed occurrences run at most where `missed_window` is `run_all`: the newest. Left out or 0: 100.",
	"Spec.catch_up_window_seconds": "How old a missed occurrence may be to run after all. Left out or 0: as the server says, which is, unless it was told otherwise, 30 minutes for `run_all` " +
		"and no limit for `run_once`.",
	"Spec.queue": "Which workers may run the job: those that serve this queue.",
	"Spec.priority": "Which of the runs that wait for the same workers is first: `high` before `normal` before `low`, or a digit of which 9 is the first. A run of a lower priority gains on the others " +
		"while it waits, so that none waits for ever.",
	"Spec.overlap":            "What happens to an occurrence, or to a run that somebody asks for, while an earlier run of the job is still alive. Runs that make up for missed occurrences, and backfills, wait for each other unless it is `parallel`.",
	"Spec.max_queued":         "How many runs may wait for an earlier one where `overlap` is `queue`. Left out or 0: 100.",
	"Spec.timeout_seconds":    "How long one attempt may take.",
	"Spec.max_retries":        "How many failures after the first are tried again.",
	"Spec.retry_on":           "Which failures are tried again. Left out: all.",
	"Spec.retry_backoff":      "How the delay between attempts grows. A target may ask for a delay of its own, with `Retry-After` on 429 and 503.",
	"Spec.retry_base_seconds": "The delay before the first retry.",
	"Spec.retry_cap_seconds":  "The longest delay between two attempts; not less than `retry_base_seconds`.",
	"Spec.retry_jitter":       "Up to this part of a delay is added or taken away, so that failures do not come back all at once.",
	"Spec.retry_delays":       "The delays in seconds, one for each retry, where `retry_backoff` is `list`; the last one holds for all that follow.",
	"Spec.retention_days":     "How many days the records of its runs are kept. Left out or 0: as the server says.",
	"Spec.idempotency_key_template": "The idempotency key of a scheduled run, in which `{{job_id}}`, `{{name}}`, `{{scheduled_at}}`, `{{unix}}`, " +
		"`{{date}}`, `{{week}}`, `{{month}}`, `{{year}}` and `{{hour}}` stand for parts of its instant in the job's time zone. Left out: `{{job_id}}:{{unix}}`.",

	"JobInput":         "A job as it is created or replaced.",
	"JobInput.name":    "A name for people, unique among the jobs of its namespace. Every path takes it in place of the id.",
	"JobInput.tags":    "Words to find the job by.",
	"JobInput.type":    "What the runs are. Left out: `http` if the payload has a `url`, otherwise `worker`.",
	"JobInput.handler": "Of type `worker`, the handler that runs the job. Left out: the name of the job.",
	"JobInput.payload": "What the job works on: of type `http` the request to make, otherwise whatever the handler wants.",
	"JobInput.dst_overlap": "When a wall time runs that the clock shows twice: at the `first` of the two, at `both`, or `auto`: at both for rules like every 15 minutes, " +
		"at the first for others.",
	"JobInput.starts_at": "Nothing runs before this instant, which has an offset or a `Z`. Intervals and calendar rules that do not name their beginning are counted from it; " +
		"for those it is the time of creation if it is left out.",
	"JobInput.ends_at": "Nothing runs after this instant, which has an offset or a `Z`.",
	"JobInput.priority": "Which of the runs that wait for the same workers is first: `high` before `normal` before `low`, or a number from 0 to 9, of which 9 is the first. A run of a lower " +
		"priority gains on the others while it waits, so that none waits for ever.",
	"JobInput.retry_delays": "The delays in seconds, one for each retry; the last one holds for all that follow. With them `retry_backoff` is `list`, and `max_retries`, if it is left out, their number.",
	"JobInput.status":       "`paused` to hold the job back, `active` to let it fire.",

	"JobChange":         "What is to become of a job. What is left out stays as it is; what is null gets its default.",
	"JobChange.payload": "The new payload, whole. A value `***` stands for the secret that is stored in that place.",

	"HTTPPayload":         "The request that each run of a job of type `http` makes. A status of 2xx is success.",
	"HTTPPayload.url":     "Where the request goes. It carries no user name or password; those belong in a header.",
	"HTTPPayload.method":  "The method of the request; `POST` when left out.",
	"HTTPPayload.headers": "Headers to send. Those that the connection or Belfry decides on, such as `Host` and `Idempotency-Key`, cannot be given.",
	"HTTPPayload.body":    "What to send. A text is sent as it is, any other value as JSON.",

	"Revision":             "How a job ran until it was edited.",
	"Revision.revision":    "The number to roll back to.",
	"Revision.replaced_at": "When another revision took its place; null for the current one.",

	"Rollback":          "A wish for an earlier revision.",
	"Rollback.revision": "The revision whose form the job is to have again.",

	"History":            "A job with what became of it.",
	"History.executions": "Its runs and skips, latest first.",

	"TriggerInput":         "What the run is to work on.",
	"TriggerInput.payload": "For this run alone. Of type `http` it is the body of the request, never its address; otherwise it takes the place of the job's payload.",
	"Triggered":            "What a trigger becomes.",
	"Triggered.run_id":     "The id of the run, known before it is made.",

	"ResumeInput":          "How a job is to go on.",
	"ResumeInput.catch_up": "True to make up for what fell into the pause, as the job's `missed_window` says.",

	"PreviewInput":       "A schedule, and what stands beside it in a job.",
	"PreviewInput.after": "Only occurrences after this instant, which has an offset or a `Z`. Left out: now.",
	"PreviewInput.count": "How many occurrences to list.",

	"Preview":              "What a schedule means.",
	"Preview.starts_at":    "The start that was given, or else what the schedule is counted from if it does not say itself.",
	"Preview.zone_version": "The release of the zone database that it was worked out with.",
	"Preview.description":  "The schedule as an English sentence.",
	"Preview.warnings":     "What may surprise somebody who wrote it, such as clock changes within a year that concern it.",
	"Preview.next":         "Its occurrences, in order; fewer than asked for if it ends.",
	"Occurrence":           "An instant that a schedule names.",
	"Occurrence.at":        "The instant.",
	"Occurrence.local":     "What the clock in the time zone shows then, with its offset.",
	"Occurrence.weekday":   "The day of the week there.",
	"Occurrence.note":      "What a change of the clock has to do with it; missing if nothing has.",

	"Imported":         "The jobs that were made.",
	"Imported.created": "How many.",
	"Imported.ids":     "Their ids, in the order of the body.",

	"Directory":       "What there is on this server.",
	"Directory.name":  "Always `belfry`.",
	"Directory.paths": "Every route, as a method and a path.",

	"Run":                 "One durable record of one occurrence, or of one trigger.",
	"Run.id":              "Computed from what identifies the run, so that the same firing has the same id after a failover or a restore.",
	"Run.job_id":          "The job that it belongs to.",
	"Run.namespace":       "The namespace that it belongs to.",
	"Run.revision":        "The revision of the job that it was fired from.",
	"Run.kind":            "What made the run.",
	"Run.status":          "Where the run is on its path.",
	"Run.scheduled_at":    "The instant that the schedule names, or that of the trigger.",
	"Run.ready_at":        "When the run may start: its scheduled instant, or that of its next attempt.",
	"Run.fired_at":        "When the run was made. It is missing while a trigger has only been asked for.",
	"Run.attempt":         "How often the run was claimed.",
	"Run.started_at":      "When the latest attempt started; null before the first.",
	"Run.finished_at":     "When the run came to its end; null until then.",
	"Run.worker":          "The worker that holds the run, or held it last.",
	"Run.http_status":     "What the target answered, of a job of type `http`.",
	"Run.output":          "What the latest attempt answered, at most 64 KiB of it.",
	"Run.error":           "What went wrong in the latest attempt.",
	"Run.reason":          "Why the occurrence was skipped or the run is dead.",
	"Run.skipped_to":      "The last of several occurrences in a row that were skipped; this record stands for all of them.",
	"Run.skipped_count":   "How many occurrences this record of a skip stands for.",
	"Run.note":            "What a change of the clock had to do with it; missing if nothing had. Lists leave it out.",
	"Run.attempts":        "The attempts that did not succeed, in order. Lists leave them out.",
	"Run.idempotency_key": "What the target or handler is given to tell repeated attempts by: the same in every attempt of the run.",

	"Attempt":              "One claim of a run by one worker that did not end in success.",
	"Attempt.attempt":      "Its number; the first is 1.",
	"Attempt.outcome":      "How the attempt ended.",
	"Attempt.worker":       "The worker that held the run.",
	"Attempt.started_at":   "When the attempt started.",
	"Attempt.finished_at":  "When the attempt ended.",
	"Attempt.http_status":  "What the target answered, of a job of type `http`.",
	"Attempt.error":        "What went wrong.",
	"Attempt.output":       "What the target or handler answered, at most 64 KiB of it.",
	"Attempt.late_outcome": "What the worker reported after the attempt had been given up. It changed nothing.",
	"Attempt.late_at":      "When it did.",

	"Problem":            "What went wrong, as a problem document of RFC 9457.",
	"Problem.type":       "Always `about:blank`: the code tells the kinds apart.",
	"Problem.title":      "The status in words.",
	"Problem.status":     "The status of the answer.",
	"Problem.detail":     "What went wrong, in a sentence for people.",
	"Problem.code":       "What went wrong, for programs. More codes may be added.",
	"Problem.request_id": "The id of the request, under which the log of the server tells more.",
	"Problem.errors":     "Every field at fault, not only the first; 100 at most.",
	"Fault":              "One thing that is wrong with what was asked for.",
	"Fault.field":        "The path of the member, parameter or header at fault.",
	"Fault.message":      "What is wrong with it, often with an example of what is right.",

	"ClaimedRun":                 "A run as its worker gets it.",
	"ClaimedRun.job_name":        "The name of the job, if it has one and it is known.",
	"ClaimedRun.queue":           "The queue that the run came from.",
	"ClaimedRun.handler":         "Which of the worker's handlers is to run it.",
	"ClaimedRun.fired_at":        "When the run was made.",
	"ClaimedRun.attempt":         "The number of this attempt; the first is 1. Its result repeats it.",
	"ClaimedRun.token":           "Proves that the attempt is this worker's. Its result repeats it.",
	"ClaimedRun.deadline_at":     "By the server's clock, when the run is given to another worker.",
	"ClaimedRun.payload":         "What the handler works on, with its secrets.",
	"ClaimedRun.idempotency_key": "The same in every attempt of the run. Use it to make effects elsewhere happen once.",

	"Beat":          "A worker's sign of life.",
	"Beat.node":     "A name for people: where the worker runs.",
	"Beat.slots":    "How many runs the worker takes on at a time.",
	"Beat.lanes":    "What the worker serves, each as `queue/handler`.",
	"Beat.register": "True in the first heartbeat of a worker: it makes this id known.",
	"Beat.leave":    "True in the last one: the worker is gone and holds nothing any more.",
	"Beat.held":     "Every attempt that the worker holds. It counts only if `listed` is true.",
	"Beat.listed":   "True when `held` is complete: what else this worker was given, and not just now, is given to others.",
	"Held":          "An attempt that a worker believes it holds.",
	"Held.run_id":   "The run.",
	"Held.attempt":  "The number of the attempt.",

	"Claim":              "A wish for runs.",
	"Claim.lanes":        "What the worker serves, each as `queue/handler`.",
	"Claim.limit":        "How many runs the worker has room for.",
	"Claim.wait_seconds": "How long to wait for runs if there are none.",
	"Claimed":            "The runs that the worker now holds.",
	"Claimed.runs":       "As many as there were, up to the limit; none when the wait was over.",

	"Results":                    "What became of attempts.",
	"Results.results":            "One for each attempt that ended.",
	"Result":                     "What became of one attempt.",
	"Result.run_id":              "The run.",
	"Result.attempt":             "The number of the attempt, as it was claimed.",
	"Result.token":               "The token, as it was claimed.",
	"Result.outcome":             "How the attempt ended.",
	"Result.output":              "What the handler has to tell, as text; the first 64 KiB are kept.",
	"Result.error":               "What went wrong, for people.",
	"Result.http_status":         "What a target answered, if the work was an HTTP request.",
	"Result.retry_after_seconds": "How long to wait before the next attempt, at most 7 days, in place of the delay of the job's own policy.",
	"Result.permanent":           "True if another attempt would be useless: a failed run is then a dead letter at once.",
	"Verdicts":                   "What the results did.",
	"Verdicts.verdicts":          "One for each result, in the same order.",

	"Orders":         "The answer to a heartbeat.",
	"Orders.unknown": "True when this worker was given up: drop everything and register under a fresh id.",
	"Orders.lost":    "The listed attempts that are no longer the worker's: stop them.",
	"Orders.cancel":  "Attempts of the worker, listed or not, whose runs somebody cancelled: end them, and hand in the outcome `cancelled`.",

	"JobStatus":    "What a job is doing.",
	"RunStatus":    "Where a run is on its path. The first four are alive, the others final.",
	"RunKind":      "What made a run.",
	"Reason":       "Why an occurrence was skipped or a run is dead.",
	"Outcome":      "How an attempt ended.",
	"Verdict":      "What a result did.",
	"Overlap":      "What happens to an occurrence while an earlier run of its job is still alive.",
	"Backoff":      "How the delay between attempts grows.",
	"DSTGap":       "What becomes of a wall time that the clock skips.",
	"MissedWindow": "What becomes of occurrences at which nobody was in charge.",
	"RetryOn":      "Which failures are worth another attempt.",
	"Priority":     "Which of the runs that wait for the same workers is first.",
	"Decision":     "What became of an instant.",
	"Awaited":      "What a run waits for.",
	"Action":       "What is done to many jobs at once.",
	"EventKind":    "What an event is about.",
	"ProblemCode":  "What went wrong, for programs.",
}
