package api

import (
	"encoding/json"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

// readDraft takes a job out of a request's body. A member of the wrong type is a
// fault and has its default in the draft, so that the rest can be checked too.
func readDraft(body []byte) (control.Draft, []belfry.Fault, error) {
	o, err := readObject(body)
	if err != nil {
		return control.Draft{}, nil, err
	}
	d := control.Draft{Spec: belfry.DefaultSpec()}
	d.Spec.Timezone = "" // An instant without an offset needs one to be given.
	takeDraft(o, &d)
	o.hints = inPayload
	return d, o.finish(), nil
}

// inPayload is said of what people expect one level above its place.
var inPayload = map[string]string{
	"url":     `belongs into payload, as in "payload": {"url": "https://example.com/hook"}`,
	"method":  "belongs into payload",
	"headers": "belongs into payload",
	"body":    "belongs into payload",
}

// takeDraft is the one list of the members of a job.
func takeDraft(o *object, d *control.Draft) {
	s := &d.Spec
	o.text("name", &d.Name)
	o.text("type", &s.Type)
	o.text("schedule", &s.Schedule)
	o.text("timezone", &s.Timezone)
	if payload, ok := o.take("payload"); ok {
		d.Payload = json.RawMessage(payload)
	}
	o.text("queue", &s.Queue)
	o.text("overlap", (*string)(&s.Overlap))
	o.whole("timeout_seconds", &s.TimeoutSeconds)
	o.whole("max_retries", &s.MaxRetries)
	o.text("retry_backoff", (*string)(&s.RetryBackoff))
	o.number("retry_base_seconds", &s.RetryBaseSeconds)
	o.number("retry_cap_seconds", &s.RetryCapSeconds)
	o.number("retry_jitter", &s.RetryJitter)
}

// draftFields lists the members of a job.
var draftFields = func() []string {
	var o object
	takeDraft(&o, new(control.Draft))
	return o.taken
}()

// notEdited is said of them in a change.
var notEdited = func() map[string]string {
	hints := make(map[string]string)
	for _, name := range draftFields {
		hints[name] = "cannot be edited yet"
	}
	return hints
}()
