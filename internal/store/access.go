package store

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
)

// APIKeys is the API keys. Those that have ended stay: that there was one means that keys are
// required.
type APIKeys interface {
	// CreateAPIKey stores a key, unless there is one with its KeyID, which it reports.
	CreateAPIKey(ctx context.Context, k APIKey) (created bool, err error)

	// ListAPIKeys returns keys, newest first.
	ListAPIKeys(ctx context.Context, page Page) ([]APIKey, error)

	// ChangedAPIKeys returns the keys that were written at or after an instant, and the store's time
	// before they were read. That a key was used is no change.
	ChangedAPIKeys(ctx context.Context, since time.Time) (list []APIKey, now time.Time, err error)

	// EditAPIKey locks a key, asks edit what it becomes and which key is to be added, and writes both;
	// nil is nothing. An error of edit is returned as it is. NotFound if there is none.
	EditAPIKey(ctx context.Context, id string, edit EditAPIKey) (APIKey, error)

	// UseAPIKeys records when keys were used last.
	UseAPIKeys(ctx context.Context, used map[string]time.Time) error
}

// APIKey is a key as it is stored.
type APIKey struct {
	belfry.APIKey           // without the key itself, and what is only in requests
	Order         belfry.ID // in lists
	Hash          Hash      // of the secret
}

// EditAPIKey says what a key becomes at the store's time, and which one is added. It must be pure.
type EditAPIKey func(k APIKey, now time.Time) (changed, added *APIKey, err error)

// NoSuchAPIKey is the error of a key that does not exist.
func NoSuchAPIKey(id string) error {
	return belfry.Errorf(belfry.NotFound, "there is no API key with the id %.40q", id)
}

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

// Secrets is the named secrets, the keys that encrypt, and the texts that they encrypt. A store
// keeps what it is given: package secretstore encrypts it before.
type Secrets interface {
	// PutSecret creates or replaces a secret. Unless the value is the same, the one before it is
	// kept for as long as asked.
	PutSecret(ctx context.Context, s SecretRecord, keep time.Duration) (SecretRecord, error)

	// Secret returns a secret; NotFound if there is none.
	Secret(ctx context.Context, namespace, name string) (SecretRecord, error)

	// ListSecrets returns the secrets of a namespace by name, or all if it is empty.
	ListSecrets(ctx context.Context, namespace string) ([]SecretRecord, error)

	// DeleteSecret deletes a secret; NotFound if there is none.
	DeleteSecret(ctx context.Context, namespace, name string) error

	// JobsWithText returns jobs of a namespace whose payload has one of the texts, up to a limit.
	// It reads all jobs of the namespace.
	JobsWithText(ctx context.Context, namespace string, texts [2]string, limit int) ([]TextJob, error)

	// DataKeys returns the data keys of a namespace, or all if it is empty, the oldest first.
	DataKeys(ctx context.Context, namespace string) ([]DataKey, error)

	// SaveDataKeys adds data keys, or replaces how they are encrypted. A key that there is with
	// another origin, the id of the key that encrypts it, than the one given is left as it is.
	SaveDataKeys(ctx context.Context, from string, keys []DataKey) error

	// EncryptedTexts returns texts that are encrypted or should be, in the order of their places
	// and after one.
	EncryptedTexts(ctx context.Context, after TextPlace, limit int) ([]EncryptedText, error)

	// ReplaceTexts replaces texts, except those that are others now, and says how many.
	ReplaceTexts(ctx context.Context, texts []EncryptedText, by []string) (int, error)
}

// SecretRecord is a secret with its values.
type SecretRecord struct {
	belfry.Secret
	Previous string // empty: none
}

// DataKey is a key that encrypts values of a namespace, itself encrypted.
type DataKey struct {
	Namespace string
	Version   int
	KeyID     string // of the key that encrypts it
	Wrapped   string
}

// TextJob is a job that was found by the text of its payload.
type TextJob struct {
	ID      belfry.ID
	Name    string
	Payload json.RawMessage
}

