package control

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/store"
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
	known := map[string]bool{}
	for _, n := range list {
		known[n.Name] = true
	}
	for name := range usage {
		if !known[name] && name != belfry.DefaultNamespace {
			list = append(list, belfry.Namespace{Name: name})
		}
	}
	if !known[belfry.DefaultNamespace] {
		list = append(list, belfry.Namespace{Name: belfry.DefaultNamespace})
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
	audit.SetChange(auditNamespaces(nil, &n))
	if err := retryUnknown(ctx, "create a namespace", func() error { return c.store.CreateNamespace(write, n) }); err != nil {
		return belfry.Namespace{}, err
	}
	return c.Namespace(ctx, n.Name)
}

// namespaceEntry is the audit entry of a namespace, which its own people see.
func namespaceEntry(action belfry.AuditAction, name string) belfry.AuditEntry {
	return belfry.AuditEntry{Namespace: name, Action: action, Object: belfry.AuditObject{Kind: belfry.AuditTenant, Name: name}}
}

func auditNamespaces(before, after *belfry.Namespace) (_, _ []byte) {
	return auditChange(auditFields(before, after, encodeJSON, func(n belfry.Namespace) belfry.Namespace { return n }))
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
				audit.SetChange(auditNamespaces(&before, &n))
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
