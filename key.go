package belfry

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Limits on idempotency keys.
const (
	MaxKeyTemplate = 200 // bytes of a template
	maxKey         = 255 // bytes that a template may give: others have limits too
)

// keyFields are what a template may name, and what each stands for. The instant is
// in the zone of the job.
var keyFields = map[string]func(job ID, name string, at time.Time) string{
	"job_id":       func(job ID, _ string, _ time.Time) string { return job.String() },
	"name":         func(_ ID, name string, _ time.Time) string { return url.PathEscape(name) }, // keys are ASCII
	"scheduled_at": func(_ ID, _ string, at time.Time) string { return at.Format(time.RFC3339Nano) },
	"unix":         func(_ ID, _ string, at time.Time) string { return fmt.Sprint(at.Unix()) },
	"hour":         func(_ ID, _ string, at time.Time) string { return at.Format("2006-01-02T15-07:00") },
	"date":         func(_ ID, _ string, at time.Time) string { return at.Format(time.DateOnly) },
	"month":        func(_ ID, _ string, at time.Time) string { return at.Format("2006-01") },
	"year":         func(_ ID, _ string, at time.Time) string { return at.Format("2006") },
	"week": func(_ ID, _ string, at time.Time) string {
		year, week := at.ISOWeek()
		return fmt.Sprintf("%04d-W%02d", year, week)
	},
}

var keyFieldNames = []string{"job_id", "name", "scheduled_at", "unix", "date", "week", "month", "year", "hour"}

// KeyTemplate gives runs their idempotency keys: text in which {{week}}, {{date}}
// and the like stand for parts of the scheduled instant. The nil template gives
// none.
type KeyTemplate struct {
	parts []keyPart
	named bool // it has {{name}}
}

type keyPart struct{ text, field string } // one of the two

// ParseKeyTemplate reads a template, or says what is wrong with it in words that
// fit behind the name of a field. The empty text is no template.
func ParseKeyTemplate(text string) (*KeyTemplate, error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > MaxKeyTemplate {
		return nil, fmt.Errorf("has %d bytes, the most is %d", len(text), MaxKeyTemplate)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, fmt.Errorf("may only have printable ASCII characters, since it becomes a header")
	}
	return parseTemplate(text, keyFieldNames)
}

// parseTemplate reads a template that may name some fields.
func parseTemplate(text string, fields []string) (*KeyTemplate, error) {
	t := &KeyTemplate{}
	for rest := text; rest != ""; {
		before, after, found := strings.Cut(rest, "{{")
		if strings.Contains(before, "}}") {
			return nil, fmt.Errorf("closes }} that it did not open; for example report-{{week}}")
		}
		if before != "" {
			t.parts = append(t.parts, keyPart{text: before})
		}
		if !found {
			break
		}
		inner, next, closed := strings.Cut(after, "}}")
		field := strings.TrimSpace(inner)
		switch {
		case !closed:
			return nil, fmt.Errorf("opens {{ and does not close it; for example report-{{week}}")
		case !slices.Contains(fields, field):
			return nil, fmt.Errorf("has no field {{%.40s}}; there are {{%s}}", field, strings.Join(fields, "}}, {{"))
		}
		t.parts = append(t.parts, keyPart{field: field})
		t.named = t.named || field == "name"
		rest = next
	}
	return t, nil
}

// String is the template in its normal form, without blanks in its braces.
func (t *KeyTemplate) String() string {
	return t.fill(func(field string) string { return "{{" + field + "}}" })
}

// fill is the template with values in place of its fields; empty for nil.
func (t *KeyTemplate) fill(value func(field string) string) string {
	if t == nil {
		return ""
	}
	var b strings.Builder
	for _, p := range t.parts {
		if p.field == "" {
			b.WriteString(p.text)
		} else {
			b.WriteString(value(p.field))
		}
	}
	return b.String()
}

// UsesName tells whether keys depend on the name of the job.
func (t *KeyTemplate) UsesName() bool { return t != nil && t.named }

// Render gives the key of an occurrence at an instant in the zone of the job. A
// key that would be too long, since a name is, ends in a hash of all of it.
func (t *KeyTemplate) Render(job ID, name string, at time.Time) string {
	key := t.fill(func(field string) string { return keyFields[field](job, name, at) })
	if len(key) <= maxKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	end := "~" + hex.EncodeToString(sum[:16])
	return key[:maxKey-len(end)] + end
}
