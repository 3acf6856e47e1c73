package control

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/validate"
)

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
		write, audit := c.audited(ctx, keyEntry(belfry.AuditCreate, stored.APIKey))
		audit.SetChange(auditKeys(nil, &stored.APIKey))
		err = retryUnknown(ctx, "create an API key", func() error {
			_, err := c.store.CreateAPIKey(write, stored)
			return err
		})
	}
	return c.shownKey(ctx, stored, text, err)
}

// keyEntry is the audit entry of an API key. Keys belong to no namespace.
func keyEntry(action belfry.AuditAction, k belfry.APIKey) belfry.AuditEntry {
	return belfry.AuditEntry{Action: action, Object: belfry.AuditObject{Kind: belfry.AuditKey, ID: k.ID, Name: k.Name}}
}

func auditKeys(before, after *belfry.APIKey) (_, _ []byte) {
	return auditChange(auditFields(before, after, encodeJSON, func(k belfry.APIKey) belfry.APIKey { return k }))
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
	write, audit := c.audited(ctx, keyEntry(action, belfry.APIKey{ID: id}))
	return retryRead(ctx, string(action)+" an API key", func() (store.APIKey, error) {
		return c.store.EditAPIKey(write, id, func(k store.APIKey, now time.Time) (*store.APIKey, *store.APIKey, error) {
			if !seesKey(auth.Of(ctx), k.APIKey) {
				return nil, nil, store.NoSuchAPIKey(id)
			}
			changed, added, err := edit(k, now)
			if audit.Set(); err == nil && changed != nil && audit != nil {
				audit.Entry.Object.Name = k.Name
				audit.SetChange(auditKeys(&k.APIKey, &changed.APIKey))
			}
			return changed, added, err
		})
	})
}
