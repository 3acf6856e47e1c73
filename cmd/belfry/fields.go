package main

import (
	"slices"
	"strings"

	"github.com/belfry-sh/belfry"
)

// kind is what a field of a job holds.
type kind int

const (
	text      kind = iota // text, however it is written in YAML
	texts                 // a list of texts
	plainJSON             // whatever it says
)

// field is a member of a job that people set.
type field struct {
	name string
	kind kind
}

// fields are the members of a job that people set, in the order of their
// importance.
var fields = []field{
	{"name", text},
	{"tags", texts},
	{"type", text},
	{"handler", text},
	{"schedule", text},
	{"timezone", text},
	{"dst_gap", text},
	{"dst_overlap", text},
	{"starts_at", text},
	{"ends_at", text},
	{"max_runs", plainJSON},
	{"jitter_seconds", plainJSON},
	{"payload", plainJSON},
	{"missed_window", text},
	{"max_missed", plainJSON},
	{"catch_up_window_seconds", plainJSON},
	{"queue", text},
	{"priority", text},
	{"overlap", text},
	{"max_queued", plainJSON},
	{"timeout_seconds", plainJSON},
	{"max_retries", plainJSON},
	{"retry_on", text},
	{"retry_backoff", text},
	{"retry_base_seconds", plainJSON},
	{"retry_cap_seconds", plainJSON},
	{"retry_jitter", plainJSON},
	{"retry_delays", plainJSON},
	{"retention_days", plainJSON},
	{"idempotency_key_template", text},
	{"status", text},
}

// shownFields are those that only the server sets. They are accepted without
// effect, so that a job that was printed can be handed back.
var shownFields = []string{"id", "namespace", "revision", "resolved_schedule", "next_run_at", "last_run_at", "parked", "ended_at", "created_at", "updated_at"}

func fieldNamed(name string) (field, bool) {
	i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
	if i < 0 {
		return field{}, false
	}
	return fields[i], true
}

func fieldNames() []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return names
}

// unknownField says what to do about a field that there is not.
func unknownField(name string) string {
	switch name {
	case "url", "method", "headers", "body":
		return name + " belongs into payload"
	}
	if near := schema.Nearest(name, fieldNames()); near != "" {
		return name + " is not known; did you mean " + near + "?"
	}
	return name + " is not known; there are " + strings.Join(fieldNames(), ", ")
}
