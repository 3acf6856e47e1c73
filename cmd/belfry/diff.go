package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"strings"

	"github.com/belfry-sh/belfry"
)

// members are the fields of a job that people set, as JSON; what is not set is
// not there.
type members map[string]json.RawMessage

// settable gives the fields of a job that people set.
func settable(job belfry.Job) (members, error) {
	raw, err := json.Marshal(job)
	if err != nil {
		return nil, fmt.Errorf("write a job: %w", err)
	}
	var all members
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("write a job: %w", err)
	}
	maps.DeleteFunc(all, func(name string, _ json.RawMessage) bool {
		_, known := fieldNamed(name)
		return !known
	})
	all["status"] = json.RawMessage(`"active"`)
	if job.Status == belfry.StatusPaused {
		all["status"] = json.RawMessage(`"paused"`)
	}
	return all, nil
}

// change is a field that differs. A missing side is nil.
type change struct {
	field    string
	old, new json.RawMessage
}

// changes compares two jobs field by field, and payloads member by member.
// Secrets are compared as far as they are shown.
func changes(old, new members) []change {
	var out []change
	for _, f := range fields {
		a, b := old[f.name], new[f.name]
		if f.name == "payload" {
			a, b = secret.Mask(a), secret.Mask(b)
		}
		out = append(out, compare(f.name, a, b)...)
	}
	return out
}

// compare gives the differences between two values, one for each member of an
// object that differs.
func compare(path string, a, b json.RawMessage) []change {
	if same(a, b) {
		return nil
	}
	var x, y map[string]json.RawMessage
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil || x == nil || y == nil {
		return []change{{path, a, b}}
	}
	names := slices.AppendSeq(slices.Collect(maps.Keys(x)), maps.Keys(y))
	slices.Sort(names)
	var out []change
	for _, name := range slices.Compact(names) {
		out = append(out, compare(path+"."+name, x[name], y[name])...)
	}
	return out
}

// same tells whether two JSON values mean the same: neither the order of members
// nor the way a number is written matters.
func same(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if a == nil || b == nil {
		return false
	}
	return reflect.DeepEqual(meaning(a), meaning(b))
}

func meaning(raw json.RawMessage) any {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return string(raw)
	}
	return settleNumbers(v)
}

// settleNumbers writes every number in one way.
func settleNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if _, exponent, _ := strings.Cut(strings.ToLower(v.String()), "e"); len(exponent) > 4 {
			return v
		}
		if r, ok := new(big.Rat).SetString(v.String()); ok {
			return json.Number(r.RatString())
		}
	case map[string]any:
		for k, inner := range v {
			v[k] = settleNumbers(inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = settleNumbers(inner)
		}
	}
	return v
}

// changed names the fields that differ, each once and without what is in them.
func changed(list []change) []string {
	var names []string
	for _, c := range list {
		name, _, _ := strings.Cut(c.field, ".")
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// String shows a difference on one line.
func (c change) String() string {
	switch {
	case c.old == nil:
		return fmt.Sprintf("+ %s: %s", safe(c.field), brief(c.new))
	case c.new == nil:
		return fmt.Sprintf("- %s: %s", safe(c.field), brief(c.old))
	}
	return fmt.Sprintf("~ %s: %s -> %s", safe(c.field), brief(c.old), brief(c.new))
}

func (c change) colour() string {
	switch {
	case c.old == nil:
		return green
	case c.new == nil:
		return red
	}
	return yellow
}

// brief shows a JSON value in a line that can be read.
func brief(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return shorten(safe(string(raw)), 200)
	}
	return shorten(safe(b.String()), 200)
}
