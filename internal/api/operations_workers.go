package api

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/openapi"
)

const workersPath = apiPath + "/workers"

// finishBody is the results of a worker, which may be large.
type finishBody struct{ belfry.FinishRequest }

func (finishBody) maxBody() int64 { return 8 << 20 }

// heartbeatBody is a heartbeat, which may bring logs.
type heartbeatBody struct{ belfry.Heartbeat }

func (heartbeatBody) maxBody() int64 { return 4 << 20 }

// workerOperations are what a worker in any language needs.
func (a *api) workerOperations() []operation {
	return []operation{
		handle(a, openapi.Operation{
			ID: "heartbeat", Method: "POST", Path: workersPath + "/{worker}/heartbeat", Group: groupWorkers, Permission: auth.Work, Summary: "Send a heartbeat",
			Doc: "A worker generates a new id each time it starts and registers with its first heartbeat (`register`). From then on it sends one every few seconds; " +
				"the runs of a worker that is silent for 20 seconds are given to others. Every 30 seconds, and after a claim whose answer was lost, it lists the attempts that it holds " +
				"(`complete`, `held`): claims that it does not list are released, and the answer names those that it lost (`lost`), which it must stop. " +
				"Attempts whose runs were cancelled are named in `cancel`, listed or not: it stops them and reports the outcome `cancelled`. " +
				"What handlers write to their logs may be sent with it (`logs`), and then every second. " +
				"If the answer says `unknown`, it drops everything and starts again with a new id. Before it ends it says so (`leave`).",
			Examples: map[string]string{
				"The first one": `{"node": "billing-1", "slots": 10, "queue": "default", "handlers": ["send-invoice"], "register": true}`,
				"With what it holds": `{"node": "billing-1", "slots": 10, "queue": "default", "handlers": ["send-invoice"], "complete": true,
 "held": [{"run_id": "01a22f39-15c0-8d3b-a6c4-90e15f7b2d08", "attempt": 1}]}`,
				"With a part of a log": `{"node": "billing-1", "slots": 10, "queue": "default", "handlers": ["send-invoice"],
 "logs": [{"run_id": "01a22f39-15c0-8d3b-a6c4-90e15f7b2d08", "attempt": 1, "token": "9f86d081884c7d659a2feaa0c55ad015", "offset": 13, "text": "page 2 of 12\n"}]}`,
				"The last one": `{"slots": 0, "queue": "default", "handlers": ["send-invoice"], "leave": true}`,
			},
			Body:      reflect.TypeFor[belfry.Heartbeat](),
			Responses: []openapi.Response{openapi.JSON[belfry.HeartbeatReply](http.StatusOK, "What the worker must know.")}, Errors: bodyErrors,
		}, func(ctx context.Context, r *request, _ none, body heartbeatBody) (response, error) {
			body.WorkerID = r.id
			return shown(a.Control.Heartbeat(ctx, r.namespace, body.Heartbeat))
		}),
		a.claimOperation(),
		handle(a, openapi.Operation{
			ID: "finishRuns", Method: "POST", Path: workersPath + "/{worker}/finish", Group: groupWorkers, Permission: auth.Work, Summary: "Report results",
			Doc: "Each result names an attempt by run, number and token. It counts only while that attempt is the current one of the run; a late one is kept as evidence and changes nothing. " +
				"A run that failed or timed out is retried while it has retries; an interrupted one is given to another worker at once. A handler may decide otherwise: " +
				"`retry_after_seconds` replaces the delay of the job, `permanent` makes the run a dead letter at once, and with the outcome `snoozed` it comes back after " +
				"`retry_after_seconds` without counting as a failure. The same results may be sent again if the answer was lost. " +
				"`output` is text, of which the first 64 KiB are kept, and `log` what the handler logged, of which the last 64 KiB are kept; the body has at most 8 MiB.",
			Examples: map[string]string{
				"One success, one failure": `{"results": [
 {"run_id": "01a22f39-15c0-8d3b-a6c4-90e15f7b2d08", "attempt": 1, "token": "9f86d081884c7d659a2feaa0c55ad015", "outcome": "succeeded", "output": "12 pages"},
 {"run_id": "01a22f39-15c0-8d3b-a6c4-90e15f7b2d09", "attempt": 2, "token": "1b4f0e9851971998e732078544c96b36", "outcome": "failed", "error": "the printer is on fire"}]}`,
				"A failure to retry in a minute, a permanent one, and a snooze": `{"results": [
 {"run_id": "01a22f39-15c0-8d3b-a6c4-90e15f7b2d08", "attempt": 1, "token": "9f86d081884c7d659a2feaa0c55ad015", "outcome": "failed", "error": "busy", "retry_after_seconds": 60},
 {"run_id": "01a22f39-15c0-8d3b-a6c4-90e15f7b2d09", "attempt": 2, "token": "1b4f0e9851971998e732078544c96b36", "outcome": "failed", "error": "no such customer", "permanent": true},
 {"run_id": "01a22f39-15c0-8d3b-a6c4-90e15f7b2d0a", "attempt": 1, "token": "2c624232cdd221771294dfbb310aca00", "outcome": "snoozed", "retry_after_seconds": 300}]}`,
			},
			Body:      reflect.TypeFor[belfry.FinishRequest](),
			Responses: []openapi.Response{openapi.JSON[belfry.FinishReply](http.StatusOK, "What each result did, in the order of the results.")}, Errors: bodyErrors,
		}, func(ctx context.Context, r *request, _ none, body finishBody) (response, error) {
			verdicts, err := a.Control.Finish(ctx, r.namespace, body.Results)
			return response{body: belfry.FinishReply{Verdicts: verdicts}}, err
		}),
	}
}

