package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

const actionsPath = jobsPath + "/actions"

// maxActed is how many jobs one request may do something to. Package control holds
// an order to it.
const maxActed = 10_000

// jobFilter describes what jobs have in common.
type jobFilter struct {
	Status  belfry.JobStatus `json:"status,omitempty"`
	Type    string           `json:"type,omitempty"`
	Handler string           `json:"handler,omitempty"`
	Queue   string           `json:"queue,omitempty"`
	Tags    []string         `json:"tags,omitempty"`
	Search  string           `json:"search,omitempty"`
}

// actionOrder describes the body of an order about many jobs.
type actionOrder struct {
	Action belfry.Action `json:"action"`
	Filter jobFilter     `json:"filter,omitzero"`
	All    bool          `json:"all,omitempty"`
	DryRun bool          `json:"dry_run,omitempty"`
	Limit  int           `json:"limit,omitempty"`
	Cursor string        `json:"cursor,omitempty"`
}

// action is something that is done to all jobs that pass a filter.
type action struct {
	list
	order control.BulkOrder
}

func readAction(r *http.Request) (in action, err error) {
	if _, err := parameters(r); err != nil {
		return in, err
	}
	if in.namespace, err = readNamespace(r); err != nil {
		return in, err
	}
	if in.order.Key.Text, err = readKey(r); err != nil {
		return in, err
	}
	body, err := readBody(r)
	if err != nil {
		return in, err
	}
	o, f := readObject(body, fieldsFor[actionOrder]())
	if f != nil {
		return in, f.refusal()
	}
	in.order.Key.Hash = fingerprint("POST "+actionsPath, "", body)
	takeAction(o, &in)
	return in, invalid("the order is not valid", o.finish())
}

func takeAction(o *object, in *action) {
	actions := texts(belfry.Actions)
	before := len(o.faults)
	o.oneOf("action", (*string)(&in.order.Action), actions...)
	if in.order.Action == "" && len(o.faults) == before {
		o.fault("action", "is missing; it must be one of %s", strings.Join(actions, ", "))
	}
	before = len(o.faults)
	o.inner("filter", fieldsFor[jobFilter](), func(inner *object) { takeJobFilter(inner, &in.order.Filter) })
	o.truth("all", &in.order.All)
	if filterText(in.order.Filter) == filterText(control.JobFilter{}) && !in.order.All && len(o.faults) == before {
		o.fault("filter", `is empty; say what the jobs have in common, or "all": true to mean every job of the namespace`)
	}
	o.truth("dry_run", &in.order.DryRun)
	o.limit("limit", &in.order.Limit, maxActed)
	in.form, in.path = actionCursor, actionsPath
	in.filter = string(in.order.Action) + " " + filterText(in.order.Filter)
	var cursor string
	if o.text("cursor", &cursor, ""); cursor != "" {
		var page control.Page
		switch err := in.readAfter(cursor, &page); err {
		case nil:
		case errCursor:
			o.fault("cursor", "is not one of an action; take it from next of the answer before")
		case errOffCursor:
			o.fault("cursor", "belongs to another action or filter; repeat those of the answer before, or leave it out to begin anew")
		default:
			o.fault("cursor", "%s", err)
		}
		in.order.After = page.After
	}
}

// takeJobFilter takes what jobs have in common, by the rules of the list of jobs.
func takeJobFilter(o *object, f *control.JobFilter) {
	o.oneOf("status", (*string)(&f.Status), texts(jobStatuses)...)
	o.oneOf("type", &f.Type, belfry.TypeHTTP, belfry.TypeWorker)
	o.words("handler", &f.Handler)
	o.words("queue", &f.Queue)
	o.words("search", &f.Search)
	var tags []string
	o.texts("tags", &tags)
	for _, tag := range tags {
		if problem := checkWords(tag); problem != "" {
			o.fault(o.within+"tags", "has a tag that %s", problem)
		}
	}
	f.Tags = distinct(tags)
	if len(f.Tags) > maxTagFilter {
		o.fault(o.within+"tags", "has %d tags, the most is %d", len(f.Tags), maxTagFilter)
	}
}

// acted is what came of an order about many jobs.
type acted struct {
	Matched int             `json:"matched"`
	Done    int             `json:"done"`
	Failed  []actionFailure `json:"failed"`
	Next    string          `json:"next,omitempty"`
}

// actionFailure is a job for which it failed.
type actionFailure struct {
	JobID belfry.ID `json:"job_id"`
	Name  string    `json:"name,omitempty"`
	Error string    `json:"error"`
}

func (a *api) act(ctx context.Context, in action) (answer, error) {
	done, err := a.control.Bulk(ctx, in.namespace, in.order)
	if err != nil {
		return answer{}, err
	}
	out := acted{Matched: done.Matched, Done: done.Done, Failed: make([]actionFailure, len(done.Failed))}
	for i, f := range done.Failed {
		told := tell(f.Err)
		if told.status >= http.StatusInternalServerError {
			a.log.Warn("an action failed for a job", "action", in.order.Action, "job", f.Job, "error", f.Err)
		}
		out.Failed[i] = actionFailure{f.Job, f.Name, told.sentence()}
	}
	if !done.Next.IsZero() {
		out.Next = in.after(done.Next)
	}
	return answer{status: http.StatusOK, body: out}, nil
}
