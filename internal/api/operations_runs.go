package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/openapi"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	runsPath = apiPath + "/runs"
	deadPath = apiPath + "/dead-letters"
)

type explainQuery struct {
	At string `json:"at,omitempty" example:"2026-12-01T02:30" doc:"An instant with an offset or 'Z', or a wall time in the time zone of the job."`
}

func (a *api) runOperations() []operation {
	return []operation{
		list(a, openapi.Operation{
			ID: "listJobRuns", Method: "GET", Path: jobsPath + "/{job}/runs", Group: groupRuns, Permission: auth.Read, Summary: "List the runs of a job",
			Doc: "Runs, live ones included, and skipped occurrences with their reason, the latest first, without attempts. " +
				"A deleted job is found by its id as long as its history is kept. A page may be short or empty and still have a next one.", Errors: []int{notFound},
		}, func(ctx context.Context, r *request, f belfry.JobRunFilter, p store.Page) ([]belfry.Run, store.Position, error) {
			return a.Control.JobRuns(ctx, r.namespace, r.ref, f, p)
		}),
		a.historyOperation(),
		handle(a, openapi.Operation{
			ID: "explainJob", Method: "GET", Path: jobsPath + "/{job}/why", Group: groupRuns, Permission: auth.Read, Summary: "Explain why a job ran or did not",
			Doc: "Explains what was decided for an instant of the job and by which rule; for a waiting run, what it waits for; for the future, what is planned. " +
				"A deleted job is found by its id. Without `at`: the latest run or skip, or else the next occurrence; of a paused job the next occurrence.",
			Responses: []openapi.Response{openapi.JSON[belfry.Explanation](http.StatusOK, "The explanation.")}, Errors: []int{notFound},
		}, func(ctx context.Context, r *request, q explainQuery, _ none) (response, error) {
			explanation, err := a.Control.Explain(ctx, r.namespace, r.ref, q.At)
			if e := publicError(err); err != nil && e.code == belfry.Invalid {
				err = badParameters(e.fields...)
			}
			return shown(explanation, err)
		}),
		list(a, openapi.Operation{
			ID: "listRuns", Method: "GET", Path: runsPath, Group: groupRuns, Permission: auth.Read, Summary: "List runs",
			Doc: "Runs and skipped occurrences of the namespace, or of one job, the latest first. A page may be short or empty and still have a next one.", Errors: []int{notFound},
		}, inNamespace(a.Control.ListRuns)),
		handle(a, openapi.Operation{
			ID: "getRun", Method: "GET", Path: runsPath + "/{run}", Group: groupRuns, Permission: auth.Read, Summary: "Get a run",
			Doc:       "A run with its failed attempts. A trigger that is not fired yet is shown as the run that it will be.",
			Responses: []openapi.Response{openapi.JSON[belfry.Run](http.StatusOK, "The run.")}, Errors: []int{notFound},
		}, byID(a.Control.Run)),
		handle(a, openapi.Operation{
			ID: "getRunLog", Method: "GET", Path: runsPath + "/{run}/log", Group: groupRuns, Permission: auth.Read, Summary: "Get the log of a run",
			Doc: "What the handler of a worker wrote to the log of an attempt, also while it runs: a second or two after it was written. " +
				"To follow it, request `next_offset` as the next `offset`, and the run for its status. The log of an attempt is complete when the attempt has ended. It is plain text from outside: escape it where it is shown.",
			Responses: []openapi.Response{openapi.JSON[belfry.RunLog](http.StatusOK, "The log from the offset on.")}, Errors: []int{notFound},
		}, func(ctx context.Context, r *request, q belfry.LogQuery, _ none) (response, error) {
			return shown(a.Control.RunLog(ctx, r.namespace, r.id, q))
		}),
		handle(a, openapi.Operation{
			ID: "cancelRun", Method: "POST", Path: runsPath + "/{run}/cancel", Group: groupRuns, Permission: auth.Operate, Summary: "Cancel a run",
			Doc: "Cancels a run that no worker holds at once. The worker of a running one learns of it with its next heartbeat, within 7 seconds, and stops the handler; if the handler succeeds nevertheless, " +
				"the run has succeeded. Repeating it changes nothing; a run that ended in another way is refused with 409.",
			Responses: []openapi.Response{openapi.JSON[belfry.Run](http.StatusAccepted, "The run; its worker will stop it."), openapi.JSON[belfry.Run](http.StatusOK, "The run, which is cancelled.")},
			Errors:    errorsWith(notFound, conflict),
		}, func(ctx context.Context, r *request, _, _ none) (response, error) {
			run, err := a.Control.CancelRun(ctx, r.namespace, r.id)
			if run.Status != belfry.RunCancelled {
				return response{status: http.StatusAccepted, body: run}, err
			}
			return response{body: run}, err
		}),
		a.eventsOperation(),
	}
}

