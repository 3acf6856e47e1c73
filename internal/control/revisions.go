package control

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/secret"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/validate"
)

// Revisions returns the revisions of a job, the current one first. The At of a position
// is the number of a revision as microseconds of Unix time.
func (c *Control) Revisions(ctx context.Context, namespace, ref string, p store.Page) ([]belfry.Revision, store.Position, error) {
	id, err := c.resolve(ctx, namespace, ref)
	if err != nil {
		return nil, store.Position{}, err
	}
	var list []belfry.Revision
	var before int
	if p.After.At.IsZero() {
		job, err := c.read.Job(ctx, namespace, id)
		if err != nil {
			return nil, store.Position{}, err
		}
		list, before = []belfry.Revision{{Number: job.Revision, Spec: job.Spec, Payload: job.Payload}}, job.Revision
	} else {
		before = int(p.After.At.UnixMicro())
	}
	earlier, err := c.read.Revisions(ctx, namespace, id, before, p.Limit+1-len(list))
	if err != nil {
		return nil, store.Position{}, err
	}
	list, next := cutPage(append(list, earlier...), p.Limit, func(r belfry.Revision) store.Position {
		return store.Position{At: time.UnixMicro(int64(r.Number))}
	})
	for i := range list {
		list[i].Payload = secret.Mask(list[i].Payload)
	}
	return list, next, nil
}

// Rollback gives a job the spec and payload of an earlier revision, as a new revision.
// It is an edit like any other: a one-off that has passed is refused. The revision that
// the job has changes nothing; NotFound if it never had it.
func (c *Control) Rollback(ctx context.Context, namespace, ref string, r belfry.Rollback) (belfry.Job, error) {
	job, err := c.job(ctx, namespace, ref)
	if err != nil || job.Revision == r.Revision {
		return masked(job), err
	}
	earlier, err := c.read.Revisions(ctx, namespace, job.ID, r.Revision+1, 1)
	if err != nil {
		return belfry.Job{}, err
	}
	if len(earlier) == 0 || earlier[0].Number != r.Revision {
		return belfry.Job{}, belfry.Errorf(belfry.NotFound, "the job has no revision %d; it is at revision %d", r.Revision, job.Revision)
	}
	return c.patchJob(ctx, "roll back a job", namespace, job.ID.String(), "", func(current belfry.Manifest) validate.Input {
		current.Spec, current.Payload = earlier[0].Spec, earlier[0].Payload
		return validate.Input{Manifest: current}
	}, nil)
}
