package control

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/validate"
)

// usageKeep is how old the usage of all namespaces may be: it is counted over all jobs.
const usageKeep = 10 * time.Second

// NamespacePatch changes a namespace, and returns what was wrong with the change.
type NamespacePatch func(n *belfry.Namespace) []belfry.FieldError

// Quota is what a namespace may use, see store.Namespaces.
func (c *Control) Quota(ctx context.Context, namespace string) (belfry.Quota, error) {
	return retryRead(ctx, "read the quota of a namespace", func() (belfry.Quota, error) { return c.store.Quota(ctx, namespace) })
}

// Namespaces lists the namespaces that the caller sees, by name: those that somebody has
// declared, those that have jobs, and the default one. Their usage may be 10 seconds old.
func (c *Control) Namespaces(ctx context.Context) ([]belfry.Namespace, error) {
	list, err := c.declared(ctx)
	if err != nil {
		return nil, err
	}
	usage, err := c.usage.Get(ctx, struct{}{}, usageKeep, func(ctx context.Context) (map[string]belfry.Usage, error) {
		return c.countUsage(ctx, "")
	})
	if err != nil {
		return nil, err
	}
	others := map[string]bool{belfry.DefaultNamespace: true}
	for name := range usage {
		others[name] = true
	}
	for _, n := range list {
		delete(others, n.Name)
	}
	for name := range others {
		list = append(list, belfry.Namespace{Name: name})
	}
	list = slices.DeleteFunc(list, func(n belfry.Namespace) bool { return !sees(ctx, n.Name) })
	for i := range list {
		list[i].Usage = new(usage[list[i].Name])
	}
	slices.SortFunc(list, func(a, b belfry.Namespace) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Namespace finds a namespace, with its usage now.
func (c *Control) Namespace(ctx context.Context, name string) (n belfry.Namespace, err error) {
	if !sees(ctx, name) {
		return n, store.NoSuchNamespace(name)
	}
	list, err := c.declared(ctx)
	if err != nil {
		return n, err
	}
	usage, err := c.countUsage(ctx, name)
	if err != nil {
		return n, err
	}
	i := slices.IndexFunc(list, func(n belfry.Namespace) bool { return n.Name == name })
	if i < 0 && len(usage) == 0 && name != belfry.DefaultNamespace {
		return n, store.NoSuchNamespace(name)
	}
	n = at(list, i)
	n.Name, n.Usage = name, new(usage[name])
	return n, nil
}

func sees(ctx context.Context, namespace string) bool {
	p := auth.Of(ctx)
	return p == nil || p.Sees(namespace)
}

func (c *Control) declared(ctx context.Context) ([]belfry.Namespace, error) {
	return retryRead(ctx, "list namespaces", func() ([]belfry.Namespace, error) { return c.store.Namespaces(ctx) })
}

func (c *Control) countUsage(ctx context.Context, namespace string) (map[string]belfry.Usage, error) {
	return retryRead(ctx, "count what namespaces use", func() (map[string]belfry.Usage, error) { return c.store.NamespaceUsage(ctx, namespace) })
}

// CreateNamespace declares a namespace, which may have jobs already. A name that is declared is
// a Conflict.
func (c *Control) CreateNamespace(ctx context.Context, n belfry.Namespace) (belfry.Namespace, error) {
	n.CreatedAt = c.now()
	write, audit := c.audited(ctx, namespaceEntry(belfry.AuditCreate, n.Name))
	audit.SetChange(auditObject(nil, &n))
	if err := retryUnknown(ctx, "create a namespace", func() error { return c.store.CreateNamespace(write, n) }); err != nil {
		return belfry.Namespace{}, err
	}
	return c.Namespace(ctx, n.Name)
}

// namespaceEntry is the audit entry of a namespace, which its own people see.
func namespaceEntry(action belfry.AuditAction, name string) belfry.AuditEntry {
	return objectEntry(action, belfry.AuditTenant, name, "", name)
}

// EditNamespace changes the quota or the signing secret of a namespace. What exceeds a lower one stays.
func (c *Control) EditNamespace(ctx context.Context, name string, patch NamespacePatch) (belfry.Namespace, error) {
	before, err := c.Namespace(ctx, name)
	if err != nil {
		return before, err
	}
	write, audit := c.audited(ctx, namespaceEntry(belfry.AuditEdit, name))
	n, err := retryRead(ctx, "edit a namespace", func() (belfry.Namespace, error) {
		return c.store.EditNamespace(write, name, func(n belfry.Namespace) (belfry.Namespace, error) {
			before := n
			failed := patch(&n)
			if audit.Set(); n != before {
				audit.SetChange(auditObject(&before, &n))
			}
			return n, invalid("the namespace is not valid", schema.MergeErrors(failed, schema.Check(&n)))
		})
	})
	n.Usage = before.Usage
	return n, err
}

// DeleteNamespace deletes a namespace that has no jobs.
func (c *Control) DeleteNamespace(ctx context.Context, name string) error {
	if name == belfry.DefaultNamespace {
		return belfry.Errorf(belfry.Conflict, "the namespace %s always exists; change its quota instead", name)
	}
	if _, err := c.Namespace(ctx, name); err != nil {
		return err
	}
	ctx, _ = c.audited(ctx, namespaceEntry(belfry.AuditDelete, name))
	return retryUnknown(ctx, "delete a namespace", func() error { return c.store.DeleteNamespace(ctx, name) })
}

// checkRoom says whether the quota of a namespace would allow jobs that a dry run is about.
func (c *Control) checkRoom(ctx context.Context, namespace string, more belfry.Usage) error {
	q, err := c.Quota(ctx, namespace)
	if err != nil || !store.IsLimited(q) {
		return err
	}
	usage, err := c.countUsage(ctx, namespace)
	if err != nil {
		return err
	}
	return store.CheckQuota(namespace, q, usage[namespace], more)
}

// usageOf is what a new job adds to the usage of its namespace.
func usageOf(job belfry.Job) belfry.Usage {
	spec, _ := new(store.SpecEncoder).Encode(job.Spec) // An error comes up when it is stored.
	return belfry.Usage{Jobs: 1, StoredBytes: int64(len(spec) + len(job.Payload))}
}

const (
	maxAPIKeys    = 10_000 // that are active
	defaultExpiry = 90 * 24 * time.Hour
	keyPage       = 500
)

// KeysChanged sets what is called after API keys were written, so that they count at once on this
// node. It is called before any key is written.
func (c *Control) KeysChanged(refresh func(context.Context) error) { c.refreshKeys = refresh }

// CreateKey creates an API key. Only the result has the key itself. Nobody can give rights that they
// lack, and the first key must be able to create others.
func (c *Control) CreateKey(ctx context.Context, k belfry.APIKey) (belfry.APIKey, error) {
	k.Commands = k.Commands || k.Role == belfry.RoleAdmin && k.Namespaces == nil
	if err := checkKey(ctx, k); err != nil {
		return k, err
	}
	now := c.now()
	p := auth.Of(ctx)
	first := p != nil && p.Kind == belfry.ActorLocal
	if seconds, given := k.ExpiresSeconds.Get(); given && seconds > 0 {
		k.ExpiresAt = new(now.Add(time.Duration(seconds) * time.Second))
	} else if !given && !first { // without the first key nobody could create others
		k.ExpiresAt = new(now.Add(defaultExpiry))
	}
	stored, text := newKey(ctx, k, now)
	known, err := retryRead(ctx, "count API keys", func() (n int, err error) {
		list, _, err := c.store.ChangedAPIKeys(ctx, time.Time{})
		for _, k := range list {
			if k.StatusAt(now) == belfry.APIKeyActive {
				n++
			}
		}
		return n, err
	})
	if err == nil && known >= maxAPIKeys {
		err = belfry.Errorf(belfry.Conflict, "there are %d API keys already; revoke those that nobody needs", known)
	}
	if err == nil {
		write, audit := c.audited(ctx, objectEntry(belfry.AuditCreate, belfry.AuditKey, "", stored.ID, stored.Name)) // Keys belong to no namespace.
		audit.SetChange(auditObject(nil, &stored.APIKey))
		err = retryUnknown(ctx, "create an API key", func() error {
			_, err := c.store.CreateAPIKey(write, stored)
			return err
		})
	}
	return c.shownKey(ctx, stored, text, err)
}

// newKey is a key with the rights of another, and its text.
func newKey(ctx context.Context, rights belfry.APIKey, now time.Time) (k store.APIKey, text string) {
	k = store.APIKey{Order: belfry.NewID(now), APIKey: belfry.APIKey{
		ID: auth.NewKeyID(), Name: rights.Name, Role: rights.Role, Namespaces: rights.Namespaces, Queues: rights.Queues, Commands: rights.Commands,
		ExpiresAt: rights.ExpiresAt, CreatedAt: now,
	}}
	if p := auth.Of(ctx); p != nil {
		k.CreatedBy = &p.Actor
	}
	text, k.Hash = auth.NewKey(k.ID)
	return k, text
}

// shownKey is a key that was written, with its text.
func (c *Control) shownKey(ctx context.Context, k store.APIKey, text string, err error) (belfry.APIKey, error) {
	if err != nil {
		return belfry.APIKey{}, err
	}
	if c.refreshKeys != nil {
		_ = c.refreshKeys(ctx) // it counts a little later
	}
	k.Key, k.Status = text, k.StatusAt(c.now())
	return k.APIKey, nil
}

// checkKey returns what is wrong with a key, or why who asks for it may not create it.
func checkKey(ctx context.Context, k belfry.APIKey) error {
	var errors []belfry.FieldError
	for i, namespace := range k.Namespaces {
		if !validate.Namespace(namespace) {
			errors = append(errors, belfry.FieldError{Field: fmt.Sprintf("namespaces[%d]", i), Message: "must be 1 to 63 lower-case letters, digits and hyphens"})
		}
	}
	for i, queue := range k.Queues {
		if message := validate.Queue(queue); message != "" {
			errors = append(errors, belfry.FieldError{Field: fmt.Sprintf("queues[%d]", i), Message: message})
		}
	}
	if k.Queues != nil && k.Role != belfry.RoleWorker {
		errors = append(errors, belfry.FieldError{Field: "queues", Message: "is for the role worker; leave it out"})
	}
	p := auth.Of(ctx)
	if p != nil && p.Kind == belfry.ActorLocal && (k.Role != belfry.RoleAdmin || k.Namespaces != nil) {
		errors = append(errors, belfry.FieldError{Field: "role", Message: "must be admin, for all namespaces: from the first key on keys are required, and nobody could create others"})
	}
	switch err := invalid("the API key is not valid", errors); {
	case err != nil:
		return err
	case !seesKey(p, k):
		return belfry.Errorf(belfry.Forbidden, "a key can be given only namespaces that your own key has: %v", p.Namespaces)
	case k.Commands:
		return auth.RequireCommands(ctx)
	}
	return nil
}

// seesKey reports whether all namespaces of a key are also those of a principal.
func seesKey(p *auth.Principal, k belfry.APIKey) bool {
	return p == nil || p.SeesAll() || k.Namespaces != nil && !slices.ContainsFunc(k.Namespaces, func(n string) bool { return !p.Sees(n) })
}

// ListKeys returns the API keys that who asks may see, newest first.
func (c *Control) ListKeys(ctx context.Context, p store.Page) (list []belfry.APIKey, next store.Position, err error) {
	var seen []store.APIKey
	for after := p.After; len(seen) <= p.Limit; {
		page, err := retryRead(ctx, "list API keys", func() ([]store.APIKey, error) {
			return c.store.ListAPIKeys(ctx, store.Page{After: after, Limit: keyPage})
		})
		if err != nil {
			return nil, next, err
		}
		for _, k := range page {
			after.ID = k.Order
			if seesKey(auth.Of(ctx), k.APIKey) {
				seen = append(seen, k)
			}
		}
		if len(page) < keyPage {
			break
		}
	}
	seen, next = cutPage(seen, p.Limit, func(k store.APIKey) store.Position { return store.Position{ID: k.Order} })
	for _, k := range seen {
		k.Status = k.StatusAt(c.now())
		list = append(list, k.APIKey)
	}
	return list, next, nil
}

// RevokeKey ends an API key. Every node refuses it within 10 seconds. Repeating it changes nothing.
func (c *Control) RevokeKey(ctx context.Context, id string) error {
	k, err := c.editKey(ctx, belfry.AuditRevoke, id, func(k store.APIKey, now time.Time) (*store.APIKey, *store.APIKey, error) {
		if k.RevokedAt != nil {
			return nil, nil, nil
		}
		k.RevokedAt = &now
		return &k, nil, nil
	})
	_, err = c.shownKey(ctx, k, "", err)
	return err
}

// RotateKey creates a key with the rights and the lifetime of another, which ends after an overlap.
func (c *Control) RotateKey(ctx context.Context, id string, overlap time.Duration) (belfry.APIKey, error) {
	var next store.APIKey
	nextID := auth.NewKeyID()
	text, hash := auth.NewKey(nextID)
	_, err := c.editKey(ctx, belfry.AuditRotate, id, func(k store.APIKey, now time.Time) (*store.APIKey, *store.APIKey, error) {
		switch {
		case k.ReplacedBy == nextID: // whose answer was lost
			return nil, nil, nil
		case k.ReplacedBy != "" || k.StatusAt(now) != belfry.APIKeyActive:
			return nil, nil, belfry.Errorf(belfry.Conflict, "the API key %s has ended, or was rotated already; create another one", id)
		}
		if err := checkKey(ctx, k.APIKey); err != nil {
			return nil, nil, err
		}
		next, _ = newKey(ctx, k.APIKey, now)
		next.ID, next.Hash = nextID, hash
		end := now.Add(overlap)
		if k.ExpiresAt != nil {
			next.ExpiresAt = new(now.Add(k.ExpiresAt.Sub(k.CreatedAt)))
			if k.ExpiresAt.Before(end) {
				end = *k.ExpiresAt
			}
		}
		k.ExpiresAt, k.ReplacedBy = &end, nextID
		return &k, &next, nil
	})
	return c.shownKey(ctx, next, text, err)
}

// editKey edits a key that who asks may see.
func (c *Control) editKey(ctx context.Context, action belfry.AuditAction, id string, edit store.EditAPIKey) (store.APIKey, error) {
	write, audit := c.audited(ctx, objectEntry(action, belfry.AuditKey, "", id, ""))
	return retryRead(ctx, string(action)+" an API key", func() (store.APIKey, error) {
		return c.store.EditAPIKey(write, id, func(k store.APIKey, now time.Time) (*store.APIKey, *store.APIKey, error) {
			if !seesKey(auth.Of(ctx), k.APIKey) {
				return nil, nil, store.NoSuchAPIKey(id)
			}
			changed, added, err := edit(k, now)
			if audit.Set(); err == nil && changed != nil && audit != nil {
				audit.Entry.Object.Name = k.Name
				audit.SetChange(auditObject(&k.APIKey, &changed.APIKey))
			}
			return changed, added, err
		})
	})
}