func (a *api) historyOperation() operation {
	return handle(a, openapi.Operation{
		ID: "getJobHistory", Method: "GET", Path: jobsPath + "/{job}/history", Group: groupRuns, Permission: auth.Read, Summary: "Get a job with its runs",
		Doc: "The job, and in `executions` a page of its runs; the `Link` header leads to earlier ones. " +
			"A deleted job is found by its id as long as its history is kept.", Query: pageQueries, Errors: []int{notFound},
		Responses: []openapi.Response{openapi.JSON[belfry.JobHistory](http.StatusOK, "The job and a page of its runs.", "Link")},
	}, func(ctx context.Context, r *request, f belfry.JobRunFilter, _ none) (response, error) {
		job, err := a.Control.JobHistory(ctx, r.namespace, r.ref)
		if err != nil {
			return response{}, err
		}
		runs, last, err := a.Control.JobRuns(ctx, r.namespace, r.ref, f, r.page)
		return response{next: r.nextPage(last), body: belfry.JobHistory{Job: job, Executions: append([]belfry.Run{}, runs...)}}, err
	})
}

func (a *api) deadOperations() []operation {
	return []operation{
		list(a, openapi.Operation{
			ID: "listDeadLetters", Method: "GET", Path: deadPath, Group: groupDead, Permission: auth.Read, Summary: "List dead letters",
			Doc: "Runs that are out of attempts, the latest first, without payloads and attempts.", Errors: []int{notFound},
		}, inNamespace(a.Control.ListDeadLetters)),
		handle(a, openapi.Operation{
			ID: "groupDeadLetters", Method: "GET", Path: deadPath + "/groups", Group: groupDead, Permission: auth.Read, Summary: "Group dead letters",
			Doc:   "How many dead letters there are of each kind of failure, the largest group first. Filters accept the fingerprint of a group.",
			Query: pageQueries, Errors: []int{notFound}, Responses: []openapi.Response{openapi.JSON[[]belfry.DeadGroup](http.StatusOK, "The groups.")},
		}, func(ctx context.Context, r *request, f belfry.DeadFilter, _ none) (response, error) {
			return shownAll(a.Control.GroupDeadLetters(ctx, r.namespace, f, r.page.Limit))
		}),
		handle(a, openapi.Operation{
			ID: "getDeadLetter", Method: "GET", Path: deadPath + "/{run}", Group: groupDead, Permission: auth.Read, Summary: "Get a dead letter",
			Doc:       "A dead letter with its payload, attempts and outputs. Values in the payload that look like secrets are shown as `***`.",
			Responses: []openapi.Response{openapi.JSON[belfry.DeadLetter](http.StatusOK, "The dead letter.")}, Errors: []int{notFound},
		}, byID(a.Control.DeadLetter)),
		handle(a, openapi.Operation{
			ID: "redriveDeadLetter", Method: "POST", Path: deadPath + "/{run}/redrive", Group: groupDead, Permission: auth.Operate, Summary: "Redrive a dead letter",
			Doc: "Runs it again with all its retries. The run keeps its id, idempotency key and attempts. If its job was edited since it was fired it runs as the job is now, " +
				"as `revision` in the answer says, unless `as_fired` is set. It may get another payload: for an `http` job that is the body of the request, never its address; `***` in it keeps the secret that is stored at that place.",
			Optional: true, Examples: map[string]string{"With another payload": `{"payload": {"format": "csv"}}`},
			Responses: []openapi.Response{openapi.JSON[belfry.Run](http.StatusAccepted, "The run.", "Location")}, Errors: errorsWith(notFound, conflict),
		}, func(ctx context.Context, r *request, _ none, body belfry.RedriveOptions) (response, error) {
			if _, err := a.Control.Redrive(ctx, r.namespace, belfry.Redrive{RunID: r.id, RedriveOptions: body}); err != nil {
				return response{}, err
			}
			run, err := a.Control.Run(ctx, r.namespace, r.id)
			return acceptedRun(r.id, run, err)
		}),
		handle(a, openapi.Operation{
			ID: "discardDeadLetter", Method: "DELETE", Path: deadPath + "/{run}", Group: groupDead, Permission: auth.Operate, Summary: "Discard a dead letter",
			Doc:       "Its run stays in the history as `discarded`, for its retention.",
			Responses: []openapi.Response{{Status: http.StatusNoContent, Doc: "It is discarded."}}, Errors: []int{notFound},
		}, func(ctx context.Context, r *request, _, _ none) (response, error) {
			_, err := a.Control.Discard(ctx, r.namespace, belfry.Discard{RunID: r.id})
			return response{status: http.StatusNoContent}, err
		}),
		handleWithin(a, bulkTimeout, openapi.Operation{
			ID: "redriveDeadLetters", Method: "POST", Path: deadPath + "/redrive", Group: groupDead, Permission: auth.Operate, Summary: "Redrive many dead letters",
			Doc: "Redrives every dead letter that matches the filter, as its job is now, unless `as_fired` is set; with a `rate`, that many start per second. A dry run only counts. An empty filter needs `all`. " +
				"One request handles 10,000 at most: repeat it while the answer says `more`.",
			Examples: map[string]string{
				"Count what would be redriven": `{"filter": {"error": "connection refused"}, "dry_run": true}`,
				"Those of a night, slowly":     `{"filter": {"since": "2026-12-01T00:00:00Z", "until": "2026-12-01T06:00:00Z"}, "rate": 5}`,
				"All of them":                  `{"all": true}`,
			},
			Responses: []openapi.Response{openapi.JSON[belfry.DeadResult](http.StatusOK, "The result.")}, Errors: errorsWith(notFound, conflict),
		}, func(ctx context.Context, r *request, _ none, body belfry.Redrive) (response, error) {
			return shown(a.Control.Redrive(ctx, r.namespace, body))
		}),
		handleWithin(a, bulkTimeout, openapi.Operation{
			ID: "discardDeadLetters", Method: "POST", Path: deadPath + "/discard", Group: groupDead, Permission: auth.Operate, Summary: "Discard many dead letters",
			Doc: "Discards every dead letter that matches the filter. A dry run only counts. An empty filter needs `all`. One request handles 10,000 at most: repeat it while the answer says `more`.",
			Examples: map[string]string{
				"Count what would be discarded": `{"filter": {"fingerprint": "3f9a0c51d2e87b46"}, "dry_run": true}`,
				"Poison runs":                   `{"filter": {"reason": "poison"}}`,
			},
			Responses: []openapi.Response{openapi.JSON[belfry.DeadResult](http.StatusOK, "The result.")}, Errors: errorsWith(notFound, conflict),
		}, func(ctx context.Context, r *request, _ none, body belfry.Discard) (response, error) {
			return shown(a.Control.Discard(ctx, r.namespace, body))
		}),
	}
}

