package api

import (
	"net/http"
	"time"

	"github.com/belfry-sh/belfry"
)

// deadParameters narrow a list of dead letters.
var deadParameters = []parameter{
	filterBy[string]("job", "Only those of this job: its id, or its name.", "nightly-report"),
	filterBy[time.Time]("since", "Only those that died at this instant or later.", "2026-12-01T00:00:00Z"),
	filterBy[time.Time]("until", "Only those that died before this instant.", "2026-12-02T00:00:00Z"),
	filterBy[string]("error", "Only those with this in the error of their last attempt, in any case.", "503"),
	filterBy[string]("fingerprint", "Only those whose failures are of this kind.", "3f9a0c51d2e87b46"),
	{name: "reason", in: "query", about: "Only those that are dead for this reason; in any case.", kind: typeOf[string](), words: texts(deadReasons), example: "poison"},
}

// deadOperations are those about runs that are out of attempts.
func (a *api) deadOperations() []operation {
	return append(a.deadLookups(), a.deadOrders()...)
}

// deadLookups only look.
func (a *api) deadLookups() []operation {
	return []operation{
		{
			id: "listDeadLetters", method: "GET", path: deadPath, group: groupDead,
			summary:    "List dead letters",
			about:      "Runs that are out of attempts, the latest death first. Payloads and attempts are told by each alone.",
			parameters: append(deadParameters[:len(deadParameters):len(deadParameters)], pageParameters...),
			answers:    []reply{writes[[]shownDead](http.StatusOK, "A page of dead letters.", "Link")},
			refusals:   []int{missing},
			handler:    route(a, readDeadList, a.listDead),
		},
		{
			id: "groupDeadLetters", method: "GET", path: deadPath + "/groups", group: groupDead,
			summary:    "Group dead letters",
			about:      "How many dead letters there are of each kind of failure, the largest group first. The fingerprint of a group finds its dead letters in the list, and in orders about many.",
			parameters: append(deadParameters[:len(deadParameters):len(deadParameters)], pageParameters[0]),
			answers:    []reply{writes[[]belfry.DeadGroup](http.StatusOK, "The groups.")},
			refusals:   []int{missing},
			handler:    route(a, readDeadGroups, a.groupDead),
		},
		{
			id: "getDeadLetter", method: "GET", path: deadPath + "/{id}", group: groupDead,
			summary:  "Get a dead letter",
			about:    "A dead letter with its payload and all its attempts and their outputs. What looks like a secret in its payload is shown as `***`.",
			answers:  []reply{writes[shownDead](http.StatusOK, "The dead letter.")},
			refusals: []int{missing},
			handler:  route(a, readTarget, a.getDead),
		},
	}
}

// deadOrders decide what becomes of them.
func (a *api) deadOrders() []operation {
	return []operation{
		{
			id: "redriveDeadLetter", method: "POST", path: deadPath + "/{id}/redrive", group: groupDead,
			summary: "Redrive a dead letter",
			about: "Makes a run of it again, which keeps its id, its idempotency key, its attempts and the revision of its job, and has all its retries. It may have another payload: " +
				"for an `http` job that is the body of the request, never its address; `***` in it keeps the secret that is stored at that place.",
			body: &content{media: []string{mediaJSON}, kind: typeOf[triggerInput](), examples: map[string]string{
				"With another payload": `{"payload": {"format": "csv"}}`,
			}},
			answers:  []reply{writes[shownRun](http.StatusAccepted, "The run as it is now.", "Location")},
			refusals: refusing(readRefusals, missing, taken),
			handler:  route(a, readRedrive, a.redriveOne),
		},
		{
			id: "discardDeadLetter", method: "DELETE", path: deadPath + "/{id}", group: groupDead,
			summary:  "Discard a dead letter",
			about:    "Gives it up. Its run stays in the history, as `discarded`, for its retention.",
			answers:  []reply{{status: http.StatusNoContent, about: "It is discarded."}},
			refusals: []int{missing},
			handler:  route(a, readTarget, a.discardOne),
		},
		{
			id: "redriveDeadLetters", method: "POST", path: deadPath + "/redrive", group: groupDead,
			summary: "Redrive many dead letters",
			about: "Redrives every dead letter that passes the filter, the latest deaths first; with a `rate`, so many of them start a second. A dry run only counts them. An empty filter needs `all`. " +
				"A payload can be given for the dead letters of one job. One request decides about 10,000 at most: ask again while the answer says `more`.",
			body: reads[redriveOrder](map[string]string{
				"Count what would be redriven": `{"filter": {"error": "connection refused"}, "dry_run": true}`,
				"Those of a night, slowly":     `{"filter": {"since": "2026-12-01T00:00:00Z", "until": "2026-12-01T06:00:00Z"}, "rate": 5}`,
				"All of them":                  `{"all": true}`,
			}),
			answers:  []reply{writes[redriven](http.StatusOK, "What came of it.")},
			refusals: refusing(readRefusals, missing, taken),
			handler:  within(a, bulkPatience, readRedriveOrder, a.redriveMany),
		},
		{
			id: "discardDeadLetters", method: "POST", path: deadPath + "/discard", group: groupDead,
			summary: "Discard many dead letters",
			about: "Gives up every dead letter that passes the filter, the latest deaths first. A dry run only counts them. An empty filter needs `all`. " +
				"One request decides about 10,000 at most: ask again while the answer says `more`.",
			body: reads[discardOrder](map[string]string{
				"Count what would be discarded": `{"filter": {"fingerprint": "3f9a0c51d2e87b46"}, "dry_run": true}`,
				"Those that are poison":         `{"filter": {"reason": "poison"}}`,
			}),
			answers:  []reply{writes[decided](http.StatusOK, "What came of it.")},
			refusals: refusing(readRefusals, missing, taken),
			handler:  within(a, bulkPatience, readDiscardOrder, a.discardMany),
		},
	}
}
