package api

import (
	"context"
	"net/http"
	"time"

	"github.com/belfry-sh/belfry/internal/control"
)

// Limits on what is decided about dead letters at once. Package control holds an
// order to them.
const (
	maxDecided = 10_000
	minRate    = 0.001 // a second
	maxRate    = 1000
)

// redrive is a wish to have one dead letter run again.
type redrive struct {
	target
	payload []byte // nil: the one that it had
}

func readRedrive(r *http.Request) (in redrive, err error) {
	if in.target, err = readTarget(r); err != nil {
		return in, err
	}
	o, _, err := readSmall(r, []string{payloadField})
	if err != nil {
		return in, err
	}
	in.payload = o.payload()
	return in, invalid("the order is not valid", o.finish())
}

// payload takes what runs are to work on in place of what they have; nil if there
// is none.
func (o *object) payload() []byte {
	m, is := o.take(payloadField)
	if is == nothing || string(m.value) == "null" {
		return nil
	}
	return m.value
}

func (a *api) redriveOne(ctx context.Context, in redrive) (answer, error) {
	id, err := runID(in.target, "dead letter")
	if err != nil {
		return answer{}, err
	}
	order := control.RedriveOrder{DeadOrder: control.DeadOrder{Run: id}, Payload: in.payload}
	if _, err := a.control.Redrive(ctx, in.namespace, order); err != nil {
		return answer{}, err
	}
	run, err := a.control.Run(ctx, in.namespace, id)
	return answer{status: http.StatusAccepted, location: runsPath + "/" + id.String(), body: showRun(run)}, err
}

func (a *api) discardOne(ctx context.Context, in target) (answer, error) {
	id, err := runID(in, "dead letter")
	if err != nil {
		return answer{}, err
	}
	_, err = a.control.Discard(ctx, in.namespace, control.DeadOrder{Run: id})
	return answer{status: http.StatusNoContent}, err
}

// deadFilter describes what dead letters have in common.
type deadFilter struct {
	Job         string    `json:"job,omitempty"`
	Since       time.Time `json:"since,omitzero"`
	Until       time.Time `json:"until,omitzero"`
	Error       string    `json:"error,omitempty"`
	Fingerprint string    `json:"fingerprint,omitempty"`
	Reason      string    `json:"reason,omitempty"`
}

// discardOrder describes the body of an order to discard dead letters.
type discardOrder struct {
	Filter deadFilter `json:"filter,omitzero"`
	All    bool       `json:"all,omitempty"`
	DryRun bool       `json:"dry_run,omitempty"`
	Limit  int        `json:"limit,omitempty"`
}

// redriveOrder describes the body of an order to redrive dead letters.
type redriveOrder struct {
	discardOrder
	Payload any     `json:"payload,omitempty"`
	Rate    float64 `json:"rate,omitempty"`
}

// deadOrder is an order about the dead letters that a filter finds.
type deadOrder struct {
	of    deadQuery
	order control.RedriveOrder
}

func readRedriveOrder(r *http.Request) (deadOrder, error) {
	return readDeadOrder(r, fieldsFor[redriveOrder](), func(o *object, in *deadOrder) {
		in.order.Payload = o.payload()
		before := len(o.faults)
		o.number("rate", &in.order.Rate, 0)
		if o.has("rate") && len(o.faults) == before && !(in.order.Rate >= minRate && in.order.Rate <= maxRate) {
			o.fault("rate", "must be from %g to %d runs a second; leave it out to start all at once", minRate, maxRate)
		}
	})
}

func readDiscardOrder(r *http.Request) (deadOrder, error) {
	return readDeadOrder(r, fieldsFor[discardOrder](), func(*object, *deadOrder) {})
}

func readDeadOrder(r *http.Request, fields []string, more func(*object, *deadOrder)) (in deadOrder, err error) {
	if _, err := parameters(r); err != nil {
		return in, err
	}
	if in.of.namespace, err = readNamespace(r); err != nil {
		return in, err
	}
	body, err := readBody(r)
	if err != nil {
		return in, err
	}
	o, f := readObject(body, fields)
	if f != nil {
		return in, f.refusal()
	}
	before := len(o.faults)
	o.inner("filter", fieldsFor[deadFilter](), func(inner *object) { takeDeadFilter(inner, &in.of) })
	o.truth("all", &in.order.All)
	if in.of.job == "" && in.of.filter == (control.DeadFilter{}) && !in.order.All && len(o.faults) == before {
		o.fault("filter", `is empty; say what the dead letters have in common, or "all": true to mean every one of the namespace`)
	}
	o.truth("dry_run", &in.order.DryRun)
	o.limit("limit", &in.order.Limit, maxDecided)
	more(o, &in)
	return in, invalid("the order is not valid", o.finish())
}

func takeDeadFilter(o *object, q *deadQuery) {
	o.words("job", &q.job)
	o.instant("since", &q.filter.Since)
	o.instant("until", &q.filter.Until)
	o.words("error", &q.filter.Error)
	o.words("fingerprint", &q.filter.Fingerprint)
	o.oneOf("reason", (*string)(&q.filter.Reason), texts(deadReasons)...)
}

// texts are words as plain strings.
func texts[Word ~string](words []Word) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = string(w)
	}
	return out
}

// decided is what came of an order about dead letters.
type decided struct {
	Matched int  `json:"matched"`
	Done    int  `json:"done"`
	More    bool `json:"more"`
}

// redriven also tells when the last one may start.
type redriven struct {
	decided
	LastAt *time.Time `json:"last_at,omitempty"`
}

func (a *api) redriveMany(ctx context.Context, in deadOrder) (answer, error) {
	var err error
	if in.order.Filter, err = a.resolve(ctx, in.of); err != nil {
		return answer{}, err
	}
	done, err := a.control.Redrive(ctx, in.of.namespace, in.order)
	out := redriven{decided: decided{done.Matched, done.Done, done.More}}
	if !done.Until.IsZero() {
		out.LastAt = &done.Until
	}
	return answer{status: http.StatusOK, body: out}, err
}

func (a *api) discardMany(ctx context.Context, in deadOrder) (answer, error) {
	var err error
	if in.order.Filter, err = a.resolve(ctx, in.of); err != nil {
		return answer{}, err
	}
	done, err := a.control.Discard(ctx, in.of.namespace, in.order.DeadOrder)
	return answer{status: http.StatusOK, body: decided{done.Matched, done.Done, done.More}}, err
}
