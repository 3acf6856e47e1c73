package store

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
)

// Audits is the record of who changed what. Entries are added, and pruned by their age; nothing
// changes them.
type Audits interface {
	// AddAudit adds an entry that belongs to no other write. Those of a change are added by the
	// call that makes the change, see WithAudit.
	AddAudit(ctx context.Context, e belfry.AuditEntry) error

	// ListAudit returns the entries of a namespace, or of the scope of the filter, latest first.
	// It reads a bounded number of entries: a page may have fewer than its limit, or none, and
	// still be followed by others.
	ListAudit(ctx context.Context, namespace string, f belfry.AuditFilter, page Page) (AuditList, error)

	AuditPruner
}

// AuditPruner enforces the retention of audit entries.
type AuditPruner interface {
	// PruneAudit deletes entries older than keep, and says how many.
	PruneAudit(ctx context.Context, keep time.Duration) (int, error)
}

// AuditList is a page of entries. The list continues after Next, unless that is zero.
type AuditList struct {
	Entries []belfry.AuditEntry
	Next    belfry.ID
}

// Audit is what a write records of the request that makes it. All methods accept nil, which
// records nothing: a node acts by itself then.
type Audit struct {
	Entry   belfry.AuditEntry // of the request, as far as it is known before
	entries []belfry.AuditEntry
	changed func(ids []belfry.ID) []belfry.AuditEntry
}

type auditKey struct{}

// WithAudit returns a context for one write. The write adds the entries of a in its own
// transaction, just before the commit: there is no change without its entry, and no entry
// without its change. An entry whose id exists is not added again, so that the write may be
// repeated while its outcome is unknown. A nil a records nothing.
func WithAudit(ctx context.Context, a *Audit) context.Context {
	return context.WithValue(ctx, auditKey{}, a)
}

// AuditOf is what a write with this context records.
func AuditOf(ctx context.Context) *Audit {
	a, _ := ctx.Value(auditKey{}).(*Audit)
	return a
}

// Set says what is recorded: these entries. The function that computes a change may call it.
func (a *Audit) Set(entries ...belfry.AuditEntry) {
	if a != nil {
		a.entries, a.changed = entries, nil
	}
}

// SetChange records the entry with what changed.
func (a *Audit) SetChange(before, after []byte) {
	if a != nil {
		a.Entry.Before, a.Entry.After = before, after
		a.Set(a.Entry)
	}
}

// SetWhenDone leaves it to the store to say whether anything changed, and which objects: f makes
// the entries of them.
func (a *Audit) SetWhenDone(f func(ids []belfry.ID) []belfry.AuditEntry) {
	if a != nil {
		a.entries, a.changed = nil, f
	}
}

// Done is called by a store that has changed objects, if only it knows that.
func (a *Audit) Done(ids ...belfry.ID) {
	if a != nil && a.changed != nil {
		a.entries = a.changed(ids)
	}
}

// Begin is called by a store at the beginning of a transaction.
func (a *Audit) Begin() {
	if a != nil && a.changed != nil {
		a.entries = nil
	}
}

// Entries is what the transaction adds.
func (a *Audit) Entries() []belfry.AuditEntry {
	if a == nil {
		return nil
	}
	return a.entries
}