// auditOperation lists who changed what, or exports it to a client that asks for that.
func (a *api) auditOperation() operation {
	return a.orElse(list(a, openapi.Operation{
		ID: "listAudit", Method: "GET", Path: apiPath + "/audit", Group: groupAudit, Permission: auth.Read, Summary: "List or export changes", Errors: []int{notFound},
		Doc: "Who changed what, the latest first: an entry for every request that changed something, written in the same transaction. What nodes do by themselves, pings and requests of workers have none. " +
			"A page may be short, or empty, and still be followed by others. With `Accept: application/x-ndjson` all entries that match are sent, one per line.",
	}, func(ctx context.Context, r *request, f belfry.AuditFilter, p store.Page) ([]belfry.AuditEntry, store.Position, error) {
		if err := mayList(ctx, f); err != nil {
			return nil, store.Position{}, err
		}
		return a.Control.ListAudit(ctx, r.namespace, f, p)
	}), openapi.MediaLines, "Or all entries, one per line.", a.exportAudit)
}

// mayList refuses what belongs to other namespaces, or to none, to all but admins of everything.
func mayList(ctx context.Context, f belfry.AuditFilter) error {
	if p := auth.Of(ctx); f.Scope == "" || f.Scope == belfry.AuditNamespace || p.Has(auth.Admin) && p.SeesAll() {
		return nil
	}
	return &httpError{code: belfry.Forbidden, detail: "the scope " + string(f.Scope) + " needs the role admin for all namespaces"}
}

const exportPage = 500

