package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/belfry-sh/belfry"
)

// target settles the type of a draft and its handler. It reports whether the type
// is one that there is.
func (e *examination) target(d *Draft) (known bool) {
	s := &d.Spec
	s.Handler = strings.TrimSpace(s.Handler)
	told := s.Type == ""
	if s.Type = strings.ToLower(s.Type); told {
		s.Type = belfry.TypeWorker
		if hasURL(d.Payload) {
			s.Type = belfry.TypeHTTP
		}
	}
	switch s.Type {
	case belfry.TypeHTTP:
		if s.Handler != "" && told {
			e.fault("handler", `is only for jobs of type %q; say that it is one, since its payload has a "url"`, belfry.TypeWorker)
		} else if s.Handler != "" {
			e.fault("handler", "is only for jobs of type %q; leave it out", belfry.TypeWorker)
		}
		return true
	case belfry.TypeWorker:
		e.handler(d, told)
		return true
	}
	e.fault("type", "there is no type %.40q; there are %q and %q", s.Type, belfry.TypeHTTP, belfry.TypeWorker)
	return false
}

// handler settles the handler of a job for a worker.
func (e *examination) handler(d *Draft, told bool) {
	s := &d.Spec
	switch {
	case s.Handler != "":
		if problem := checkHandler(s.Handler); problem != "" {
			e.fault("handler", "%s", problem)
		}
	case d.Name != "":
		s.Handler = d.Name
		if problem := checkHandler(d.Name); problem != "" {
			e.fault("handler", "is missing, and the name cannot stand for it: %s", problem)
		}
	case told:
		e.fault("handler", `is missing; a job without a "url" in its payload is for a worker and needs a handler or a name`)
	default:
		e.fault("handler", "is missing, and there is no name that could stand for it")
	}
}

// hasURL reports whether a payload is an object with a field "url".
func hasURL(payload json.RawMessage) bool {
	if !bytes.Contains(payload, []byte(`"url"`)) && !bytes.Contains(payload, []byte(`\`)) {
		return false
	}
	return belfry.HasMember(payload, "url")
}

const payloadExample = `for example {"url": "https://example.com/hook"}`

// payload returns the payload without needless blanks and with its secrets. What
// is in it is looked at only if the type is known.
func (e *examination) payload(raw json.RawMessage, kind string, known bool) json.RawMessage {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		if known && kind == belfry.TypeHTTP {
			e.fault("payload", "is missing; "+payloadExample)
		}
		return nil
	}
	raw = e.unmask(raw)
	compact := bytes.NewBuffer(make([]byte, 0, len(raw)))
	worker := kind == belfry.TypeWorker
	if json.Compact(compact, raw) != nil || !worker && raw[0] != '{' {
		if worker {
			e.fault("payload", "must be JSON")
		} else {
			e.fault("payload", "must be a JSON object; "+payloadExample)
		}
		return nil
	}
	if compact.Len() > belfry.MaxPayload {
		e.fault("payload", "%s", sized(compact.Len()))
		return nil
	}
	if known && kind == belfry.TypeHTTP {
		_, faults := target.ParseHTTP(compact.Bytes())
		e.faults = append(e.faults, faults...)
	}
	return compact.Bytes()
}

func sized(n int) string { return fmt.Sprintf("has %d bytes, the most is %d", n, belfry.MaxPayload) }

// unmask puts back the secrets that the job had before the edit.
func (e *examination) unmask(raw json.RawMessage) json.RawMessage {
	var stored json.RawMessage
	if e.job != nil {
		stored = e.job.Payload
	}
	if bytes.Equal(raw, stored) {
		return raw
	}
	raw, faults := secret.Unmask(raw, stored)
	e.faults = append(e.faults, faults...)
	return raw
}

// sameJSON reports whether two values differ in white space and escapes at most.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	left, right := json.NewDecoder(bytes.NewReader(a)), json.NewDecoder(bytes.NewReader(b))
	left.UseNumber()
	right.UseNumber()
	for {
		x, err := left.Token()
		y, other := right.Token()
		if err != nil || other != nil {
			return err == io.EOF && other == io.EOF
		}
		if x != y {
			return false
		}
	}
}
