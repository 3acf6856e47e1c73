package control

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/store"
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

// jobEntry is the entry of an action on a job.
func jobEntry(action belfry.AuditAction, namespace string, id belfry.ID, name string) belfry.AuditEntry {
	return belfry.AuditEntry{Namespace: namespace, Action: action, JobID: id, Object: belfry.AuditObject{Kind: belfry.AuditJob, ID: id.String(), Name: name}}
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

func encodeJSON[T any](v T) string { return string(belfry.MustJSON(v)) }

// ListAudit returns the audit entries that match a filter, latest first. A page may be short, or
// empty, and still be followed by others.
func (c *Control) ListAudit(ctx context.Context, namespace string, f belfry.AuditFilter, p store.Page) (_ []belfry.AuditEntry, _ store.Position, err error) {
	if f.Job != "" {
		if f.JobID, err = c.resolve(ctx, namespace, f.Job); err != nil {
			return nil, store.Position{}, err
		}
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
