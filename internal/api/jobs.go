package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

const jobsPath = "/api/v1/jobs"

// creation is a job to be made, and what was wrong with its JSON.
type creation struct {
	namespace string
	draft     control.Draft
	faults    []belfry.Fault
}

func readCreation(r *http.Request) (in creation, err error) {
	if _, err := parameters(r); err != nil {
		return in, err
	}
	if in.namespace, err = readNamespace(r); err != nil {
		return in, err
	}
	body, err := readBody(r)
	if err != nil {
		return in, err
	}
	in.draft, in.faults, err = readDraft(body)
	return in, err
}

func (a *api) createJob(ctx context.Context, in creation) (answer, error) {
	if len(in.faults) > 0 {
		return answer{}, &belfry.Error{
			Code:    belfry.Invalid,
			Message: "the job is not valid",
			Faults:  merge(in.faults, a.control.Check(in.draft)),
		}
	}
	job, err := a.control.Create(ctx, in.namespace, in.draft)
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusCreated, location: jobsPath + "/" + job.ID.String(), body: shown(job)}, nil
}

// merge adds faults of fields that have none yet.
func merge(faults, more []belfry.Fault) []belfry.Fault {
	merged := slices.Clone(faults)
	for _, f := range more {
		if !slices.ContainsFunc(faults, func(g belfry.Fault) bool { return g.Field == f.Field }) {
			merged = append(merged, f)
		}
	}
	return merged
}

// shown is a job without its secrets.
func shown(job belfry.Job) belfry.Job {
	if len(job.Payload) > 0 {
		job.Payload = belfry.Mask(job.Payload)
	}
	return job
}

// jobList is a page of jobs.
type jobList struct {
	namespace string
	page      control.Page
}

func readJobList(r *http.Request) (in jobList, err error) {
	if in.namespace, err = readNamespace(r); err != nil {
		return in, err
	}
	in.page.Limit, err = readList(r, func(cursor string) error { return readJobCursor(cursor, &in.page) })
	return in, err
}

func (a *api) listJobs(ctx context.Context, in jobList) (answer, error) {
	limit := in.page.Limit
	in.page.Limit++ // One more tells whether there is a next page.
	jobs, err := a.control.List(ctx, in.namespace, in.page)
	if err != nil {
		return answer{}, err
	}
	out := answer{status: http.StatusOK}
	if len(jobs) > limit {
		jobs = jobs[:limit]
		out.next = nextPage(jobsPath, jobsAfter(jobs[limit-1]), limit)
	}
	list := make([]belfry.Job, len(jobs))
	for i, job := range jobs {
		list[i] = shown(job)
	}
	out.body = list
	return out, nil
}

func (a *api) getJob(ctx context.Context, in target) (answer, error) {
	job, err := a.control.Get(ctx, in.namespace, in.id)
	return answer{status: http.StatusOK, body: shown(job)}, err
}

// change is what is to become of a job.
type change struct {
	target
	pause bool // or else resume
}

func readChange(r *http.Request) (in change, err error) {
	if in.target, err = readJob(r); err != nil {
		return in, err
	}
	body, err := readBody(r)
	if err != nil {
		return in, err
	}
	in.pause, err = readStatus(body)
	return in, err
}

// readStatus reads the wish for a pause or its end, in any case.
func readStatus(body []byte) (pause bool, err error) {
	o, err := readObject(body)
	if err != nil {
		return false, err
	}
	var status string
	o.text("status", &status)
	o.hints = notEdited
	faults := o.finish()
	switch strings.ToLower(status) {
	case "paused":
		pause = true
	case "scheduled", "active", "resumed":
	default:
		if len(faults) == 0 {
			faults = []belfry.Fault{{Field: "status", Message: `must be "paused", or "scheduled" to go on`}}
		}
	}
	if len(faults) > 0 {
		return false, &belfry.Error{Code: belfry.Invalid, Message: "the change is not valid", Faults: faults}
	}
	return pause, nil
}

func (a *api) changeJob(ctx context.Context, in change) (answer, error) {
	edit := a.control.Resume
	if in.pause {
		edit = a.control.Pause
	}
	job, err := edit(ctx, in.namespace, in.id)
	return answer{status: http.StatusOK, body: shown(job)}, err
}

func (a *api) deleteJob(ctx context.Context, in target) (answer, error) {
	return answer{status: http.StatusNoContent}, a.control.Delete(ctx, in.namespace, in.id)
}
