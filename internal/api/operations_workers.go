package api

import (
	"net/http"
	"reflect"

	"github.com/belfry-sh/belfry"
)

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

// workerOperations are what a worker in any language needs.
func (a *api) workerOperations() []operation {
	return []operation{
		{
			id: "heartbeat", method: "POST", path: workersPath + "/{worker}/heartbeat", group: groupWorkers,
			summary: "Tell that a worker is alive",
			about: "A worker draws a fresh id each time it starts and registers under it with its first heartbeat (`register`). From then on it tells every few seconds that it is alive; " +
				"the runs of one that is silent for half a minute are given to others. Every 30 seconds, and after a claim whose answer was lost, it lists the attempts that it holds " +
				"(`listed`, `held`): claims that it does not know of are released, and the answer names those that are no longer its own (`lost`), which it must stop. " +
				"Attempts whose runs somebody cancelled are named in `cancel`, listed or not: it ends them and hands in the outcome `cancelled`. " +
				"If the answer says `unknown`, it drops everything and starts under another id. One that ends says so (`leave`).",
			body: reads[belfry.Heartbeat](map[string]string{
				"The first one": `{"node": "billing-1", "slots": 10, "lanes": ["default/send-invoice"], "register": true}`,
				"With what it holds": `{"node": "billing-1", "slots": 10, "lanes": ["default/send-invoice"], "listed": true,
 "held": [{"run_id": "01a22f39-15c0-8d3b-a6c4-90e15f7b2d08", "attempt": 1}]}`,
				"The last one": `{"slots": 0, "lanes": ["default/send-invoice"], "leave": true}`,
			}),
			answers:  []reply{writes[belfry.HeartbeatReply](http.StatusOK, "What the worker is to know.")},
			refusals: readRefusals,
			handler:  route(a, readBeat, a.beat),
		},
		{
			id: "claimRuns", method: "POST", path: workersPath + "/{worker}/claim", group: groupWorkers,
			summary: "Claim runs",
			about: "Hands at most `limit` runs of the lanes to a worker that is registered, those first that wait longest. A lane is a queue and a handler, as in `default/send-invoice`, " +
				"of the namespace. If nothing is ready the answer waits for up to `wait_seconds`, and may then have no runs: ask again. Each run is the worker's until `deadline_at`, " +
				"or until its result is told with the `token`. While a server shuts down it answers at once, or with 503: ask another.",
			body:     reads[claim](map[string]string{"Up to ten runs": `{"lanes": ["default/send-invoice"], "limit": 10, "wait_seconds": 20}`}),
			answers:  []reply{writes[claimed](http.StatusOK, "The runs that are now the worker's.")},
			refusals: readRefusals,
			handler:  http.HandlerFunc(a.claimRuns),
		},
		{
			id: "finishRuns", method: "POST", path: workersPath + "/{worker}/finish", group: groupWorkers,
			summary: "Tell what became of runs",
			about: "Each result names an attempt by run, number and token. It counts only while that attempt is the run's current one; a late one is kept as evidence and changes nothing. " +
				"A run that failed or timed out is tried again while it has retries, and one that was interrupted at once, by another worker. A handler that knows better says so: " +
				"`retry_after_seconds` takes the place of the job's own delay, `permanent` makes the run a dead letter at once, and with the outcome `snoozed` it comes back after " +
				"`retry_after_seconds` without that being a failure. The same results may be sent again if the answer was lost. " +
				"`output` is text, of which 64 KiB are kept; the body has at most 8 MiB.",
			body: reads[results](map[string]string{
				"One success, one failure": `{"results": [
 {"run_id": "01a22f39-15c0-8d3b-a6c4-90e15f7b2d08", "attempt": 1, "token": "9f86d081884c7d659a2feaa0c55ad015", "outcome": "succeeded", "output": "12 pages"},
 {"run_id": "01a22f39-15c0-8d3b-a6c4-90e15f7b2d09", "attempt": 2, "token": "1b4f0e9851971998e732078544c96b36", "outcome": "failed", "error": "the printer is on fire"}]}`,
				"A failure to be tried again in a minute, one that is final, and a wait": `{"results": [
 {"run_id": "01a22f39-15c0-8d3b-a6c4-90e15f7b2d08", "attempt": 1, "token": "9f86d081884c7d659a2feaa0c55ad015", "outcome": "failed", "error": "busy", "retry_after_seconds": 60},
 {"run_id": "01a22f39-15c0-8d3b-a6c4-90e15f7b2d09", "attempt": 2, "token": "1b4f0e9851971998e732078544c96b36", "outcome": "failed", "error": "no such customer", "permanent": true},
 {"run_id": "01a22f39-15c0-8d3b-a6c4-90e15f7b2d0a", "attempt": 1, "token": "2c624232cdd221771294dfbb310aca00", "outcome": "snoozed", "retry_after_seconds": 300}]}`,
			}),
			answers:  []reply{writes[verdicts](http.StatusOK, "What each result did, in the order of the results.")},
			refusals: readRefusals,
			handler:  route(a, readResults, a.finishRuns),
		},
	}
}
