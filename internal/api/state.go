package api

import (
	"bytes"
	"context"
	"net/http"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

// readBare reads a request about a job that has nothing else to say: no body, or an
// empty object.
func readBare(r *http.Request) (target, error) {
	in, err := readTarget(r)
	if err != nil {
		return in, err
	}
	_, _, err = readSmall(r, nil)
	return in, err
}

// readSmall reads an object that may be left out altogether, and gives it and its
// text.
func readSmall(r *http.Request, known []string) (*object, []byte, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, nil, err
	}
	if len(bytes.TrimSpace(body)) == 0 {
		body = []byte("{}")
	}
	o, f := readObject(body, known)
	if f != nil {
		return nil, nil, f.refusal()
	}
	if len(known) == 0 {
		return o, body, invalid("the request is not valid", o.finish())
	}
	return o, body, nil
}

// invalid is the error of faults, if there are any.
func invalid(message string, faults []belfry.FieldError) error {
	if len(faults) == 0 {
		return nil
	}
	return &belfry.Error{Code: belfry.Invalid, Message: message, Fields: faults}
}

func (a *api) pauseJob(ctx context.Context, in target) (answer, error) {
	return a.switchJob(ctx, in, a.control.Pause)
}

// resumeInput describes the body of a wish to let a job go on.
type resumeInput struct {
	CatchUp bool `json:"catch_up,omitempty"`
}

type resumeOf struct {
	target
	resumeInput
}

func readResume(r *http.Request) (in resumeOf, err error) {
	if in.target, err = parseTarget(r); err != nil {
		return in, err
	}
	p, err := pagingOf(r, "catch_up")
	if err != nil {
		return in, err
	}
	asked, given := p.truth("catch_up")
	if err := p.err(); err != nil {
		return in, err
	}
	o, _, err := readSmall(r, fieldsFor[resumeInput]())
	if err != nil {
		return in, err
	}
	o.truth("catch_up", &in.CatchUp)
	if given && o.has("catch_up") && asked != in.CatchUp {
		o.fault("catch_up", "is %t here and %t in the address; give it once", in.CatchUp, asked)
	}
	in.CatchUp = in.CatchUp || asked
	return in, invalid("the request is not valid", o.finish())
}

func (a *api) resumeJob(ctx context.Context, in resumeOf) (answer, error) {
	return a.switchJob(ctx, in.target, func(ctx context.Context, namespace string, id belfry.ID) (belfry.Job, error) {
		return a.control.Resume(ctx, namespace, id, in.CatchUp)
	})
}

func (a *api) switchJob(ctx context.Context, in target, to func(context.Context, string, belfry.ID) (belfry.Job, error)) (answer, error) {
	id, err := a.find(ctx, in)
	if err != nil {
		return answer{}, err
	}
	job, err := to(ctx, in.namespace, id)
	return shown(job), err
}

// triggerInput describes the body of a trigger.
type triggerInput struct {
	Payload any `json:"payload,omitempty"`
}

// trigger is a wish for a run now.
type trigger struct {
	target
	payload []byte // nil: the job's own
	key     control.Key
	body    []byte
}

const payloadField = "payload"

func readTrigger(r *http.Request) (in trigger, err error) {
	if in.target, err = readTarget(r); err != nil {
		return in, err
	}
	if in.key.Text, err = readKey(r); err != nil {
		return in, err
	}
	o, body, err := readSmall(r, []string{payloadField})
	if err != nil {
		return in, err
	}
	in.payload, in.body = o.payload(), body
	return in, invalid("the trigger is not valid", o.finish())
}

// triggered names the run that a trigger becomes.
type triggered struct {
	RunID belfry.ID `json:"run_id"`
}

func (a *api) triggerJob(ctx context.Context, in trigger) (answer, error) {
	id, err := a.find(ctx, in.target)
	if err != nil {
		return answer{}, err
	}
	if in.key.Text != "" {
		in.key.Hash = fingerprint("POST "+jobsPath+"/{id}/trigger", id.String(), in.body)
	}
	run, err := a.control.Trigger(ctx, in.namespace, id, in.payload, in.key)
	return answer{status: http.StatusAccepted, location: runsPath + "/" + run.String(), body: triggered{run}}, err
}
