package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
)

// wanted gives a declared job as the server will show it: with the defaults of
// what is left out. It is what a dry run compares; the server has the last word.
func wanted(d declaration, current members) (members, error) {
	raw, err := json.Marshal(belfry.DefaultSpec())
	if err != nil {
		return nil, fmt.Errorf("write a job: %w", err)
	}
	var out members
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, fmt.Errorf("write a job: %w", err)
	}
	maps.DeleteFunc(out, func(_ string, value json.RawMessage) bool { return string(value) == `""` })
	for name, value := range d.members {
		if string(value) == `""` {
			continue // An empty text counts as left out.
		}
		out[name] = value
	}
	out["name"] = json.RawMessage(quote(d.name))
	for _, name := range []string{"type", "overlap", "retry_on", "retry_backoff", "missed_window", "status", "dst_gap", "dst_overlap"} {
		out.rewrite(name, strings.ToLower)
	}
	out.timing()
	out.rewrite("schedule", strings.TrimSpace)
	out.target(d.name)
	out.tags()
	out.longestPause(d)
	out.policies(d)
	if status := out.text("status"); status != "" && status != string(belfry.StatusPaused) {
		out["status"] = json.RawMessage(`"active"`)
	}
	out.silent(d, current)
	return out, nil
}

// text gives a field that is text; empty if it is not.
func (m members) text(name string) string {
	var s string
	if json.Unmarshal(m[name], &s) != nil {
		return ""
	}
	return s
}

func (m members) rewrite(name string, by func(string) string) {
	if s := m.text(name); s != "" {
		m[name] = json.RawMessage(quote(by(s)))
	}
}

// target fills in what runs the job, as the server does: HTTP if there is a URL,
// and otherwise a handler by the name of the job.
func (m members) target(name string) {
	if m["type"] == nil {
		var payload map[string]json.RawMessage
		kind := belfry.TypeWorker
		if json.Unmarshal(m["payload"], &payload) == nil && payload["url"] != nil {
			kind = belfry.TypeHTTP
		}
		if m["handler"] != nil {
			kind = belfry.TypeWorker
		}
		m["type"] = json.RawMessage(quote(kind))
	}
	if m.text("type") == belfry.TypeWorker && m["handler"] == nil {
		m["handler"] = json.RawMessage(quote(name))
	}
}

// timing brings what stands beside a schedule into the form in which the server
// shows it: instants in UTC, and nothing of what has its default.
func (m members) timing() {
	for _, name := range []string{"starts_at", "ends_at"} {
		m.rewrite(name, func(text string) string {
			var at time.Time
			if at.UnmarshalText([]byte(text)) != nil {
				return text
			}
			return at.UTC().Truncate(time.Microsecond).Format(time.RFC3339Nano)
		})
	}
	if m.text("dst_overlap") == "auto" {
		delete(m, "dst_overlap")
	}
	for _, name := range []string{"max_runs", "jitter_seconds", "max_missed", "catch_up_window_seconds", "max_queued", "retention_days"} {
		if string(m[name]) == "0" {
			delete(m, name)
		}
	}
}

// tags brings the tags into the order in which the server keeps them.
func (m members) tags() {
	var tags []string
	if json.Unmarshal(m["tags"], &tags) != nil {
		return
	}
	slices.Sort(tags)
	tags = slices.Compact(tags)
	if len(tags) == 0 {
		delete(m, "tags")
		return
	}
	raw, err := json.Marshal(tags)
	if err == nil {
		m["tags"] = raw
	}
}

// policies brings the policies into the form in which the server shows them. A list
// of pauses takes the place of a backoff that the file does not choose, and says
// how many retries there are.
func (m members) policies(d declaration) {
	m.rewrite("priority", func(text string) string {
		if p, err := belfry.ParsePriority(text); err == nil {
			return p.String()
		}
		return text
	})
	if m.text("retry_on") == everyFailure {
		delete(m, "retry_on")
	}
	var delays []json.Number
	if json.Unmarshal(m["retry_delays"], &delays) != nil {
		return
	}
	if len(delays) == 0 {
		delete(m, "retry_delays")
		return
	}
	if backoff := m.text("retry_backoff"); backoff == string(belfry.BackoffExponential) {
		m["retry_backoff"] = json.RawMessage(quote(string(belfry.BackoffList)))
	}
	if d.members["max_retries"] == nil {
		m["max_retries"] = json.RawMessage(strconv.Itoa(len(delays)))
	}
}

// longestPause is at least the first one, where the file says only that.
func (m members) longestPause(d declaration) {
	var base, most float64
	if d.members["retry_base_seconds"] == nil || d.members["retry_cap_seconds"] != nil ||
		json.Unmarshal(m["retry_base_seconds"], &base) != nil || json.Unmarshal(m["retry_cap_seconds"], &most) != nil {
		return
	}
	if base > most {
		m["retry_cap_seconds"] = m["retry_base_seconds"]
	}
}

// silent leaves alone what a file says nothing of and the server decides: whether
// a job is paused, the zone that its schedule may name, and from when on an
// interval is counted.
func (m members) silent(d declaration, current members) {
	if m["status"] == nil {
		m["status"] = json.RawMessage(`"active"`)
		if current["status"] != nil {
			m["status"] = current["status"]
		}
	}
	schedule := strings.ToUpper(m.text("schedule"))
	if d.members["timezone"] == nil && current["timezone"] != nil && (strings.Contains(schedule, "TZ=") || strings.Contains(schedule, "TZID=")) {
		m["timezone"] = current["timezone"]
	}
	if d.members["starts_at"] == nil && current["starts_at"] != nil && same(m["schedule"], current["schedule"]) && unanchored(m.text("schedule"), m.text("timezone")) {
		m["starts_at"] = current["starts_at"]
	}
}
