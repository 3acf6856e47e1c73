package validate

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/target"
)

func TestPayloadOverride(t *testing.T) {
	for _, tt := range []struct {
		name, kind, own, override string
		want                      string
		field, words              string
	}{
		{"a worker gets all of it", "worker", `{"a":1}`, ` [1, "<&>"] `, `[1,"<&>"]`, "", ""},
		{"a worker gets nothing", "worker", `{"a":1}`, `null`, `null`, "", ""},
		{"a worker gets its secrets", "worker", `{"token":"abc"}`, `{"token":"***","b":2}`, `{"token":"abc","b":2}`, "", ""},
		{"a worker gets no masks", "worker", `{}`, `{"token":"***"}`, ``, "payload.token", "masked"},
		{"a request gets a body", "http", `{"url":"https://example.com","body":{"a":1}}`, `{"b":"<&>"}`, `{"body":{"b":"<&>"},"url":"https://example.com"}`, "", ""},
		{"a request never gets another address", "http", `{"url":"https://example.com"}`, `{"url":"https://evil.example"}`,
			`{"body":{"url":"https://evil.example"},"url":"https://example.com"}`, "", ""},
		{"a request gets its secrets", "http", `{"url":"https://example.com","body":{"token":"abc"}}`, `{"token":"***"}`, `{"body":{"token":"abc"},"url":"https://example.com"}`, "", ""},
		{"a request keeps its headers", "http", `{"url":"https://example.com","headers":{"Authorization":"abc"},"method":"PUT"}`, `3`,
			`{"body":3,"headers":{"Authorization":"abc"},"method":"PUT","url":"https://example.com"}`, "", ""},
		{"a request gets no body", "http", `{"url":"https://example.com","body":3}`, `null`, `{"body":null,"url":"https://example.com"}`, "", ""},
		{"a request without a body", "http", `{"url":"https://example.com","method":"get"}`, `3`, ``, "payload", "GET"},
		{"a command gets other arguments", "command", `{"command":"backup"}`, `{"command":"backup","args":["--full"]}`, `{"command":"backup","args":["--full"]}`, "", ""},
		{"a command gets no other command", "command", `{"command":"backup"}`, `{"command":"restore"}`, ``, "payload", "command of the job"},
		{"a command gets no shell", "command", `{"command":"backup"}`, `{"shell":"id"}`, ``, "payload", "command of the job"},
		{"a command gets no nonsense", "command", `{"command":"backup"}`, `{"command":"backup","arg":["x"]}`, ``, "payload.arg", "args"},
		{"a message gets another body", "message", `{"connection":"orders","topic":"a","body":{"token":"abc"}}`, `{"token":"***","n":1}`, `{"body":{"token":"abc","n":1},"connection":"orders","topic":"a"}`, "", ""},
		{"not JSON", "worker", `{}`, `{`, ``, "payload", "JSON"},
		{"too large", "worker", `{}`, `"` + strings.Repeat("x", belfry.MaxPayload) + `"`, ``, "payload", "262146"},
		{"too large with the rest", "http", `{"url":"https://example.com"}`, `"` + strings.Repeat("x", belfry.MaxPayload-10) + `"`, ``, "payload", "together"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			job := belfry.Job{Manifest: belfry.Manifest{Spec: belfry.Spec{Type: tt.kind}, Payload: json.RawMessage(tt.own)}}
			if tt.kind == belfry.TypeCommand {
				job.Handler = "command.backup"
			}
			got, errors := Payload(job, json.RawMessage(tt.override), true)
			if tt.field != "" {
				oneError(t, errors, tt.field, tt.words)
				return
			}
			if len(errors) > 0 || string(got) != tt.want {
				t.Errorf("got %s, errors %v", got, errors)
			}
			if tt.kind == "http" {
				if _, errors := target.ParseHTTP(got); len(errors) > 0 {
					t.Errorf("it cannot be sent: %v", errors)
				}
			}
		})
	}
}

