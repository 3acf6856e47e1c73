package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

const jobsPath = "/api/v1/jobs"

// creation is a job to be made, and what was wrong with its JSON.
type creation struct {
	namespace string
	draft     control.Draft
	faults    []belfry.FieldError
	key       control.Key
}

func readCreation(r *http.Request) (in creation, err error) {
	if _, err := parameters(r); err != nil {
		return in, err
	}
	if in.namespace, err = readNamespace(r); err != nil {
		return in, err
	}
	if in.key.Text, err = readKey(r); err != nil {
		return in, err
	}
	body, err := readBody(r)
	if err != nil {
		return in, err
	}
	var f *flaw
	if in.draft, in.faults, f = readDraft(body, in.namespace, false); f != nil {
		return in, f.refusal()
	}
	if in.key.Text != "" {
		in.key.Hash = fingerprint("POST "+jobsPath, "", body)
	}
	return in, nil
}

// fingerprint is the same for requests that ask for the same: an operation, the id
// of what it is about, and a body of JSON whatever its blanks.
func fingerprint(operation, id string, body []byte) (sum [32]byte) {
	var compact bytes.Buffer
	if json.Compact(&compact, body) == nil {
		body = compact.Bytes()
	}
	h := sha256.New()
	fmt.Fprintf(h, "%q %q\n", operation, id)
	h.Write(body)
	h.Sum(sum[:0])
	return sum
}

func (a *api) createJob(ctx context.Context, in creation) (answer, error) {
	if err := a.verify(in.draft, in.faults); err != nil {
		return answer{}, err
	}
	job, err := a.control.Create(ctx, in.namespace, in.draft, in.key)
	if err != nil {
		return answer{}, err
	}
	out := shown(job)
	out.status, out.location = http.StatusCreated, jobPath(job.ID.String())
	return out, nil
}

// verify tells everything that is wrong with a job of which the JSON is wrong
// already.
func (a *api) verify(d control.Draft, faults []belfry.FieldError) error {
	if len(faults) == 0 {
		return nil
	}
	return &belfry.Error{Code: belfry.Invalid, Message: "the job is not valid", Fields: merge(faults, a.control.Check(d))}
}

// merge adds faults of fields that have none yet.
func merge(faults, more []belfry.FieldError) []belfry.FieldError {
	merged := slices.Clone(faults)
	for _, f := range more {
		if !slices.ContainsFunc(faults, func(g belfry.FieldError) bool { return g.Field == f.Field }) {
			merged = append(merged, f)
		}
	}
	return merged
}

// shown is the answer that a job is.
func shown(job belfry.Job) answer {
	return answer{status: http.StatusOK, etag: control.Version(job), body: masked(job)}
}

// masked is a job without its secrets.
func masked(job belfry.Job) belfry.Job {
	job.Payload = secret.Mask(job.Payload)
	return job
}

func (a *api) getJob(ctx context.Context, in target) (answer, error) {
	id, err := a.find(ctx, in)
	if err != nil {
		return answer{}, err
	}
	job, err := a.control.Get(ctx, in.namespace, id)
	return shown(job), err
}

// conditional is a job that a request changes if it is still as it was seen.
type conditional struct {
	target
	condition
}

func readConditional(r *http.Request) (in conditional, err error) {
	if in.target, err = readTarget(r); err != nil {
		return in, err
	}
	in.condition, err = readCondition(r)
	return in, err
}

// locate gives the id of the job and the version that it must have.
func (a *api) locate(ctx context.Context, in conditional) (id belfry.ID, match string, err error) {
	if id, err = a.find(ctx, in.target); err != nil {
		return id, "", err
	}
	match, err = a.match(ctx, in.namespace, id, in.condition)
	return id, match, err
}

// change is what is to become of a job.
type change struct {
	conditional
	patch control.Patch
}

func readChange(r *http.Request) (in change, err error) {
	if in.conditional, err = readConditional(r); err != nil {
		return in, err
	}
	body, err := readBody(r)
	if err != nil {
		return in, err
	}
	patch, faults, f := readPatch(body, in.namespace)
	if f != nil {
		return in, f.refusal()
	}
	// What the JSON is wrong about is told together with what the change is.
	in.patch = func(d *control.Draft) []belfry.FieldError { return merge(faults, patch(d)) }
	return in, nil
}

func (a *api) changeJob(ctx context.Context, in change) (answer, error) {
	id, match, err := a.locate(ctx, in.conditional)
	if err != nil {
		return answer{}, err
	}
	job, err := a.control.Edit(ctx, in.namespace, id, match, in.patch)
	return shown(job), err
}

// replacement is a job that takes the place of another, or of none.
type replacement struct {
	conditional
	draft  control.Draft
	faults []belfry.FieldError
}

func readReplacement(r *http.Request) (in replacement, err error) {
	if in.conditional, err = readConditional(r); err != nil {
		return in, err
	}
	body, err := readBody(r)
	if err != nil {
		return in, err
	}
	var f *flaw
	if in.draft, in.faults, f = readDraft(body, in.namespace, true); f != nil {
		return in, f.refusal()
	}
	return in, nil
}

func (a *api) putJob(ctx context.Context, in replacement) (answer, error) {
	if _, err := belfry.ParseID(in.ref); err == nil {
		return a.replaceJob(ctx, in)
	}
	if in.draft.Name == "" {
		in.draft.Name = in.ref
	} else if in.draft.Name != in.ref {
		in.faults = append(in.faults, belfry.FieldError{
			Field:   "name",
			Message: "is not the name in the address; leave it out, or rename the job with PATCH",
		})
	}
	if in.any { // Only a job that is there may be replaced.
		out, err := a.replaceJob(ctx, in)
		if belfry.CodeOf(err) == belfry.NotFound {
			err = notAsSeen()
		}
		return out, err
	}
	if err := a.verify(in.draft, in.faults); err != nil {
		return answer{}, err
	}
	match, err := a.matchNamed(ctx, in.conditional)
	if err != nil {
		return answer{}, err
	}
	job, made, err := a.control.Put(ctx, in.namespace, in.ref, match, in.draft)
	if err != nil {
		return answer{}, err
	}
	out := shown(job)
	if made {
		out.status, out.location = http.StatusCreated, jobPath(job.ID.String())
	}
	return out, nil
}

// matchNamed gives the version that a job which may not be there must have.
func (a *api) matchNamed(ctx context.Context, in conditional) (string, error) {
	if !in.given {
		return "", nil
	}
	_, match, err := a.locate(ctx, in)
	if belfry.CodeOf(err) == belfry.NotFound {
		return "", notAsSeen()
	}
	return match, err
}

// replaceJob replaces a job that must be there.
func (a *api) replaceJob(ctx context.Context, in replacement) (answer, error) {
	if err := a.verify(in.draft, in.faults); err != nil {
		return answer{}, err
	}
	id, match, err := a.locate(ctx, in.conditional)
	if err != nil {
		return answer{}, err
	}
	job, err := a.control.Replace(ctx, in.namespace, id, match, in.draft)
	return shown(job), err
}
