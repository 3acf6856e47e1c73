package api

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/belfry-sh/belfry"
)

const workersPath = "/api/v1/workers"

// What a worker may say at once. Package control holds it to the first three.
const (
	maxLanes      = 200
	maxClaim      = 1000
	maxSlots      = 100_000
	maxAttempt    = 1 << 30
	maxHeld       = 10_000
	maxResults    = 1000
	maxWait       = 30 // seconds
	defaultWait   = 20 // seconds
	maxResultBody = 8 << 20
)

// fieldsFor lists the members of the JSON form of a type.
func fieldsFor[T any]() []string { return fieldsOf(reflect.TypeFor[T]()) }

// workerOf is the worker that a request comes from.
type workerOf struct {
	namespace string
	id        belfry.ID
}

func readWorker(r *http.Request) (in workerOf, err error) {
	if _, err := parameters(r); err != nil {
		return in, err
	}
	if in.namespace, err = readNamespace(r); err != nil {
		return in, err
	}
	if in.id, err = belfry.ParseID(r.PathValue("worker")); err != nil || in.id.IsZero() {
		return in, refuseParameters(belfry.FieldError{
			Field:   "worker",
			Message: "must be a UUID that the worker draws each time it starts",
		})
	}
	return in, nil
}

// readWorkerBody reads what a worker sends.
func readWorkerBody(r *http.Request, most int64, fields []string, take func(o *object)) error {
	body, err := readBodyOf(r, most)
	if err != nil {
		return err
	}
	o, f := readObject(body, fields)
	if f != nil {
		return f.refusal()
	}
	take(o)
	return invalid("the body is not valid", o.finish())
}

// claim is the body of a wish for runs.
type claim struct {
	Lanes       []string `json:"lanes"`
	Limit       int      `json:"limit,omitempty"`
	WaitSeconds float64  `json:"wait_seconds,omitempty"`
}

type claimOf struct {
	workerOf
	claim
}

func readClaim(r *http.Request) (in claimOf, err error) {
	if in.workerOf, err = readWorker(r); err != nil {
		return in, err
	}
	return in, readWorkerBody(r, maxBody, fieldsFor[claim](), func(o *object) {
		o.texts("lanes", &in.Lanes)
		in.Limit, in.WaitSeconds = 1, defaultWait
		o.whole("limit", &in.Limit, 1)
		o.number("wait_seconds", &in.WaitSeconds, defaultWait)
		if !(in.WaitSeconds >= 0 && in.WaitSeconds <= maxWait) {
			o.fault("wait_seconds", "must be from 0 to %d", maxWait)
		}
	})
}

// claimed is the answer to a claim.
type claimed struct {
	Runs []belfry.ClaimedRun `json:"runs"`
}

// claimRuns hands out runs, and waits for them if there are none. A server that
// shuts down sends its workers elsewhere at once.
func (a *api) claimRuns(w http.ResponseWriter, r *http.Request) {
	in, err := readClaim(r)
	if err == nil && a.drains() {
		err = drained()
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	wait := time.Duration(in.WaitSeconds * float64(time.Second))
	extend(w, wait+patience)
	ctx, cancel := context.WithTimeout(r.Context(), wait+claimGrace)
	defer cancel()
	defer a.untilDraining(cancel)()
	runs, err := a.control.Claim(ctx, in.namespace, belfry.Claim{WorkerID: in.id, Lanes: in.Lanes, Limit: in.Limit}, wait)
	if err != nil && a.drains() {
		err = drained()
	}
	if r.Context().Err() != nil && len(runs) > 0 {
		a.handBack(r, in.namespace, runs)
		return
	}
	out := claimed{Runs: make([]belfry.ClaimedRun, len(runs))}
	for i, run := range runs {
		out.Runs[i] = run.Claimed()
	}
	a.reply(w, r, answer{status: http.StatusOK, last: a.drains(), body: out}, err)
}

// handBack returns runs whose worker is no longer there to hear of them. If that
// fails they wait until they are missed in a list of what the worker holds.
func (a *api) handBack(r *http.Request, namespace string, runs []*belfry.Run) {
	results := make([]belfry.Result, len(runs))
	for i, run := range runs {
		results[i] = belfry.Result{RunID: run.ID, Attempt: run.Attempt, Token: run.Token,
			Outcome: belfry.OutcomeInterrupted, Error: "the worker left before it was told of the run"}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), patience)
	defer cancel()
	if _, err := a.control.Finish(ctx, namespace, results); err != nil {
		a.log.Warn("runs could not be handed back", "runs", len(runs), "error", err)
	}
}

// claimGrace is what a claim may take beyond the time that it waits.
const claimGrace = 10 * time.Second

// extend gives a request more time than the server's timeouts do. Once the body is
// read, a read that times out would end the request's context.
func extend(w http.ResponseWriter, by time.Duration) {
	connection := http.NewResponseController(w)
	until := time.Now().Add(by)
	connection.SetReadDeadline(until) // Where there is none, there is no timeout either.
	connection.SetWriteDeadline(until)
}

// drains tells whether the node shuts down.
func (a *api) drains() bool {
	select {
	case <-a.draining:
		return true
	default:
		return false
	}
}

// untilDraining calls end when the node begins to shut down, unless it is stopped
// first.
func (a *api) untilDraining(end func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-a.draining:
			end()
		case <-done:
		}
	}()
	return func() { close(done) }
}

func drained() error {
	return &refusal{
		status: http.StatusServiceUnavailable,
		code:   belfry.Unavailable,
		detail: "this server shuts down; another one has work",
		header: map[string]string{"Retry-After": "1", "Connection": "close"},
	}
}

type beatOf struct {
	workerOf
	belfry.Heartbeat
}

func readBeat(r *http.Request) (in beatOf, err error) {
	if in.workerOf, err = readWorker(r); err != nil {
		return in, err
	}
	in.WorkerID = in.id
	return in, readWorkerBody(r, maxBody, fieldsFor[belfry.Heartbeat](), func(o *object) {
		o.text("node", &in.Node, "")
		o.whole("slots", &in.Slots, 0)
		o.texts("lanes", &in.Lanes)
		o.truth("register", &in.Register)
		o.truth("leave", &in.Leave)
		o.truth("listed", &in.Complete)
		o.list("held", fieldsFor[belfry.HeldAttempt](), maxHeld, func(item *object) {
			var h belfry.HeldAttempt
			item.attempt(&h.RunID, &h.Attempt)
			in.Held = append(in.Held, h)
		})
	})
}

// attempt takes what names an attempt of a run.
func (o *object) attempt(run *belfry.ID, number *int) {
	o.needed("run_id", run, "the id of a run")
	before := len(o.faults)
	o.whole("attempt", number, 0)
	if len(o.faults) == before && (*number < 1 || *number > maxAttempt) {
		o.fault(o.within+"attempt", "must be the number of an attempt, from 1 to %d", maxAttempt)
	}
}

func (a *api) beat(ctx context.Context, in beatOf) (answer, error) {
	orders, err := a.control.Heartbeat(ctx, in.namespace, in.Heartbeat)
	if orders.Lost == nil {
		orders.Lost = []belfry.HeldAttempt{}
	}
	if orders.Cancel == nil {
		orders.Cancel = []belfry.HeldAttempt{}
	}
	return answer{status: http.StatusOK, body: orders}, err
}