func TestTypeCommand(t *testing.T) {
	create := func(change func(*Input)) (Result, []belfry.FieldError) {
		in := input("@daily")
		in.Type, in.Name, in.Payload = belfry.TypeCommand, "nightly", json.RawMessage(`{"command": "backup", "args": ["--full"], "env": {"TOKEN": "abc"}}`)
		change(&in)
		return New(now, plan.Defaults{}).Create(belfry.ID{1}, in)
	}
	r, errors := create(func(*Input) {})
	if len(errors) > 0 || r.Manifest.Handler != "command.backup" || r.Manifest.Lane("acme") != "acme:default/command.backup" {
		t.Fatalf("got %+v, errors %v", r.Manifest, errors)
	}
	if shell, errors := create(func(in *Input) { in.Payload = json.RawMessage(`{"shell": "echo 1 > x\necho 2"}`) }); len(errors) > 0 || shell.Manifest.Lane("acme") != "acme::default/command" {
		t.Errorf("a shell: got %+v, errors %v", shell.Manifest, errors)
	}
	for _, tt := range []struct{ payload, field, words string }{
		{``, "payload", "backup"},
		{`[]`, "payload", "JSON object"},
		{`{}`, "payload.command", "required"},
		{`{"command": "a/b"}`, "payload.command", "letters"},
		{`{"command": "a", "shell": "b"}`, "payload.shell", "instead"},
		{`{"command": "a", "env": {"A=B": "x"}}`, "payload.env.A=B", "name"},
		{`{"command": "a", "args": ["x\u0000"]}`, "payload.args[0]", "zero bytes"},
		{`{"command": "a", "args": [1]}`, "payload.args[0]", "string"},
		{`{"command": "a", "argv": []}`, "payload.argv", "args"},
	} {
		_, errors := create(func(in *Input) { in.Payload = json.RawMessage(tt.payload) })
		oneError(t, errors, tt.field, tt.words)
	}
	v := New(now, plan.Defaults{})
	v.RefuseShell = true
	in := input("@daily")
	in.Type, in.Payload = belfry.TypeCommand, json.RawMessage(`{"shell":"id"}`)
	_, errors = v.Create(belfry.ID{1}, in)
	oneError(t, errors, "payload.shell", "--allow-shell")
	if _, errors := v.Edit(belfry.Job{Manifest: in.Manifest}, in); len(errors) > 0 {
		t.Errorf("a job that was accepted before: %v", errors)
	}
	_, errors = create(func(in *Input) { in.Handler = "command.restore" })
	oneError(t, errors, "handler", "leave it out")
	if _, errors = create(func(in *Input) { in.Handler = "command.backup" }); len(errors) > 0 {
		t.Errorf("a job as it is shown: %v", errors)
	}
	_, errors = create(func(in *Input) { in.Type, in.Handler = belfry.TypeWorker, "command.backup" })
	oneError(t, errors, "handler", "type")

	job := belfry.Job{Manifest: r.Manifest}
	edit := func(payload string) (Result, []belfry.FieldError) {
		in := Input{Manifest: r.Manifest, Fields: schema.FieldSet{"payload"}}
		in.Payload = json.RawMessage(payload)
		return New(now, plan.Defaults{}).Edit(job, in)
	}
	if r, errors := edit(`{"command": "backup", "env": {"TOKEN": "***"}}`); len(errors) > 0 || !strings.Contains(string(r.Manifest.Payload), "abc") {
		t.Errorf("the same command keeps its secrets: got %s, errors %v", r.Manifest.Payload, errors)
	}
	_, errors = edit(`{"command": "print", "env": {"TOKEN": "***"}}`)
	oneError(t, errors, "payload.env.TOKEN", "another target")
	if r, errors := edit(`{"command": "print"}`); len(errors) > 0 || r.Manifest.Handler != "command.print" {
		t.Errorf("another command: got %+v, errors %v", r.Manifest, errors)
	}
}

