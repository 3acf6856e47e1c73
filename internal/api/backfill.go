package api

import (
	"context"
	"net/http"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

// Limits on how much is made up for at once. Package control holds a backfill to
// them.
const (
	defaultBackfill = 100
	maxBackfill     = 1000
)

// backfillInput describes the body of a backfill.
type backfillInput struct {
	From   time.Time `json:"from"`
	To     time.Time `json:"to,omitzero"`
	Limit  int       `json:"limit,omitempty"`
	DryRun bool      `json:"dry_run,omitempty"`
}

// backfill is a wish for runs at instants that have passed.
type backfill struct {
	target
	of   control.Backfill
	key  control.Key
	body []byte
}

func readBackfill(r *http.Request) (in backfill, err error) {
	if in.target, err = readTarget(r); err != nil {
		return in, err
	}
	if in.key.Text, err = readKey(r); err != nil {
		return in, err
	}
	if in.body, err = readBody(r); err != nil {
		return in, err
	}
	o, f := readObject(in.body, fieldsFor[backfillInput]())
	if f != nil {
		return in, f.refusal()
	}
	before := len(o.faults)
	o.instant("from", &in.of.From)
	if in.of.From.IsZero() && len(o.faults) == before {
		o.fault("from", `is missing; it is the first instant that may run, for example "2027-03-01T00:00:00+01:00"`)
	}
	o.instant("to", &in.of.To)
	o.limit("limit", &in.of.Limit, maxBackfill)
	o.truth("dry_run", &in.of.DryRun)
	return in, invalid("the backfill is not valid", o.finish())
}

// backfilled is what comes of a backfill.
type backfilled struct {
	Count    int         `json:"count"`
	Instants []time.Time `json:"instants"`
	Runs     []belfry.ID `json:"runs,omitempty"`
	More     bool        `json:"more"`
	NextFrom *time.Time  `json:"next_from,omitempty"`
}

func (a *api) backfillJob(ctx context.Context, in backfill) (answer, error) {
	id, err := a.find(ctx, in.target)
	if err != nil {
		return answer{}, err
	}
	if in.key.Text != "" {
		in.key.Hash = fingerprint("POST "+jobsPath+"/{id}/backfill", id.String(), in.body)
	}
	made, err := a.control.Backfill(ctx, in.namespace, id, in.of, in.key)
	if err != nil {
		return answer{}, err
	}
	out := backfilled{Count: len(made.Instants), Instants: append([]time.Time{}, made.Instants...), Runs: made.Runs, More: made.More}
	if !made.NextFrom.IsZero() {
		out.NextFrom = &made.NextFrom
	}
	status := http.StatusAccepted
	if in.of.DryRun {
		status = http.StatusOK
	}
	return answer{status: status, body: out}, nil
}
