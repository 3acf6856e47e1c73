package control

import (
	"context"
	"strings"

	"github.com/belfry-sh/belfry"
)

// putTries bounds how often Put starts again because somebody else made or deleted
// a job of the same name meanwhile.
const putTries = 5

// Put makes the job of a name what a draft says: it creates the job if there is
// none, or only one that has ended, and tells whether it did, or else does as
// Replace. The draft's own name must be empty or the same. With a match there must
// be a job.
func (c *Control) Put(ctx context.Context, namespace, name, match string, d Draft) (job belfry.Job, made bool, err error) {
	name = strings.TrimSpace(name)
	var faults []belfry.FieldError
	if own := strings.TrimSpace(d.Name); own != "" && own != name {
		faults = []belfry.FieldError{{Field: "name", Message: "is not that of the job that is put; leave it out"}}
	}
	d.Name = name
	if name == "" {
		faults = []belfry.FieldError{{Field: "name", Message: "must not be blank"}}
	}
	if name == "" || checkName(name) != "" {
		return belfry.Job{}, false, refused(merge(faults, c.Check(d)))
	}
	for range putTries {
		job, made, err = c.put(ctx, namespace, match, d, faults)
		// It went away while it was replaced, or came while it was made.
		if code := belfry.CodeOf(err); err == nil || code != belfry.NotFound && code != belfry.Conflict {
			break
		}
	}
	return job, made, err
}

func (c *Control) put(ctx context.Context, namespace, match string, d Draft, faults []belfry.FieldError) (belfry.Job, bool, error) {
	id, err := c.named(ctx, namespace, d.Name)
	switch {
	case err == nil:
		job, err := c.patch(ctx, "replace a job by its name", namespace, id, match, replacement(d, faults))
		if belfry.CodeOf(err) != belfry.Conflict || !c.ended(ctx, namespace, id) {
			return job, false, err
		}
	case belfry.CodeOf(err) != belfry.NotFound:
		return belfry.Job{}, false, err
	}
	// There is none, or one that has ended and does not need its name any more.
	switch {
	case match != "":
		return belfry.Job{}, false, belfry.Errorf(belfry.Changed, "there is no job named %q any more", d.Name)
	case len(faults) > 0:
		return belfry.Job{}, false, refused(merge(faults, c.Check(d)))
	}
	job, err := c.Create(ctx, namespace, d, Key{})
	return job, err == nil, err
}

// ended tells whether a job has left the live tables.
func (c *Control) ended(ctx context.Context, namespace string, id belfry.ID) bool {
	job, err := c.Get(ctx, namespace, id)
	return err == nil && job.State == belfry.JobEnded
}
