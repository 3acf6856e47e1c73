package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
)

// Trigger asks for a run of a job now, paused or not, and returns the id that the
// run will have. The owner of the job's shard makes it, and the overlap policy
// holds for it. A payload that is not nil takes the place of the job's own: of all
// of it for a worker, of the body alone for an HTTP request. Masked secrets in it
// stay what they are. The key is that of Create.
func (c *Control) Trigger(ctx context.Context, namespace string, id belfry.ID, payload json.RawMessage, k Key) (belfry.ID, error) {
	if answer, err := c.answered(ctx, namespace, k); err != nil || answer != nil {
		return decodeID(answer, err)
	}
	if payload != nil {
		job, err := c.Get(ctx, namespace, id)
		if err != nil {
			return belfry.ID{}, err
		}
		var faults []belfry.FieldError
		if payload, faults = payloadFor(job, payload); len(faults) > 0 {
			return belfry.ID{}, &belfry.Error{Code: belfry.Invalid, Message: "the payload is not valid", Fields: faults}
		}
	}
	now := c.now()
	wish := plan.Trigger{
		ID:        belfry.NewID(now),
		Namespace: namespace,
		JobID:     id,
		Shard:     belfry.ShardOf(id, c.store.Shards()),
		Kind:      belfry.KindManual,
		At:        now,
		Payload:   payload,
	}
	run := wish.RunID()
	request := k.request(namespace, func() ([]byte, error) { return encodeIDs([]belfry.ID{run}), nil })
	err := insist(ctx, "trigger a job", func() error {
		return c.store.Trigger(ctx, []plan.Trigger{wish}, request)
	})
	if err != nil {
		return decodeID(k.repeated(err))
	}
	return run, nil
}

// payloadFor is the whole payload of a run for which somebody gave one.
func payloadFor(job belfry.Job, given json.RawMessage) (json.RawMessage, []belfry.FieldError) {
	fault := func(message string) []belfry.FieldError {
		return []belfry.FieldError{{Field: "payload", Message: message}}
	}
	var compact bytes.Buffer
	if json.Compact(&compact, given) != nil {
		return nil, fault("must be JSON")
	}
	if compact.Len() > belfry.MaxPayload {
		return nil, fault(sized(compact.Len()))
	}
	if job.Type != belfry.TypeHTTP {
		return secret.Unmask(compact.Bytes(), job.Payload)
	}
	request, faults := target.ParseHTTP(job.Payload)
	if len(faults) > 0 {
		return nil, fault("cannot be sent: the job's own payload is not valid")
	}
	if (request.Method == "GET" || request.Method == "HEAD") && compact.String() != "null" {
		return nil, fault("becomes the body of the request, and a " + request.Method + " request has none")
	}
	body, faults := secret.Unmask(compact.Bytes(), request.Body)
	if len(faults) > 0 {
		return nil, faults
	}
	whole, err := withBody(job.Payload, body)
	if err != nil {
		return nil, fault("cannot be put into the job's own payload")
	}
	if len(whole) > belfry.MaxPayload {
		return nil, fault("with the rest of the job's own " + sized(len(whole)))
	}
	return whole, nil
}

// withBody replaces the body of an HTTP payload.
func withBody(payload, body json.RawMessage) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(payload, &fields); err != nil {
		return nil, err
	}
	fields["body"] = body
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(fields); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

// decodeID reads an answer of one id. It passes an error on.
func decodeID(answer []byte, err error) (belfry.ID, error) {
	ids, err := decodeIDs(answer, err)
	switch {
	case err != nil:
		return belfry.ID{}, err
	case len(ids) != 1:
		return belfry.ID{}, unreadable(fmt.Errorf("%d ids instead of one", len(ids)))
	}
	return ids[0], nil
}
