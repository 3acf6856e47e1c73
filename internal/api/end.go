package api

import (
	"context"
	"net/http"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

// What may become of the runs and of the history of a job that is deleted. The
// first is the usual.
var (
	runsAfter    = []string{"finish", "cancel"}
	historyAfter = []string{"keep", "delete"}
)

// deletion is a job that is to go, and what goes with it.
type deletion struct {
	conditional
	options control.DeleteOptions
}

func readDeletion(r *http.Request) (in deletion, err error) {
	if in.target, err = parseTarget(r); err != nil {
		return in, err
	}
	p, err := pagingOf(r, "runs", "history")
	if err != nil {
		return in, err
	}
	in.options.CancelRuns = oneOf(&p, "runs", runsAfter...) == "cancel"
	in.options.ForgetHistory = oneOf(&p, "history", historyAfter...) == "delete"
	if err := p.err(); err != nil {
		return in, err
	}
	in.condition, err = readCondition(r)
	return in, err
}

func (a *api) deleteJob(ctx context.Context, in deletion) (answer, error) {
	id, match, err := a.locate(ctx, in.conditional)
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusNoContent}, a.control.Delete(ctx, in.namespace, id, match, in.options)
}

// cancelJob plans nothing more for a job and cancels what is left of it.
func (a *api) cancelJob(ctx context.Context, in target) (answer, error) {
	return a.switchJob(ctx, in, a.control.CancelJob)
}

// runID reads the id of the run that a request is about.
func runID(in target, what string) (belfry.ID, error) {
	id, err := belfry.ParseID(in.ref)
	if err != nil {
		return id, belfry.Errorf(belfry.NotFound, "there is no %s %.40q; runs have ids only", what, in.ref)
	}
	return id, nil
}

// cancelRun ends a run. One that a worker holds is over when the worker has let go
// of it.
func (a *api) cancelRun(ctx context.Context, in target) (answer, error) {
	id, err := runID(in, "run")
	if err != nil {
		return answer{}, err
	}
	run, err := a.control.CancelRun(ctx, in.namespace, id)
	if err != nil {
		return answer{}, err
	}
	status := http.StatusAccepted
	if run.Status == belfry.RunCancelled {
		status = http.StatusOK
	}
	return answer{status: status, body: showRun(run)}, nil
}
