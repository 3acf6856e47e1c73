package belfry

import (
	"encoding/json"
	"slices"
	"time"
)

// MessagePayload is the payload of a job of type message: what each of its runs publishes.
// The acknowledgement of the broker is success.
type MessagePayload struct {
	_          struct{}          `doc:"The message that each run of a job of type 'message' publishes. The acknowledgement of the broker is success."`
	Connection string            `json:"connection" required:"true" maxlen:"100" example:"orders" doc:"Name of a connection of the server: its operator declares them in the file of '--connections'."`
	Topic      string            `json:"topic" required:"true" maxlen:"1024" example:"invoices" doc:"Where the message goes: a Kafka topic, a NATS subject, a RabbitMQ queue, or an exchange if there is a 'key', an SQS queue, by name or URL, or a Redis stream."`
	Key        string            `json:"key,omitempty" maxlen:"200" example:"{{job_id}}" doc:"Key of the message: that of a Kafka record, the routing key of RabbitMQ, the message group of an SQS FIFO queue; elsewhere it is sent as the header 'Key'. '{{job_id}}', '{{run_id}}', '{{scheduled_at}}', '{{unix}}', '{{date}}', '{{week}}', '{{month}}', '{{year}}' and '{{hour}}' are replaced, in the time zone of the job."`
	Headers    map[string]string `json:"headers,omitempty" maxitems:"64" example:"{\"source\": \"billing\"}" doc:"Headers of the message; SQS takes 3. Values may have the same templates as 'key'. Headers that Belfry sets, such as 'Idempotency-Key', cannot be set."`
	Body       json.RawMessage   `json:"body,omitempty" example:"{\"month\": \"march\"}" doc:"Body of the message. A string is sent as it is, any other value as JSON."`
}

// Content is the body to publish and its content type unless a header sets another.
func (p MessagePayload) Content() (body []byte, contentType string) { return content(p.Body) }

// content is a body as it is sent: a string as it is, any other value as JSON.
func content(raw json.RawMessage) (body []byte, contentType string) {
	if len(raw) == 0 {
		return nil, ""
	}
	var text string
	if raw[0] != '"' || json.Unmarshal(raw, &text) != nil {
		return raw, "application/json"
	}
	return []byte(text), "text/plain; charset=utf-8"
}

// messageFields are what the key and the headers of a message may name: a run does not
// always know the name of its job.
var messageFields = append(slices.DeleteFunc(slices.Clone(keyFieldNames), func(name string) bool { return name == "name" }), "run_id")

// CheckMessageTemplate says what is wrong with a template of a message, in words that fit
// behind the name of a field.
func CheckMessageTemplate(text string) error {
	_, err := parseTemplate(text, messageFields)
	return err
}

// Expand is a template of a message with the values of the run in place of its fields. A
// text that is no template stays as it is.
func (r *Run) Expand(text string) string {
	t, err := parseTemplate(text, messageFields)
	if err != nil {
		return text
	}
	at := r.ScheduledAt.UTC()
	if zone, err := time.LoadLocation(r.Spec.Timezone); err == nil {
		at = at.In(zone)
	}
	return t.fill(func(field string) string {
		if field == "run_id" {
			return r.ID.String()
		}
		return keyFields[field](r.JobID, "", at)
	})
}