// TextTables are the tables that have encrypted texts, in the order in which they are read. In
// all but the last two, the text is the payload of a job.
var TextTables = []string{"jobs", "revisions", "triggers", "runs", "dead", "ended", "channels", "secrets"}

// TextPlace is where an encrypted text is.
type TextPlace struct {
	Table    string
	ID       belfry.ID // of the row
	Revision int
	// Of a channel or secret.
	Namespace, Name string
}

// EncryptedText is a text that is encrypted, in whole or in parts.
type EncryptedText struct {
	TextPlace
	JobID belfry.ID // whose payload it is
	Text  string
}

// NoSuchSecret is the error of a secret that does not exist.
func NoSuchSecret(name string) error {
	return belfry.Errorf(belfry.NotFound, "there is no secret named %.100q", name)
}

// Namespaces is the namespaces that somebody has declared, and what they may use. One without
// a row works like one without limits.
type Namespaces interface {
	// Namespaces returns all of them by name, without their usage. They are at most MaxNamespaces.
	Namespaces(ctx context.Context) ([]belfry.Namespace, error)

	// Quota is the quota of a namespace, as it was at most QuotaAge ago or when the database
	// last answered. A change by this process counts at once.
	Quota(ctx context.Context, namespace string) (belfry.Quota, error)

	// NamespaceUsage counts what a namespace uses, or each that has jobs if the name is empty.
	// It reads all their jobs.
	NamespaceUsage(ctx context.Context, namespace string) (map[string]belfry.Usage, error)

	// CreateNamespace stores a namespace. One that was created at another instant is a Conflict.
	CreateNamespace(ctx context.Context, n belfry.Namespace) error

	// EditNamespace locks a namespace, which it creates if there is none, asks edit for its
	// quota and signing secret, and writes them. An error of edit is returned as it is.
	EditNamespace(ctx context.Context, name string, edit EditNamespace) (belfry.Namespace, error)

	// DeleteNamespace deletes a namespace, if there is one. It is a Conflict while it has jobs.
	DeleteNamespace(ctx context.Context, name string) error
}

// EditNamespace says what a namespace becomes. It must be pure.
type EditNamespace func(n belfry.Namespace) (belfry.Namespace, error)

const (
	// MaxNamespaces is how many namespaces may be declared.
	MaxNamespaces = 10_000

	// QuotaAge is after how long a quota that was changed counts at every node.
	QuotaAge = 2 * time.Second

	// QuotaSettleTime is after how long no transaction is left that knew of no limit.
	QuotaSettleTime = 15 * time.Minute
)

// IsLimited reports whether a quota limits what is stored.
func IsLimited(q belfry.Quota) bool { return q.MaxJobs > 0 || q.MaxStoredBytes > 0 }

// CheckQuota returns the error of more jobs than a namespace may have beside those that it has.
func CheckQuota(namespace string, q belfry.Quota, has, more belfry.Usage) error {
	if q.MaxJobs > 0 && has.Jobs+more.Jobs > int64(q.MaxJobs) && more.Jobs > 0 {
		return quotaExceeded(namespace, "max_jobs", int64(q.MaxJobs), has.Jobs, more.Jobs)
	}
	if q.MaxStoredBytes > 0 && has.StoredBytes+more.StoredBytes > q.MaxStoredBytes && more.StoredBytes > 0 {
		return quotaExceeded(namespace, "max_stored_bytes", q.MaxStoredBytes, has.StoredBytes, more.StoredBytes)
	}
	return nil
}

func quotaExceeded(namespace, field string, limit, held, more int64) error {
	return belfry.Errorf(belfry.QuotaExceeded, "the quota %s of the namespace %s is %d: %d are used, and this needs %d more. Delete jobs, or ask an admin of all namespaces for: belfry namespace set %s --%s N",
		field, namespace, limit, held, more, namespace, strings.ReplaceAll(field, "_", "-"))
}
