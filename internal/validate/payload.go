package validate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/command"
	"github.com/belfry-sh/belfry/internal/jsontext"
	"github.com/belfry-sh/belfry/internal/secret"
	"github.com/belfry-sh/belfry/internal/target"
)

// payloadExamples are payloads of the types that have a form.
var payloadExamples = map[string]string{
	belfry.TypeHTTP:    `for example {"url": "https://example.com/hook"}`,
	belfry.TypeCommand: `for example {"command": "backup", "args": ["--full"]}`,
	belfry.TypeMessage: `for example {"connection": "orders", "topic": "invoices", "body": {}}`,
}

// hasBody reports whether payloads of a type have a body, which a request may replace.
func hasBody(kind string) bool { return kind == belfry.TypeHTTP || kind == belfry.TypeMessage }

// target determines the type of a job and its handler.
func (c *check) target(m *belfry.Manifest) {
	m.Handler = strings.TrimSpace(m.Handler)
	if c.before != nil && m.Type != c.before.Type && m.Type != belfry.TypeWorker && !c.sets("handler") {
		m.Handler = ""
	}
	inferred := m.Type == ""
	if inferred {
		m.Type = belfry.TypeWorker
		if c.validPayload && jsontext.Member(m.Payload, "url") != nil {
			m.Type = belfry.TypeHTTP
		}
	}
	switch {
	case m.Type == belfry.TypeWorker:
		c.handler(m, inferred)
		if strings.HasPrefix(m.Handler, belfry.CommandPrefix) {
			c.fail("handler", "must not begin with %s, as those of commands do; set the type to %q for a command", belfry.CommandPrefix, belfry.TypeCommand)
		}
	case m.Type == belfry.TypeCommand:
		given := m.Handler
		if m.Handler = commandHandler(m.Payload); given != "" && given != m.Handler && c.sets("handler") {
			c.fail("handler", "follows from the command of the payload; leave it out")
		}
	case !hasBody(m.Type) || m.Handler == "": // an unknown type is an error already
	case inferred:
		c.fail("handler", `is only for jobs of type %q; set the type, since the payload has a "url"`, belfry.TypeWorker)
	default:
		c.fail("handler", "is only for jobs of type %q; leave it out", belfry.TypeWorker)
	}
}

// commandHandler is the handler of a command, which has its name; none for a shell.
func commandHandler(payload json.RawMessage) string {
	var name string
	if json.Unmarshal(jsontext.Object(payload)["command"], &name) != nil || name == "" {
		return ""
	}
	return belfry.CommandPrefix + name
}

func (c *check) handler(m *belfry.Manifest, inferred bool) {
	switch {
	case m.Handler != "":
		if problem := Handler(m.Handler); problem != "" {
			c.fail("handler", "%s", problem)
		}
	case m.Name != "":
		m.Handler = m.Name
		if problem := Handler(m.Name); problem != "" && !c.failed("name") {
			c.fail("handler", "is missing, and the name cannot replace it: %s", problem)
		}
	case inferred:
		c.fail("handler", `is missing; a job without a "url" in its payload is of type worker and needs a handler or a name`)
	default:
		c.fail("handler", "is missing, and there is no name that could replace it")
	}
}

// compact returns the payload without needless blanks, and notes whether it is JSON.
func (c *check) compact(raw json.RawMessage) json.RawMessage {
	if !bytes.ContainsAny(raw, " \t\r\n") { // then it is compact if it is valid
		c.validPayload = c.decoded || json.Valid(raw)
		return raw
	}
	compact := bytes.NewBuffer(make([]byte, 0, len(raw)))
	if c.validPayload = json.Compact(compact, raw) == nil; !c.validPayload {
		return bytes.TrimSpace(raw)
	}
	return compact.Bytes()
}

// payload returns a compact payload with its secrets. Its content is checked only for a
// known type.
func (c *check) payload(raw json.RawMessage, kind string) json.RawMessage {
	if len(raw) == 0 || string(raw) == "null" {
		if example := payloadExamples[kind]; example != "" {
			c.fail("payload", "is missing; %s", example)
		}
		return nil
	}
	switch raw = c.unmask(raw, kind); {
	case kind != belfry.TypeWorker && (!c.validPayload || raw[0] != '{'):
		c.fail("payload", "must be a JSON object; %s", cmp.Or(payloadExamples[kind], payloadExamples[belfry.TypeHTTP]))
		return nil
	case !c.validPayload:
		c.fail("payload", "must be JSON")
		return nil
	case len(raw) > belfry.MaxPayload:
		c.fail("payload", "%s", tooLarge(len(raw)))
		return nil
	case kind == belfry.TypeHTTP:
		_, errors := target.ParseValidHTTP(raw, c.decoded)
		c.add(errors...)
	case kind == belfry.TypeCommand:
		p, errors := command.ParsePayload(raw)
		if c.add(errors...); p.Shell != "" && c.RefuseShell && c.changes(raw) {
			c.fail("payload.shell", "is not allowed here; only a node with the embedded database that was started with --allow-shell runs it. Name the command in the file of a worker instead")
		}
	case kind == belfry.TypeMessage:
		message, errors := target.ParseMessage(raw)
		if c.add(errors...); c.Messages != nil && c.changes(raw) {
			c.add(c.Messages(message)...)
		}
	}
	return raw
}

