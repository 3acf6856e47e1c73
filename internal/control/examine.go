package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/belfry-sh/belfry"
)

// Limits on what a spec may ask for.
const (
	maxTimeoutSeconds = 24 * 60 * 60
	maxRetries        = 100
	maxBaseSeconds    = 24 * 60 * 60
	maxCapSeconds     = 7 * 24 * 60 * 60
	maxJitter         = 0.25
)

var queues = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,100}$`)

// examination collects what is wrong with a draft while it brings it into the
// form that is stored.
type examination struct {
	now    time.Time
	faults []belfry.Fault
}

// examine returns the draft as it would be stored, and all its faults.
func examine(d Draft, now time.Time) (Draft, []belfry.Fault) {
	e := examination{now: now}
	d.Name = e.name(d.Name)
	var known bool
	d.Spec.Type, known = e.jobType(d)
	e.schedule(&d.Spec)
	d.Payload = e.payload(d.Payload, known)
	e.delivery(&d.Spec)
	e.retries(&d.Spec)
	return d, e.faults
}

func (e *examination) fault(field, format string, args ...any) {
	e.faults = append(e.faults, belfry.Fault{Field: field, Message: fmt.Sprintf(format, args...)})
}

func (e *examination) between(field string, value, low, high float64) {
	if !(value >= low && value <= high) {
		e.fault(field, "must be from %v to %v, not %v", low, high, value)
	}
}

func (e *examination) name(name string) string {
	trimmed := strings.TrimSpace(name)
	switch {
	case name == "":
	case trimmed == "":
		e.fault("name", "must not be blank; leave it out for a job without a name")
	case !utf8.ValidString(name):
		e.fault("name", "must be valid UTF-8")
	case strings.ContainsFunc(trimmed, invisible):
		e.fault("name", "must not have control characters")
	case utf8.RuneCountInString(trimmed) > belfry.MaxName:
		e.fault("name", "has %d characters, the most is %d", utf8.RuneCountInString(trimmed), belfry.MaxName)
	}
	return trimmed
}

// invisible tells characters that would garble a line of text: controls, line
// separators and those that turn the direction of writing around.
func invisible(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' ||
		r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}

// jobType returns the type in lower case, and whether it is one that there is.
func (e *examination) jobType(d Draft) (name string, known bool) {
	name = strings.ToLower(d.Spec.Type)
	if name == "" {
		var target struct{ URL json.RawMessage }
		if json.Unmarshal(d.Payload, &target) == nil && target.URL != nil {
			name = belfry.TypeHTTP
		}
	}
	switch name {
	case belfry.TypeHTTP:
		return name, true
	case "":
		e.fault("type", "is missing; accepted is %q", belfry.TypeHTTP)
	default:
		e.fault("type", "there is no type %.40q; accepted is %q", d.Spec.Type, belfry.TypeHTTP)
	}
	return name, false
}

// payload returns the payload without needless blanks. What is in it is looked at
// only if the type is known.
func (e *examination) payload(raw json.RawMessage, known bool) json.RawMessage {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		if known {
			e.fault("payload", `is missing; for example {"url": "https://example.com/hook"}`)
		}
		return nil
	}
	var compact bytes.Buffer
	if raw[0] != '{' || json.Compact(&compact, raw) != nil {
		e.fault("payload", `must be a JSON object; for example {"url": "https://example.com/hook"}`)
		return nil
	}
	if compact.Len() > belfry.MaxPayload {
		e.fault("payload", "has %d bytes, the most is %d", compact.Len(), belfry.MaxPayload)
		return nil
	}
	if known {
		_, faults := belfry.ParseHTTP(compact.Bytes())
		e.faults = append(e.faults, faults...)
	}
	return compact.Bytes()
}

// delivery checks how a run reaches a worker.
func (e *examination) delivery(s *belfry.Spec) {
	if !queues.MatchString(s.Queue) {
		e.fault("queue", "must have 1 to 100 letters, digits, dots, underscores and hyphens")
	}
	s.Overlap = belfry.Overlap(strings.ToLower(string(s.Overlap)))
	if s.Overlap != belfry.OverlapSkip && s.Overlap != belfry.OverlapParallel {
		e.fault("overlap", "must be %q or %q", belfry.OverlapSkip, belfry.OverlapParallel)
	}
	e.between("timeout_seconds", float64(s.TimeoutSeconds), 1, maxTimeoutSeconds)
}

func (e *examination) retries(s *belfry.Spec) {
	e.between("max_retries", float64(s.MaxRetries), 0, maxRetries)
	s.RetryBackoff = belfry.Backoff(strings.ToLower(string(s.RetryBackoff)))
	if s.RetryBackoff != belfry.BackoffExponential {
		e.fault("retry_backoff", "must be %q", belfry.BackoffExponential)
	}
	e.between("retry_base_seconds", s.RetryBaseSeconds, 0, maxBaseSeconds)
	e.between("retry_cap_seconds", s.RetryCapSeconds, 0, maxCapSeconds)
	if s.RetryBaseSeconds <= maxBaseSeconds && s.RetryBaseSeconds > s.RetryCapSeconds {
		e.fault("retry_cap_seconds", "must be at least retry_base_seconds, which is %v", s.RetryBaseSeconds)
	}
	e.between("retry_jitter", s.RetryJitter, 0, maxJitter)
}