// exportAudit sends pages until there are no more. An error is from before the first; after it a
// failure ends the connection, so that a part is not taken for the whole.
func (a *api) exportAudit(w http.ResponseWriter, r *http.Request, op *openapi.Operation) error {
	var f belfry.AuditFilter
	in, err := readHead(r, op, &f)
	if err == nil {
		err = mayList(r.Context(), f)
	}
	if err != nil {
		return err
	}
	connection, lines := http.NewResponseController(w), json.NewEncoder(w)
	for position, first := in.page.After, true; ; first = false {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		entries, next, err := a.Control.ListAudit(ctx, in.namespace, f, store.Page{After: position, Limit: exportPage})
		if cancel(); err != nil && first {
			return err
		}
		if first {
			w.Header().Set("Content-Type", openapi.MediaLines)
		}
		connection.SetWriteDeadline(time.Now().Add(requestTimeout))
		for i := range entries {
			if err == nil {
				err = lines.Encode(&entries[i])
			}
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		if position = next; position == (store.Position{}) {
			return nil
		}
		extendDeadlines(w, 2*requestTimeout)
	}
}

const (
	keepAliveInterval = 15 * time.Second // between two signs of life of a stream
	streamTimeout     = 10 * time.Second // of a write to it
)

// eventsOperation lists events, or streams them to a client that asks for that.
func (a *api) eventsOperation() operation {
	return a.orElse(list(a, openapi.Operation{
		ID: "listEvents", Method: "GET", Path: apiPath + "/events", Group: groupEvents, Permission: auth.Read, Summary: "List or watch events", Headers: []string{lastEventHeader}, Errors: []int{notFound},
		Doc: "What operators should know, such as runs that died, jobs that began to fail, and nodes that were lost, the latest first. " +
			"With `Accept: text/event-stream` they are sent as they happen, as server-sent events whose data is an `Event`, until the client disconnects: those that are recorded from now on, or after `Last-Event-ID`, which an `EventSource` sends when it reconnects. " +
			"After a reconnection some of the last half a minute may come again, with the same ids.",
	}, inNamespace(a.Control.ListEvents)), openapi.MediaEvents, "Or a stream of events.", a.streamEvents)
}

// orElse gives an operation another answer, for clients that ask for its media type.
func (a *api) orElse(op operation, media, doc string, other func(http.ResponseWriter, *http.Request, *openapi.Operation) error) operation {
	op.Responses = append(op.Responses, openapi.Response{Status: http.StatusOK, Doc: doc, Media: media})
	usual := op.handler
	op.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !accepts(r, media) {
			usual.ServeHTTP(w, r)
		} else if err := other(w, r, &op.Operation); err != nil {
			a.fail(w, r, err)
		}
	})
	return op
}

func accepts(r *http.Request, want string) bool {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		if media, _, _ := mime.ParseMediaType(part); media == want {
			return true
		}
	}
	return false
}

// streamEvents sends events until the client is gone or the node shuts down. An error is
// from before the stream began.
func (a *api) streamEvents(w http.ResponseWriter, r *http.Request, op *openapi.Operation) error {
	var filter belfry.EventFilter
	in, err := readHead(r, op, &filter)
	if err != nil {
		return err
	}
	var last belfry.ID
	if text := r.Header.Get(lastEventHeader); text != "" {
		if last, err = belfry.ParseID(text); err != nil {
			return badParameters(belfry.FieldError{Field: lastEventHeader, Message: "must be the id of the last event that you got"})
		}
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer a.cancelAtEnd(r, cancel)()
	watch, err := a.Control.WatchEvents(ctx, in.namespace, filter, last)
	if err != nil {
		return err
	}
	defer watch.Close()
	setHeaders(w, map[string]string{"Content-Type": openapi.MediaEvents, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}) // which proxies are not to collect
	connection := http.NewResponseController(w)
	connection.SetReadDeadline(time.Time{})
	for text := "retry: 2000\n\n"; ; {
		connection.SetWriteDeadline(time.Now().Add(streamTimeout))
		if _, err := fmt.Fprint(w, text); err != nil || connection.Flush() != nil {
			return nil
		}
		wait, stop := context.WithTimeout(ctx, keepAliveInterval)
		event, err := watch.Next(wait)
		stop()
		switch {
		case err == nil:
			data, _ := json.Marshal(event) // An event has a JSON form.
			text = fmt.Sprintf("id: %s\ndata: %s\n\n", event.ID, data)
		case ctx.Err() != nil || errors.Is(err, control.ErrComeBack):
			return nil
		default:
			text = ": nothing happened\n\n"
		}
	}
}
