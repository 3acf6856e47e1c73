package control

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/secret"
	"github.com/belfry-sh/belfry/internal/validate"
)

// planned is a job with another plan, and the status that follows from it as far as it
// does not depend on its runs.
func planned(job belfry.Job, p plan.Plan) belfry.Job {
	if job.NextRunAt = nil; !p.NextAt.IsZero() {
		job.NextRunAt = &p.NextAt
	}
	switch {
	case job.State == belfry.JobPaused:
		job.Status = belfry.StatusPaused
	case job.Status == belfry.StatusRunning || job.Status == belfry.StatusQueued:
	case job.NextRunAt != nil:
		job.Status = belfry.StatusScheduled
	case job.Status == belfry.StatusPaused || job.Status == belfry.StatusScheduled:
		job.Status = belfry.StatusCancelled
	}
	return job
}

// membersOf are the fields of a job that requests may set, as JSON. Unset ones are
// missing.
func membersOf(m belfry.Manifest, state belfry.JobState) (out map[string]json.RawMessage) {
	if m.Status = belfry.StatusActive; state == belfry.JobPaused {
		m.Status = belfry.StatusPaused
	}
	m.Payload = secret.Mask(m.Payload)
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	// A valid manifest always has a JSON form.
	_ = encoder.Encode(m)
	_ = json.Unmarshal(text.Bytes(), &out)
	return out
}

// changedFields compares two versions of a job field by field, in the order of their
// declaration, and payloads member by member.
func changedFields(before, after belfry.Job) []belfry.FieldChange {
	changes := []belfry.FieldChange{}
	old, new := membersOf(before.Manifest, before.State), membersOf(after.Manifest, after.State)
	for _, name := range schema.For[belfry.Manifest]().Names() {
		list := compareJSON(name, old[name], new[name])
		if name == "payload" && len(list) == 0 && !sameJSON(before.Payload, after.Payload) { // A secret changed.
			list = []belfry.FieldChange{{Field: name, Old: old[name], New: new[name]}}
		}
		changes = append(changes, list...)
	}
	return changes
}

// auditedFields is changedFields for the audit: a deleted job has no fields afterwards.
func auditedFields(before, after belfry.Job) []belfry.FieldChange {
	if after.State != belfry.JobDeleted {
		return changedFields(before, after)
	}
	changes := createdFields(before, validate.Input{})
	for i := range changes {
		changes[i].Old, changes[i].New = changes[i].New, nil
	}
	return changes
}

// createdFields lists the fields of a new job that the input sets or that differ from
// their defaults.
func createdFields(job belfry.Job, input validate.Input) []belfry.FieldChange {
	changes := []belfry.FieldChange{}
	defaults := belfry.Manifest{Spec: belfry.DefaultSpec()}
	defaults.Timezone = time.UTC.String()
	set, old, new := membersOf(input.Manifest, ""), membersOf(defaults, belfry.JobActive), membersOf(job.Manifest, job.State)
	set["status"] = nil
	for _, name := range schema.For[belfry.Manifest]().Names() {
		given := set[name] != nil && (input.Fields == nil || input.Fields.Has(name))
		if new[name] != nil && (given || !equalJSON(old[name], new[name])) {
			changes = append(changes, belfry.FieldChange{Field: name, New: new[name]})
		}
	}
	return changes
}

// compareJSON lists the differences between two values: one for each member of objects
// that differs.
func compareJSON(path string, old, new json.RawMessage) []belfry.FieldChange {
	if equalJSON(old, new) {
		return nil
	}
	var x, y map[string]json.RawMessage
	if json.Unmarshal(old, &x) != nil || json.Unmarshal(new, &y) != nil || x == nil || y == nil {
		return []belfry.FieldChange{{Field: path, Old: old, New: new}}
	}
	names := slices.AppendSeq(slices.Collect(maps.Keys(x)), maps.Keys(y))
	slices.Sort(names)
	var changes []belfry.FieldChange
	for _, name := range slices.Compact(names) {
		changes = append(changes, compareJSON(path+"."+name, x[name], y[name])...)
	}
	return changes
}

// equalJSON reports whether two values mean the same, whatever the order of members and
// the notation of numbers.
func equalJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	return a != nil && b != nil && reflect.DeepEqual(decodeValue(a), decodeValue(b))
}

func decodeValue(raw json.RawMessage) any {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return string(raw)
	}
	return normalizeNumbers(v)
}

// normalizeNumbers writes every number in one notation. Huge exponents stay as they are.
func normalizeNumbers(v any) any {
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
			v[k] = normalizeNumbers(inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = normalizeNumbers(inner)
		}
	}
	return v
}

// sameJSON reports whether two values differ in white space and escapes at most: then
// they are one revision.
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

// sameSpec reports whether two specs are equal, whatever the location of their times.
func sameSpec(a, b belfry.Spec) bool {
	same := a.StartsAt.Equal(b.StartsAt) && a.EndsAt.Equal(b.EndsAt)
	a.StartsAt, a.EndsAt = b.StartsAt, b.EndsAt
	return same && a == b
}
