package api

import (
	"reflect"
	"strings"

	"github.com/belfry-sh/belfry"
)

// choice is one of the values of an enumeration.
type choice struct{ value, about string }

// enumerations are the types that have a few values only. A test compares them
// with the constants of those types.
var enumerations = map[reflect.Type][]choice{
	reflect.TypeFor[belfry.JobStatus](): {
		{"scheduled", "waits for its next occurrence"},
		{"queued", "has a run that waits for a worker"},
		{"running", "has a run that a worker holds"},
		{"paused", "fires nothing until it is resumed"},
		{"completed", "nothing is planned any more, and its last run succeeded"},
		{"failed", "nothing is planned any more, and its last run is a dead letter, or was one that somebody discarded"},
		{"cancelled", "nothing is planned any more, and its last run was cancelled, or its last occurrence was not run"},
	},
	reflect.TypeFor[belfry.RunStatus](): {
		{"ready", "may be claimed by a worker"},
		{"running", "a worker holds it"},
		{"retry", "waits for its next attempt, or for its instant"},
		{"waiting", "waits for an earlier run of its job"},
		{"succeeded", "done"},
		{"dead", "out of attempts: a dead letter, which may be redriven or discarded"},
		{"skipped", "an occurrence that was not run; the reason says why"},
		{"cancelled", "somebody cancelled it"},
		{"discarded", "a dead letter that somebody gave up"},
	},
	reflect.TypeFor[belfry.RunKind](): {
		{"scheduled", "the schedule named its instant"},
		{"manual", "somebody triggered it"},
		{"backfill", "an instant of the schedule that somebody asked to have run, again or after all"},
	},
	reflect.TypeFor[belfry.Reason](): {
		{"overlap", "an earlier run of the job was still alive"},
		{"queue_full", "as many runs as `max_queued` allows were waiting for an earlier one"},
		{"missed_window", "nobody was in charge at that instant"},
		{"max_missed", "more occurrences were missed than `max_missed` makes up for"},
		{"paused", "the job was paused at that instant"},
		{"edited", "an edit took it from the schedule before it could start"},
		{"cancelled", "the job was cancelled first"},
		{"deleted", "the job was deleted first"},
		{"duplicate_key", "a run with the same idempotency key was alive, or had succeeded within the last 7 days"},
		{"dst_gap", "the clock skipped that wall time, and the job says `skip`"},
		{"zone_change", "a newer zone database moved it to another instant"},
		{"out_of_retries", "every attempt that it had failed"},
		{"permanent", "it failed in a way that no retry would change"},
		{"poison", "its workers were lost, time after time"},
	},
	reflect.TypeFor[belfry.Outcome](): {
		{"succeeded", "the work is done"},
		{"failed", "the work failed; it is tried again while there are retries left"},
		{"timed_out", "the time for one attempt was over"},
		{"interrupted", "handed back by a worker that shuts down; it costs no retry"},
		{"lost", "the worker fell silent"},
		{"unconfirmed", "claimed, but the worker never learned of it"},
		{"snoozed", "handed back for the time that the handler asked for; it costs no retry"},
		{"cancelled", "ended because somebody cancelled the run"},
	},
	reflect.TypeFor[belfry.Verdict](): {
		{"accepted", "the result decided the attempt, now or when it was sent before"},
		{"late", "the attempt was no longer the worker's; the result changed nothing"},
	},
	reflect.TypeFor[belfry.Overlap](): {
		{"skip", "an occurrence is skipped, and recorded as such, while an earlier run is alive"},
		{"queue", "an occurrence waits for the earlier run; if `max_queued` wait already, it is skipped"},
		{"parallel", "runs may be alive side by side"},
	},
	reflect.TypeFor[belfry.Backoff](): {
		{"immediate", "there is no delay"},
		{"fixed", "the delay is always `retry_base_seconds`"},
		{"linear", "the delay grows by `retry_base_seconds` with every failure"},
		{"exponential", "the delay doubles with every failure"},
		{"list", "the delays are those of `retry_delays`, the last one for all that follow"},
	},
	reflect.TypeFor[belfry.RetryOn](): {
		{"all", "every failure is tried again"},
		{"server_errors", "an answer of 4xx is final, but for 408, 425 and 429; every other failure is tried again"},
	},
	reflect.TypeFor[belfry.Priority](): {
		{"high", "first; the same as 9"},
		{"normal", "the same as 5"},
		{"low", "the same as 1"},
	},
	reflect.TypeFor[belfry.MissedWindow](): {
		{"skip", "none of them runs"},
		{"run_once", "one run makes up for all of them, as of the latest"},
		{"run_all", "the newest `max_missed` of them run, the oldest first, one after another"},
	},
	reflect.TypeFor[belfry.EventKind](): {
		{"large_catch_up", "many runs were made at once for occurrences that were missed"},
	},
	reflect.TypeFor[belfry.Decision](): {
		{"ran", "a run succeeded"},
		{"running", "a worker holds its run"},
		{"queued", "its run waits for a worker"},
		{"retrying", "its run waits for its next attempt"},
		{"waiting", "its run waits for an earlier run of the job"},
		{"dead", "its run is a dead letter"},
		{"discarded", "its run was a dead letter that somebody gave up"},
		{"skipped", "it was not run; the reason says why"},
		{"cancelled", "somebody cancelled its run"},
		{"planned", "it lies ahead"},
		{"due", "it is about to be decided"},
		{"parked", "the job cannot be fired for now"},
		{"paused", "it is not decided while the job is paused"},
		{"none", "the schedule does not name that instant"},
		{"unknown", "what was decided is no longer known"},
	},
	reflect.TypeFor[belfry.WaitKind](): {
		{"worker", "one that serves its queue and handler: there is none"},
		{"slot", "a free slot of a worker that serves them"},
		{"run", "the end of an earlier run of its job"},
		{"time", "an instant"},
	},
	reflect.TypeFor[belfry.Action](): {
		{"pause", "keep the jobs from firing"},
		{"resume", "let paused jobs fire again"},
		{"trigger", "run the jobs now"},
		{"delete", "delete the jobs; runs that are alive finish, and their history is kept"},
		{"cancel", "plan nothing more for the jobs, and cancel their runs"},
		{"retry", "redrive the dead letters of the jobs"},
	},
	reflect.TypeFor[belfry.DSTGap](): {
		{"run", "at the end of the skipped stretch, once for all of it; nothing if a later time of the rule covers it"},
		{"skip", "not at all, and recorded as skipped"},
	},
	reflect.TypeFor[belfry.Code](): {
		{"bad_request", "the request as such cannot be read: its query, its headers or its JSON"},
		{"unauthorized", "an API key is needed, and there is none or a wrong one"},
		{"forbidden", "a page of another origin asked for a change"},
		{"not_found", "no such thing, or not in this namespace"},
		{"method_not_allowed", "nothing is done here by that method; the header `Allow` lists those that there are"},
		{"too_slow", "the request did not arrive in time"},
		{"conflict", "it is there already, or it does not fit what is there"},
		{"changed", "it is no longer as `If-Match` says"},
		{"too_large", "more bytes than allowed"},
		{"unsupported_media_type", "the body is not of a media type that is read here"},
		{"misdirected", "the server does not answer under the name in the `Host` header"},
		{"invalid", "what was asked for is wrong; `errors` names every field at fault"},
		{"rate_limited", "too many requests under this key; `Retry-After` says when to come back"},
		{"unavailable", "the database cannot be reached; try again"},
		{"internal", "anything else; the log of the server tells more under the id of the request"},
	},
}

// enumeration gives a reference to the component of an enumeration.
func (s *schemas) enumeration(t reflect.Type, list []choice) *schema {
	name := componentName(t)
	if s.enter(name, t) {
		out := &schema{Type: kinds{"string"}, choices: list}
		lines := []string{lookup(about, name, "", "")}
		for _, c := range list {
			out.Enum = append(out.Enum, c.value)
			lines = append(lines, "- `"+c.value+"`: "+c.about)
		}
		out.Description = strings.Join(lines, "\n")
		s.components.add(name, out)
	}
	return &schema{Ref: componentRef + name}
}

// priority is one of the names, or a digit; what is read may be a number, too.
func (s *schemas) priority() *schema {
	out := &schema{AnyOf: []*schema{
		s.enumeration(reflect.TypeFor[belfry.Priority](), enumerations[reflect.TypeFor[belfry.Priority]()]),
		{Type: kinds{"string"}, limits: limits{Pattern: "^[0-9]$"}},
	}}
	if s.strict {
		out.AnyOf = append(out.AnyOf, &schema{Type: kinds{"integer"}, limits: between(belfry.MinPriority, belfry.MaxPriority)})
	}
	return out
}
