package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/belfry-sh/belfry"
)

// revision is what a job was until it was edited, or is.
type revision struct {
	Revision   int        `json:"revision"`
	ReplacedAt *time.Time `json:"replaced_at"` // nil: it is the current one
	belfry.Spec
	Payload json.RawMessage `json:"payload,omitempty"`
}

// revisionList is a page of the revisions of a job.
type revisionList struct {
	target
	list
	query  url.Values
	before int
	limit  int
}

func readRevisionList(r *http.Request) (in revisionList, err error) {
	if in.target, err = parseTarget(r); err != nil {
		return in, err
	}
	p, err := pagingOf(r, "limit", "cursor")
	if err != nil {
		return in, err
	}
	in.query = p.query
	in.list = list{form: revisionCursor, path: jobPath(in.ref, "revisions"), namespace: in.target.namespace}
	in.limit = p.limit()
	p.cursor(func(text string) error { return in.readBelow(text, &in.before) })
	return in, p.err()
}

func (a *api) listRevisions(ctx context.Context, in revisionList) (answer, error) {
	id, err := a.find(ctx, in.target)
	if err != nil {
		return answer{}, err
	}
	var shown []revision
	before := in.before
	if before == 0 { // The first is what the job is now.
		job, err := a.control.Get(ctx, in.target.namespace, id)
		if err != nil {
			return answer{}, err
		}
		shown = append(shown, revision{Revision: job.Revision, Spec: job.Spec, Payload: secret.Mask(job.Payload)})
		before = job.Revision
	}
	room := in.limit - len(shown)
	earlier, err := a.control.Revisions(ctx, in.target.namespace, id, before, room+1) // One more tells whether there is a next page.
	if err != nil {
		return answer{}, err
	}
	for _, r := range earlier[:min(len(earlier), room)] {
		shown = append(shown, revision{Revision: r.Number, ReplacedAt: &r.ReplacedAt, Spec: r.Spec, Payload: secret.Mask(r.Payload)})
	}
	out := answer{status: http.StatusOK, body: append([]revision{}, shown...)} // never null
	if len(earlier) > room {
		out.next = nextPage(in.path, in.query, in.below(shown[len(shown)-1].Revision))
	}
	return out, nil
}

// rollback is the body of a wish for an earlier revision.
type rollback struct {
	Revision int `json:"revision"`
}

type rollbackOf struct {
	target
	rollback
}

func readRollback(r *http.Request) (in rollbackOf, err error) {
	if in.target, err = readTarget(r); err != nil {
		return in, err
	}
	body, err := readBody(r)
	if err != nil {
		return in, err
	}
	o, f := readObject(body, fieldsFor[rollback]())
	if f != nil {
		return in, f.refusal()
	}
	o.whole("revision", &in.Revision, 0)
	faults := o.finish()
	if len(faults) == 0 && in.Revision < 1 {
		faults = []belfry.FieldError{{Field: "revision", Message: "must be the number of a revision, 1 or more"}}
	}
	return in, invalid("the rollback is not valid", faults)
}

func (a *api) rollBack(ctx context.Context, in rollbackOf) (answer, error) {
	id, err := a.find(ctx, in.target)
	if err != nil {
		return answer{}, err
	}
	job, err := a.control.Rollback(ctx, in.namespace, id, in.Revision)
	return shown(job), err
}