// changes reports whether the payload is new: what a server accepted once may stay.
func (c *check) changes(payload json.RawMessage) bool {
	return c.before == nil || !bytes.Equal(payload, c.before.Payload)
}

// unmask restores the secrets of the stored payload, unless they would go elsewhere: an
// editor who cannot read a secret must not be able to send it to another server.
func (c *check) unmask(raw json.RawMessage, kind string) json.RawMessage {
	var stored json.RawMessage
	moved := ""
	switch {
	case c.before == nil:
	case bytes.Equal(raw, c.before.Payload):
		return raw
	case kind != c.before.Type:
		moved = "the job is of another type now"
	case !SameTarget(kind, raw, c.before.Payload):
		moved = "it goes to another target now"
	default:
		stored = c.before.Payload
	}
	raw, errors := secret.Unmask(raw, stored)
	for i := range errors {
		if moved != "" {
			errors[i].Message = "is masked, and " + moved + "; give the secret itself"
		}
	}
	c.add(errors...)
	return raw
}

// SameTarget reports whether two payloads of jobs of a type go to the same place: for HTTP
// to the same scheme, host and port, for a message to the same topic of a connection, for
// a command to the same one.
func SameTarget(kind string, a, b json.RawMessage) bool {
	if kind == belfry.TypeMessage {
		x, y := jsontext.Object(a), jsontext.Object(b)
		return bytes.Equal(x["connection"], y["connection"]) && bytes.Equal(x["topic"], y["topic"])
	}
	if kind == belfry.TypeCommand {
		return commandHandler(a) == commandHandler(b)
	}
	if kind != belfry.TypeHTTP {
		return true
	}
	from, ok := origin(a)
	to, too := origin(b)
	return ok && too && from == to
}

func origin(payload json.RawMessage) (string, bool) {
	var text string
	if json.Unmarshal(jsontext.Object(payload)["url"], &text) != nil {
		return "", false
	}
	return Origin(text)
}

// Origin is the scheme, host and port of an address, if it has them.
func Origin(address string) (string, bool) {
	u, err := url.Parse(strings.TrimSpace(address))
	if err != nil || u.Host == "" {
		return "", false
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
	}
	return strings.ToLower(u.Scheme + "://" + u.Hostname() + ":" + port), true
}

func tooLarge(n int) string {
	return fmt.Sprintf("has %d bytes, the maximum is %d", n, belfry.MaxPayload)
}

// Payload returns the payload of a run of a job for which a request overrides it: all
// of it for type worker, the body for an HTTP request or a message. Masked secrets stay
// what they are with keep, and are errors without it.
func Payload(job belfry.Job, override json.RawMessage, keep bool) (json.RawMessage, []belfry.FieldError) {
	fail := func(message string) (json.RawMessage, []belfry.FieldError) {
		return nil, []belfry.FieldError{{Field: "payload", Message: message}}
	}
	var compact bytes.Buffer
	if json.Compact(&compact, override) != nil {
		return fail("must be JSON")
	}
	if compact.Len() > belfry.MaxPayload {
		return fail(tooLarge(compact.Len()))
	}
	if job.Type == belfry.TypeCommand {
		if commandHandler(compact.Bytes()) != job.Handler {
			return fail("must be for the command of the job")
		}
		if _, errors := command.ParsePayload(compact.Bytes()); len(errors) > 0 {
			return nil, errors
		}
	}
	if !hasBody(job.Type) {
		return secret.Unmask(compact.Bytes(), kept(job.Payload, keep))
	}
	members := jsontext.Object(job.Payload)
	if job.Type == belfry.TypeHTTP {
		request, errors := target.ParseHTTP(job.Payload)
		if len(errors) > 0 {
			return fail("cannot be sent: the payload of the job is not valid")
		}
		if (request.Method == "GET" || request.Method == "HEAD") && compact.String() != "null" {
			return fail("becomes the body of the request, and a " + request.Method + " request has none")
		}
	}
	body, errors := secret.Unmask(compact.Bytes(), kept(members["body"], keep))
	if len(errors) > 0 {
		return nil, errors
	}
	members["body"] = body
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(members); err != nil {
		return fail("cannot be merged into the payload of the job")
	}
	whole := bytes.TrimSpace(out.Bytes())
	if len(whole) > belfry.MaxPayload {
		return fail("together with the payload of the job " + tooLarge(len(whole)))
	}
	return whole, nil
}

// kept is the payload whose secrets masked values stand for, if any.
func kept(stored json.RawMessage, keep bool) json.RawMessage {
	if !keep {
		return nil
	}
	return stored
}

// OwnPayload is what a request put into the payload of a run, to be used with another
// revision of its job: all of it for type worker, the body for an HTTP request or a
// message. It is nil if there is none, or if the job is of another type now.
func OwnPayload(fired, now string, payload json.RawMessage) json.RawMessage {
	switch {
	case fired != now:
		return nil
	case hasBody(now):
		return jsontext.Object(payload)["body"]
	}
	return payload
}
