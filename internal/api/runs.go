package api

import (
	"bytes"
	"context"
	"net/http"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

const runsPath = "/api/v1/runs"

// readTrigger takes no more than an empty object: a run now is all that can be
// asked for.
func readTrigger(r *http.Request) (target, error) {
	in, err := readJob(r)
	if err != nil {
		return in, err
	}
	body, err := readBody(r)
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return in, err
	}
	o, err := readObject(body)
	if err != nil {
		return in, err
	}
	for _, name := range o.names {
		o.fault(clip(name), "is not known; a trigger takes nothing")
	}
	if len(o.faults) > 0 {
		return in, &belfry.Error{Code: belfry.Invalid, Message: "the trigger is not valid", Faults: o.faults}
	}
	return in, nil
}

// triggered names the run that a trigger becomes.
type triggered struct {
	RunID belfry.ID `json:"run_id"`
}

func (a *api) triggerJob(ctx context.Context, in target) (answer, error) {
	run, err := a.control.Trigger(ctx, in.namespace, in.id)
	return answer{status: http.StatusAccepted, location: runsPath + "/" + run.String(), body: triggered{run}}, err
}

// shownRun is a run with the key that its target was given.
type shownRun struct {
	belfry.Run
	IdempotencyKey string `json:"idempotency_key"`
}

func showRun(run belfry.Run) shownRun { return shownRun{run, run.IdempotencyKey()} }

func (a *api) getRun(ctx context.Context, in target) (answer, error) {
	run, err := a.control.Run(ctx, in.namespace, in.id)
	return answer{status: http.StatusOK, body: showRun(run)}, err
}

// runList is a page of the runs of a job.
type runList struct {
	target
	page control.RunPage
}

func readRunList(r *http.Request) (in runList, err error) {
	if in.target, err = parseTarget(r, "job"); err != nil {
		return in, err
	}
	in.page.Limit, err = readList(r, func(cursor string) error { return readRunCursor(cursor, &in.page) })
	return in, err
}

func (a *api) listRuns(ctx context.Context, in runList) (answer, error) {
	limit := in.page.Limit
	in.page.Limit++ // One more tells whether there is a next page.
	runs, err := a.control.Runs(ctx, in.namespace, in.id, in.page)
	if err != nil {
		return answer{}, err
	}
	out := answer{status: http.StatusOK}
	if len(runs) > limit {
		runs = runs[:limit]
		out.next = nextPage(jobsPath+"/"+in.id.String()+"/runs", runsAfter(runs[limit-1]), limit)
	}
	list := make([]shownRun, len(runs))
	for i, run := range runs {
		list[i] = showRun(run)
	}
	out.body = list
	return out, nil
}
