package api

import (
	"context"
	"net/http"
	"net/url"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

const runsPath = "/api/v1/runs"

// jobList is a page of jobs.
type jobList struct {
	list
	query  url.Values
	filter control.JobFilter
	page   control.Page
}

func readJobList(r *http.Request) (in jobList, err error) {
	namespace, err := readNamespace(r)
	if err != nil {
		return in, err
	}
	p, err := pagingOf(r, "status", "type", "handler", "queue", "tag...", "search", "limit", "cursor")
	if err != nil {
		return in, err
	}
	in.query, in.filter = p.query, p.readJobFilter()
	in.list = list{form: jobCursor, path: jobsPath, namespace: namespace, filter: filterText(in.filter)}
	in.page.Limit = p.limit()
	p.cursor(func(text string) error { return in.readAfter(text, &in.page) })
	return in, p.err()
}

func (a *api) listJobs(ctx context.Context, in jobList) (answer, error) {
	found, err := a.control.List(ctx, in.namespace, in.filter, in.page)
	if err != nil {
		return answer{}, err
	}
	out := answer{status: http.StatusOK}
	if !found.Next.IsZero() {
		out.next = nextPage(jobsPath, in.query, in.after(found.Next))
	}
	jobs := make([]belfry.Job, len(found.Jobs))
	for i, job := range found.Jobs {
		jobs[i] = masked(job)
	}
	out.body = jobs
	return out, nil
}

// allRuns is a page of the runs of all jobs.
type allRuns struct {
	list
	query  url.Values
	filter control.RunFilter
	page   control.Page
}

// runStates are those that a run may be in.
var runStates = []belfry.RunStatus{
	belfry.RunReady, belfry.RunRunning, belfry.RunRetry, belfry.RunWaiting,
	belfry.RunSucceeded, belfry.RunDead, belfry.RunSkipped, belfry.RunCancelled, belfry.RunDiscarded,
}

func readAllRuns(r *http.Request) (in allRuns, err error) {
	namespace, err := readNamespace(r)
	if err != nil {
		return in, err
	}
	p, err := pagingOf(r, "status", "limit", "cursor")
	if err != nil {
		return in, err
	}
	in.query, in.filter.State = p.query, oneOf(&p, "status", runStates...)
	in.list = list{form: runCursor, path: runsPath, namespace: namespace, filter: string(in.filter.State)}
	in.page.Limit = p.limit()
	p.cursor(func(text string) error { return in.readAfter(text, &in.page) })
	return in, p.err()
}

func (a *api) listAllRuns(ctx context.Context, in allRuns) (answer, error) {
	found, err := a.control.ListRuns(ctx, in.namespace, in.filter, in.page)
	if err != nil {
		return answer{}, err
	}
	out := answer{status: http.StatusOK, body: showRuns(found.Runs)}
	if !found.Next.IsZero() {
		out.next = nextPage(runsPath, in.query, in.after(found.Next))
	}
	return out, nil
}
