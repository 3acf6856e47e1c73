package control

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/secret"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/validate"
)

// Audit records something that changes nothing else in the store, such as a login that failed.
// What the entry leaves out is filled in: its id, and who made the request of ctx; without that,
// the actor is unknown. It must have no secret, and callers limit how often strangers cause one.
//
// A change of the store is recorded by the write itself, so that neither is without the other:
//
//	ctx, audit := c.audited(ctx, belfry.AuditEntry{Namespace: namespace, Action: belfry.AuditDelete, Object: …})
//	err = retryUnknown(ctx, "delete a secret", func() error { return c.store.DeleteSecret(ctx, …) })
//
// That records the entry if the write succeeds. audit.SetChange adds what changed, in the function
// that the store calls for it if there is one; see auditChange, and mask secrets first. A write
// that may find nothing to do calls store.AuditOf(ctx).Done in its transaction, and the caller
// SetWhenDone. Writes of a store whose statements do not go through sqlstore.DB or the transactions
// that have RecordAudit must call it. TestEveryOperationIsAudited finds operations without an entry.
func (c *Control) Audit(ctx context.Context, e belfry.AuditEntry) error {
	e = c.auditEntry(auth.Of(ctx), e)
	return retryUnknown(ctx, "record an audit entry", func() error { return c.store.AddAudit(ctx, e) })
}

// audited returns a context for one write, which records an entry. If nobody requested it,
// because the node acts by itself, it records nothing.
func (c *Control) audited(ctx context.Context, e belfry.AuditEntry) (context.Context, *store.Audit) {
	p := auth.Of(ctx)
	if p == nil {
		return ctx, nil
	}
	a := &store.Audit{Entry: c.auditEntry(p, e)}
	a.Set(a.Entry)
	return store.WithAudit(ctx, a), a
}

func (c *Control) auditEntry(p *auth.Principal, e belfry.AuditEntry) belfry.AuditEntry {
	if e.ID.IsZero() {
		e.ID = belfry.NewID(c.now())
	}
	e.At = e.ID.Time()
	if p == nil {
		p = &auth.Principal{Actor: belfry.Actor{Kind: belfry.ActorUnknown}}
	}
	if e.Actor == (belfry.Actor{}) {
		e.Actor = p.Actor
	}
	e.Address, e.RequestID = cmp.Or(e.Address, p.Address), cmp.Or(e.RequestID, p.RequestID)
	return e
}

// objectEntry is the entry of an action on something of a namespace.
func objectEntry(action belfry.AuditAction, kind belfry.AuditKind, namespace, id, name string) belfry.AuditEntry {
	return belfry.AuditEntry{Namespace: namespace, Action: action, Object: belfry.AuditObject{Kind: kind, ID: id, Name: name}}
}

// jobEntry is the entry of an action on a job.
func jobEntry(action belfry.AuditAction, namespace string, id belfry.ID, name string) belfry.AuditEntry {
	e := objectEntry(action, belfry.AuditJob, namespace, id.String(), name)
	e.JobID = id
	return e
}

// What an entry keeps of a change.
const (
	maxAuditValue = 2 << 10 // bytes of a field
	maxAuditSide  = 8 << 10 // bytes of all fields before or after
)

// auditChange is both sides of a change as an entry has them. The values must be masked.
func auditChange(changes []belfry.FieldChange) (before, after []byte) {
	side := func(value func(belfry.FieldChange) json.RawMessage) []byte {
		fields, size := map[string]json.RawMessage{}, 0
		for i, change := range changes {
			v := cutJSON(value(change))
			if v == nil {
				continue
			}
			if size += len(change.Field) + len(v); size > maxAuditSide {
				fields["…"] = belfry.MustJSON(len(changes) - i) // so many more
				break
			}
			fields[change.Field] = v
		}
		if len(fields) == 0 {
			return nil
		}
		return belfry.MustJSON(fields)
	}
	return side(func(c belfry.FieldChange) json.RawMessage { return c.Old }), side(func(c belfry.FieldChange) json.RawMessage { return c.New })
}

// cutJSON is a value as it is, or the beginning of its text if it is long.
func cutJSON(v json.RawMessage) json.RawMessage {
	if len(v) <= maxAuditValue {
		return v
	}
	end := maxAuditValue
	for end > 0 && !utf8.RuneStart(v[end]) {
		end--
	}
	return belfry.MustJSON(string(v[:end]) + "…")
}

// auditFields lists the members of two JSON objects that differ, as mask shows them. Either may
// be empty.
func auditFields[T any](before, after *T, encode func(T) string, mask func(T) T) (changes []belfry.FieldChange) {
	members := func(v *T, mask func(T) T) (m map[string]json.RawMessage) {
		if v != nil {
			_ = json.Unmarshal([]byte(encode(mask(*v))), &m) // which the program wrote
		}
		return m
	}
	all := func(v T) T { return v }
	old, new, oldShown, newShown := members(before, all), members(after, all), members(before, mask), members(after, mask)
	names := slices.AppendSeq(slices.Collect(maps.Keys(old)), maps.Keys(new))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if !equalJSON(old[name], new[name]) {
			changes = append(changes, belfry.FieldChange{Field: name, Old: oldShown[name], New: newShown[name]})
		}
	}
	return changes
}

// auditObject is a change of something without secrets; nil: it is created or deleted.
func auditObject[T any](before, after *T) (_, _ []byte) {
	encode := func(v T) string { return string(belfry.MustJSON(v)) }
	return auditChange(auditFields(before, after, encode, func(v T) T { return v }))
}

// ListAudit returns the audit entries that match a filter, latest first. A page may be short, or
// empty, and still be followed by others.
func (c *Control) ListAudit(ctx context.Context, namespace string, f belfry.AuditFilter, p store.Page) (_ []belfry.AuditEntry, _ store.Position, err error) {
	if f.JobID, err = c.resolveFilter(ctx, namespace, f.Job); err != nil {
		return nil, store.Position{}, err
	}
	list, err := retryRead(ctx, "list audit entries", func() (store.AuditList, error) { return c.store.ListAudit(ctx, namespace, f, p) })
	return list.Entries, store.Position{ID: list.Next}, err
}

// auditDead has a write about dead letters record an entry for each of their jobs, of those that
// the store says it has acted on: whoever looks at a job finds it.
func auditDead(audit *store.Audit, letters []selected) {
	byRun := make(map[belfry.ID]selected, len(letters))
	for _, l := range letters {
		byRun[l.id] = l
	}
	audit.SetWhenDone(func(runs []belfry.ID) (entries []belfry.AuditEntry) {
		at := map[belfry.ID]int{} // of the entry of a job
		for _, run := range runs {
			l := byRun[run]
			i, known := at[l.job]
			if !known {
				e := audit.Entry
				e.JobID, e.Object = l.job, belfry.AuditObject{Kind: belfry.AuditRun, ID: run.String(), Name: l.name}
				if i = len(entries); i > 0 {
					e.ID = idAfter(entries[i-1].ID, belfry.NewID(e.At))
				}
				at[l.job], entries = i, append(entries, e)
			}
			if entries[i].Count++; entries[i].Count == 2 {
				entries[i].Object.Kind, entries[i].Object.ID = belfry.AuditJob, l.job.String()
			}
		}
		return entries
	})
}

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
