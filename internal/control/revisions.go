package control

import (
	"context"

	"github.com/belfry-sh/belfry"
)

// Revisions gives what a job was before its edits, latest first and below the
// given number if that is not zero. What it is now is not among them: that is the
// job itself.
func (c *Control) Revisions(ctx context.Context, namespace string, id belfry.ID, before, limit int) (revisions []Revision, err error) {
	err = insist(ctx, "list the revisions of a job", func() error {
		revisions, err = c.store.Revisions(ctx, namespace, id, before, limit)
		return err
	})
	return revisions, err
}

// Rollback gives a job the spec and payload of an earlier revision, as a new
// revision. It is an Edit like any other: a one-off that is over by now is refused.
// The revision that the job has changes nothing; NotFound if it never had it.
func (c *Control) Rollback(ctx context.Context, namespace string, id belfry.ID, revision int) (belfry.Job, error) {
	job, err := c.Get(ctx, namespace, id)
	if err != nil || job.Revision == revision {
		return job, err
	}
	earlier, err := c.Revisions(ctx, namespace, id, revision+1, 1)
	if err != nil {
		return belfry.Job{}, err
	}
	if len(earlier) == 0 || earlier[0].Number != revision {
		return belfry.Job{}, belfry.Errorf(belfry.NotFound, "the job has no revision %d; it is at revision %d", revision, job.Revision)
	}
	return c.patch(ctx, "roll back a job", namespace, id, "", func(d *Draft) []belfry.FieldError {
		d.Spec, d.Payload = earlier[0].Spec, earlier[0].Payload
		return nil
	})
}
