package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/jsontext"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/validate"
)

// manifestBody is the body of a request that declares a job.
type manifestBody struct {
	_     struct{} `doc:"A job."`
	text  []byte
	input validate.Input
}

func (b *manifestBody) decodeBody(text []byte, r *request) error {
	b.text = text
	var syntax *jsontext.SyntaxError
	if b.input, syntax = decodeManifest(text, r.namespace, belfry.Manifest{}); syntax != nil {
		return badRequest("the body %s", syntax.Message)
	}
	return nil
}

// patch is the change that the body asks for. Fields that it does not name stay as they
// are; null sets one back to its default.
func (b *manifestBody) patch(namespace string) func(belfry.Manifest) validate.Input {
	return func(current belfry.Manifest) validate.Input {
		current.Status = "" // unless the body has one, the job stays paused or not
		in, _ := decodeManifest(b.text, namespace, current)
		in.Replan = in.Fields.Has("schedule")
		return checkStatus(in)
	}
}

// checkStatus refuses statuses that a request cannot set. A replacement may have them,
// so that a job can be sent back as it was shown.
func checkStatus(in validate.Input) validate.Input {
	if in.Status == "" {
		return in
	}
	if _, err := schema.For[belfry.Manifest]().Field("status").ChooseAccepted(string(in.Status)); err != "" {
		in.Errors = append(in.Errors, belfry.FieldError{Field: "status", Message: err})
	}
	return in
}

// decodeManifest decodes a job over a manifest. Fields that only a job has, such as
// job_id, are accepted without effect, so that a job can be sent back as it was shown;
// its namespace must be that of the request.
func decodeManifest(text []byte, namespace string, over belfry.Manifest) (in validate.Input, syntax *jsontext.SyntaxError) {
	in.Manifest, in.Decoded = over, true
	in.Fields, in.Errors, syntax = manifestDecoder.Decode(text, &in.Manifest)
	if syntax != nil || !bytes.Contains(text, []byte(`"namespace"`)) {
		return in, syntax
	}
	if value, ok := jsontext.Object(text)["namespace"]; ok && string(value) != `"`+namespace+`"` && string(value) != "null" {
		in.Errors = append(in.Errors, belfry.FieldError{Field: "namespace", Message: fmt.Sprintf("is not that of the request, %q; the header %s selects another", namespace, namespaceHeader)})
	}
	return in, nil
}

var manifestDecoder = schema.Decoder{
	Ignored: slices.DeleteFunc(slices.Clone(schema.For[belfry.Job]().Names()), func(name string) bool {
		return schema.For[belfry.Manifest]().Field(name) != nil
	}),
	Hints: map[string]string{
		"url":             `belongs in payload: "payload": {"url": "https://example.com/hook"}`,
		"method":          "belongs in payload",
		"headers":         "belongs in payload",
		"body":            "belongs in payload",
		"cron":            `is named schedule: "schedule": "0 9 * * MON-FRI"`,
		"idempotency_key": "is a header of the request: Idempotency-Key; keys of runs come from idempotency_key_template",
	},
	Aliases: map[string]func(schema.Member) ([]schema.Member, []belfry.FieldError){"retry_policy": expandRetryPolicy},
}

// retryPolicy is a retry policy as an object of its own, with times in milliseconds.
type retryPolicy struct {
	MaxRetries   belfry.Optional[int]     `json:"max_retries"`
	BackoffMS    belfry.Optional[float64] `json:"backoff_ms"`
	MaxBackoffMS belfry.Optional[float64] `json:"max_backoff_ms"`
	Jitter       belfry.Optional[float64] `json:"jitter"`
	DelaysMS     json.RawMessage          `json:"delays_ms"`
	Backoff      string                   `json:"backoff"`
	Strategy     string                   `json:"strategy"`
}

// retryFields are the fields of a job that stand for those of a retry policy.
var retryFields = map[string]string{
	"max_retries": "max_retries", "backoff_ms": "retry_base_seconds", "max_backoff_ms": "retry_cap_seconds", "jitter": "retry_jitter",
	"delays_ms": "retry_delays", "backoff": "retry_backoff", "strategy": "retry_backoff",
}

// expandRetryPolicy replaces a retry policy by the fields of the job.
func expandRetryPolicy(m schema.Member) (list []schema.Member, errors []belfry.FieldError) {
	if string(m.Value) == "null" {
		for name, field := range retryFields {
			if name != "strategy" {
				list = append(list, schema.Member{Name: field, Written: m.Written, Value: m.Value})
			}
		}
		return list, nil
	}
	if m.Value[0] != '{' {
		return nil, []belfry.FieldError{{Field: m.Written, Message: "must be an object, not " + jsontext.Kind(m.Value)}}
	}
	written := map[string]string{}
	jsontext.Members(m.Value, func(quoted, _ []byte) bool {
		name := jsontext.Unquote(quoted)
		written[schema.SnakeCase(name)] = m.Written + "." + name
		return true
	})
	var p retryPolicy
	fields, errors, _ := schema.Decoder{}.Decode(m.Value, &p)
	for i := range errors {
		errors[i].Field = m.Written + "." + errors[i].Field
	}
	for _, name := range fields {
		value, err := p.jobValue(name)
		if err != "" {
			errors = append(errors, belfry.FieldError{Field: written[name], Message: err})
			continue
		}
		list = append(list, schema.Member{Name: retryFields[name], Written: written[name], Value: value})
	}
	return list, errors
}

// jobValue is the JSON of a field of the policy as the job has it, in seconds. The error
// follows the name of the field.
func (p *retryPolicy) jobValue(name string) (text []byte, err string) {
	value := schema.For[retryPolicy]().Field(name).Value(reflect.ValueOf(p).Elem())
	switch {
	case value.IsZero():
		return []byte("null"), ""
	case name == "backoff_ms" || name == "max_backoff_ms":
		return strconv.AppendFloat(nil, value.Interface().(belfry.Optional[float64]).Value()/1000, 'f', -1, 64), ""
	case name == "delays_ms":
		return delaySeconds(p.DelaysMS)
	}
	return belfry.MustJSON(value.Interface()), ""
}

// delaySeconds turns a JSON array of milliseconds into one of seconds.
func delaySeconds(ms []byte) (out []byte, err string) {
	if ms[0] != '[' {
		return nil, "must be an array of milliseconds, not " + jsontext.Kind(ms)
	}
	out = []byte{'['}
	for i, element := range jsontext.Elements(ms) {
		n, err := strconv.ParseFloat(string(element), 64)
		if err != nil {
			return nil, "must be an array of milliseconds, for example [5000, 30000]"
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendFloat(out, n/1000, 'f', -1, 64)
	}
	return append(out, ']'), ""
}
