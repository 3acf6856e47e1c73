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
	reflect.TypeFor[belfry.Status](): {
		{"scheduled", "waits for its next occurrence"},
		{"queued", "has a run that waits for a worker"},
		{"running", "has a run that a worker holds"},
		{"paused", "fires nothing until it is resumed"},
		{"completed", "nothing is planned any more, and its last run succeeded"},
		{"failed", "nothing is planned any more, and its last run is a dead letter"},
		{"cancelled", "nothing is planned any more, and its last occurrence was not run"},
	},
	reflect.TypeFor[belfry.RunState](): {
		{"ready", "may be claimed by a worker"},
		{"running", "a worker holds it"},
		{"retry", "failed and waits for its next attempt"},
		{"waiting", "waits for an earlier run of its job"},
		{"succeeded", "done"},
		{"dead", "out of attempts: a dead letter"},
		{"skipped", "an occurrence that was not run; the reason says why"},
	},
	reflect.TypeFor[belfry.Kind](): {
		{"scheduled", "the schedule named its instant"},
		{"manual", "somebody triggered it"},
	},
	reflect.TypeFor[belfry.Reason](): {
		{"overlap", "an earlier run of the job was still alive"},
		{"missed_window", "nobody was in charge at that instant"},
		{"paused", "the job was paused at that instant"},
		{"deleted", "the job was deleted first"},
		{"dst_gap", "the clock skipped that wall time, and the job says `skip`"},
		{"zone_change", "a newer zone database moved it to another instant"},
		{"out_of_retries", "every attempt that it had failed"},
		{"poison", "its workers were lost, time after time"},
	},
	reflect.TypeFor[belfry.Outcome](): {
		{"succeeded", "the work is done"},
		{"failed", "the work failed; it is tried again while there are retries left"},
		{"timed_out", "the time for one attempt was over"},
		{"interrupted", "handed back by a worker that shuts down; it costs no retry"},
		{"lost", "the worker fell silent"},
		{"unconfirmed", "claimed, but the worker never learned of it"},
	},
	reflect.TypeFor[belfry.Verdict](): {
		{"accepted", "the result decided the attempt, now or when it was sent before"},
		{"late", "the attempt was no longer the worker's; the result changed nothing"},
	},
	reflect.TypeFor[belfry.Overlap](): {
		{"skip", "an occurrence is skipped, and recorded as such, while an earlier run is alive"},
		{"parallel", "runs may be alive side by side"},
	},
	reflect.TypeFor[belfry.Backoff](): {
		{"exponential", "the delay doubles with every failure"},
	},
	reflect.TypeFor[belfry.MissedWindow](): {
		{"run_once", "one run makes up for all of them, as of the latest"},
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
