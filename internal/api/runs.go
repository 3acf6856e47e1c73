package api

import (
	"context"
	"net/http"
	"net/url"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

// shownRun is a run with the key that its target was given.
type shownRun struct {
	belfry.Run
	IdempotencyKey string `json:"idempotency_key"`
	Note           string `json:"note,omitempty"` // of one that is asked for alone
}

func showRun(run belfry.Run) shownRun {
	return shownRun{Run: run, IdempotencyKey: run.IdempotencyKey()}
}

func showRuns(runs []belfry.Run) []shownRun {
	list := make([]shownRun, len(runs))
	for i, run := range runs {
		list[i] = showRun(run)
	}
	return list
}

func (a *api) getRun(ctx context.Context, in target) (answer, error) {
	id, err := runID(in, "run")
	if err != nil {
		return answer{}, err
	}
	run, err := a.control.Run(ctx, in.namespace, id)
	if err != nil {
		return answer{}, err
	}
	out := showRun(run)
	out.Note = a.control.Note(ctx, run)
	return answer{status: http.StatusOK, body: out}, nil
}

// runList is a page of the runs of a job.
type runList struct {
	target
	list
	query url.Values
	page  control.RunPage
}

func readRunList(r *http.Request) (runList, error) { return readRunsUnder(r, "runs") }
func readHistory(r *http.Request) (runList, error) { return readRunsUnder(r, "history") }

func readRunsUnder(r *http.Request, name string) (in runList, err error) {
	if in.target, err = parseTarget(r); err != nil {
		return in, err
	}
	p, err := pagingOf(r, "limit", "cursor")
	if err != nil {
		return in, err
	}
	in.query = p.query
	in.list = list{form: jobRunCursor, path: jobPath(in.ref, name), namespace: in.target.namespace}
	in.page.Limit = p.limit()
	p.cursor(func(text string) error { return in.readBefore(text, &in.page) })
	return in, p.err()
}

// runsOf gives a page of the runs of a job and where they go on.
func (a *api) runsOf(ctx context.Context, id belfry.ID, in runList) ([]shownRun, string, error) {
	limit := in.page.Limit
	in.page.Limit++ // One more tells whether there is a next page.
	runs, err := a.control.Runs(ctx, in.target.namespace, id, in.page)
	if err != nil {
		return nil, "", err
	}
	next := ""
	if len(runs) > limit {
		runs = runs[:limit]
		next = nextPage(in.path, in.query, in.before(runs[limit-1]))
	}
	return showRuns(runs), next, nil
}

func (a *api) listRuns(ctx context.Context, in runList) (answer, error) {
	id, err := a.find(ctx, in.target)
	if err != nil {
		return answer{}, err
	}
	runs, next, err := a.runsOf(ctx, id, in)
	return answer{status: http.StatusOK, next: next, body: runs}, err
}

// history is a job with what became of it.
type history struct {
	belfry.Job
	Executions []shownRun `json:"executions"`
}

func (a *api) jobHistory(ctx context.Context, in runList) (answer, error) {
	id, err := a.find(ctx, in.target)
	if err != nil {
		return answer{}, err
	}
	job, err := a.control.Get(ctx, in.target.namespace, id)
	if err != nil {
		return answer{}, err
	}
	runs, next, err := a.runsOf(ctx, id, in)
	return answer{status: http.StatusOK, next: next, body: history{masked(job), runs}}, err
}
