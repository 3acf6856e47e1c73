package store

import (
	"context"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
)

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
	// quota, and writes that. An error of edit is returned as it is.
	EditNamespace(ctx context.Context, name string, edit EditQuota) (belfry.Namespace, error)

	// DeleteNamespace deletes a namespace, if there is one. It is a Conflict while it has jobs.
	DeleteNamespace(ctx context.Context, name string) error
}

// EditQuota says what a quota becomes. It must be pure.
type EditQuota func(q belfry.Quota) (belfry.Quota, error)

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

// QuotaExceeded is the error of more than a namespace may have: of what, under the name of a
// field of its quota, how much it may have and has, and how much more was asked for.
func QuotaExceeded(namespace, field, what string, limit, held, more int64) error {
	return belfry.Errorf(belfry.QuotaExceeded, "the quota %s of the namespace %s is %d %s; it has %d, and this needs %d more. Delete jobs, or ask an admin of all namespaces for: belfry namespace set %s --%s N",
		field, namespace, limit, what, held, more, namespace, strings.ReplaceAll(field, "_", "-"))
}