// claimGrace is what a claim may take beyond the time that it waits.
const claimGrace = 10 * time.Second

func (a *api) claimOperation() operation {
	return a.handleRaw(openapi.Operation{
		ID: "claimRuns", Method: "POST", Path: workersPath + "/{worker}/claim", Group: groupWorkers, Permission: auth.Work, Summary: "Claim runs",
		Doc: "Gives at most `limit` runs of the queues and handlers to a registered worker, those that wait longest first. " +
			"If none is ready the answer waits for up to `wait_seconds`, and may then have no runs: claim again. The worker holds each run until `deadline_at`, " +
			"or until its result is reported with the `token`. While a server shuts down it answers at once, or with 503: use another.",
		Body: reflect.TypeFor[belfry.Claim](), Examples: map[string]string{"Up to ten runs": `{"queue": "default", "handlers": ["send-invoice"], "limit": 10, "wait_seconds": 20}`},
		Responses: []openapi.Response{openapi.JSON[belfry.ClaimReply](http.StatusOK, "The runs that the worker now holds.")}, Errors: bodyErrors,
	}, a.claimRuns)
}

// claimRuns gives out runs, and waits for them if there are none. A server that shuts
// down sends its workers elsewhere at once.
func (a *api) claimRuns(w http.ResponseWriter, r *http.Request, op *openapi.Operation) (out response, err error) {
	var body belfry.Claim
	in, err := readRequest(r, op, &none{}, &body)
	if err == nil && a.shuttingDown() {
		err = errShutdown
	}
	if err != nil {
		return out, err
	}
	body.WorkerID = in.id
	wait := time.Duration(body.WaitSeconds.Value() * float64(time.Second))
	extendDeadlines(w, wait+requestTimeout)
	ctx, cancel := context.WithTimeout(r.Context(), wait+claimGrace)
	defer cancel()
	defer a.cancelAtEnd(r, cancel)()
	runs, err := a.Control.Claim(ctx, in.namespace, body)
	if err != nil && a.shuttingDown() {
		err = errShutdown
	}
	if ended := errors.Join(r.Context().Err(), keyEnded(r)); ended != nil {
		if len(runs) > 0 {
			a.returnRuns(r, in.namespace, runs)
		}
		return out, ended
	}
	reply := belfry.ClaimReply{Runs: make([]belfry.ClaimedRun, len(runs))}
	for i, run := range runs {
		reply.Runs[i] = run.Claimed()
	}
	out.body = reply
	if a.shuttingDown() {
		out.header = map[string]string{"Connection": "close"}
	}
	return out, err
}

// returnRuns releases runs whose worker is gone before it received them. If that fails
// they are released when the worker's list of held attempts does not name them.
func (a *api) returnRuns(r *http.Request, namespace string, runs []*belfry.Run) {
	results := make([]belfry.Result, len(runs))
	for i, run := range runs {
		results[i] = belfry.Result{RunID: run.ID, Attempt: run.Attempt, Token: run.Token,
			Outcome: belfry.OutcomeInterrupted, Error: "the worker disconnected before it received the run"}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), requestTimeout)
	defer cancel()
	if _, err := a.Control.Finish(ctx, namespace, results); err != nil {
		a.Log.Warn("cannot release runs of a disconnected worker", "runs", len(runs), "error", err)
	}
}

func (a *api) shuttingDown() bool {
	select {
	case <-a.Draining:
		return true
	default:
		return false
	}
}

// cancelAtEnd calls cancel when the node begins to shut down, or the key of a request ends, unless it
// is stopped first.
func (a *api) cancelAtEnd(r *http.Request, cancel func()) (stop func()) {
	var ended <-chan struct{}
	if p := auth.Of(r.Context()); p != nil {
		ended = p.Ended
	}
	done := make(chan struct{})
	go func() {
		select {
		case <-a.Draining:
			cancel()
		case <-ended:
			cancel()
		case <-done:
		}
	}()
	return func() { close(done) }
}

// keyEnded says that the key of a request has ended meanwhile.
func keyEnded(r *http.Request) error {
	if p := auth.Of(r.Context()); p != nil {
		select {
		case <-p.Ended:
			return noKey(`, error="invalid_token"`, false, "the API key was revoked or has expired, or this server cannot read the database")
		default:
		}
	}
	return nil
}

var errShutdown = &httpError{
	code: belfry.Unavailable, detail: "this server is shutting down; use another one",
	header: map[string]string{"Retry-After": "1", "Connection": "close"},
}