func TestTypeMessage(t *testing.T) {
	const good = `{"connection":"orders","topic":"invoices","key":"{{job_id}}","headers":{"source":"billing","Authorization":"abc"},"body":{}}`
	create := func(payload string, change func(*Validator, *Input)) (Result, []belfry.FieldError) {
		in := input("@daily")
		in.Type, in.Payload = belfry.TypeMessage, json.RawMessage(payload)
		v := New(now, plan.Defaults{})
		change(v, &in)
		return v.Create(belfry.ID{1}, in)
	}
	as := func(*Validator, *Input) {}
	r, errors := create(good, as)
	if len(errors) > 0 || r.Manifest.Handler != "" || r.Manifest.Lane("acme") != "acme::default/message" {
		t.Fatalf("got %+v, errors %v", r.Manifest, errors)
	}
	for _, tt := range []struct{ payload, field, words string }{
		{``, "payload", `is missing; for example {"connection": "orders"`},
		{`[]`, "payload", "JSON object"},
		{`{"connection":"orders"}`, "payload.topic", "required"},
		{`{"topic":"invoices"}`, "payload.connection", "required"},
		{`{"connection":"orders","topic":"a","key":"{{name}}"}`, "payload.key", "has no field {{name}}; there are {{job_id}}"},
		{`{"connection":"orders","topic":"a","key":"{{run_id"}`, "payload.key", "does not close it"},
		{`{"connection":"orders","topic":"a","headers":{"x":"{{week}"}}`, "payload.headers.x", "does not close it"},
		{`{"connection":"orders","topic":"a","headers":{"x y":""}}`, "payload.headers.x y", "not a valid header name"},
		{`{"connection":"orders","topic":"a","headers":{"x.":""}}`, "payload.headers.x.", "not a valid header name"},
		{`{"connection":"orders","topic":"a","headers":{"idempotency-key":"1"}}`, "payload.headers.idempotency-key", "is set by"},
		{`{"connection":"orders","topic":"a","headers":{"Nats-Msg-Id":"1"}}`, "payload.headers.Nats-Msg-Id", "is set by"},
		{`{"connection":"orders","topic":"a","headers":{"x":"a\nb"}}`, "payload.headers.x", "control characters"},
		{`{"connection":"orders","topic":"a","headers":{"x":"` + strings.Repeat("x", 1025) + `"}}`, "payload.headers.x", "the maximum is 1024"},
		{`{"connection":"orders","topic":"a","url":"x"}`, "payload.url", "unknown"},
	} {
		_, errors := create(tt.payload, as)
		oneError(t, errors, tt.field, tt.words)
	}
	_, errors = create(good, func(_ *Validator, in *Input) { in.Handler = "x" })
	oneError(t, errors, "handler", "leave it out")
	refuse := func(belfry.MessagePayload) []belfry.FieldError {
		return []belfry.FieldError{{Field: "payload.connection", Message: "is unknown"}}
	}
	_, errors = create(good, func(v *Validator, _ *Input) { v.Messages = refuse })
	oneError(t, errors, "payload.connection", "is unknown")

	edit := func(payload string) (Result, []belfry.FieldError) {
		in := Input{Manifest: r.Manifest, Fields: schema.FieldSet{"payload"}}
		in.Payload = json.RawMessage(payload)
		v := New(now, plan.Defaults{})
		v.Messages = refuse
		return v.Edit(belfry.Job{Manifest: r.Manifest}, in)
	}
	if _, errors := edit(good); len(errors) > 0 {
		t.Errorf("a connection that is gone by now: %v", errors)
	}
	_, errors = edit(strings.NewReplacer("invoices", "elsewhere", "abc", "***").Replace(good))
	if len(errors) != 2 || !strings.Contains(errors[0].Message, "another target") || errors[1].Field != "payload.connection" {
		t.Errorf("another topic: %v", errors)
	}
}
