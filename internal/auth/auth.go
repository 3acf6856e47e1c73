// Package auth says who makes a request and what they may do.
package auth

import (
	"context"
	"slices"
	"strings"

	"github.com/belfry-sh/belfry"
)

// Permission is what an operation asks of its caller. Each operation has one.
type Permission string

// The permissions.
const (
	Public  Permission = "public"  // everybody, without a key
	Known   Permission = "known"   // any key
	Read    Permission = "read"    // see jobs, runs and results
	Operate Permission = "operate" // pause, trigger, cancel, redrive
	Write   Permission = "write"   // create, edit and delete
	Admin   Permission = "admin"   // keys, secrets and the like
	Work    Permission = "work"    // claim runs and report results
)

// roles are those that have a permission, the least first.
var roles = map[Permission][]belfry.Role{
	Public:  {belfry.RoleReader, belfry.RoleOperator, belfry.RoleAuthor, belfry.RoleAdmin, belfry.RoleWorker},
	Known:   {belfry.RoleReader, belfry.RoleOperator, belfry.RoleAuthor, belfry.RoleAdmin, belfry.RoleWorker},
	Read:    {belfry.RoleReader, belfry.RoleOperator, belfry.RoleAuthor, belfry.RoleAdmin},
	Operate: {belfry.RoleOperator, belfry.RoleAuthor, belfry.RoleAdmin},
	Write:   {belfry.RoleAuthor, belfry.RoleAdmin},
	Admin:   {belfry.RoleAdmin},
	Work:    {belfry.RoleWorker, belfry.RoleAdmin},
}

// Roles lists the roles that have a permission, the least first. The caller does not change them.
func (p Permission) Roles() []belfry.Role { return roles[p] }

// IsRole reports whether there is such a role.
func IsRole(role belfry.Role) bool { return slices.Contains(Known.Roles(), role) }

// Principal is who makes a request, and what they may do.
type Principal struct {
	belfry.Actor
	Role       belfry.Role
	Namespaces []string // nil: all of them, and what belongs to none
	Queues     []string // that a worker may claim from; nil: all of them
	Commands   bool     // may choose what a worker executes: jobs of type command

	Address   string // of the client
	RequestID string

	// Ended is closed when the principal may do nothing any more: the key was revoked, or has
	// expired. What takes long ends with it. Nil: it is never closed.
	Ended <-chan struct{}
}

// Authenticator knows the holders of some tokens: API keys, or those of a login elsewhere.
type Authenticator interface {
	// Authenticate returns who has a token, a copy that the caller may change. ErrUnknown: it is not
	// one of them. A belfry.Unavailable error says that it cannot be told now.
	Authenticate(ctx context.Context, token string) (*Principal, error)
}

// ErrUnknown is the error of a token that nobody has, or that has ended.
var ErrUnknown = belfry.Errorf(belfry.Unauthorized, "this is not a valid API key")

// Local is who uses a server without keys: whoever can reach it may do everything.
func Local() *Principal {
	return &Principal{Actor: belfry.Actor{Kind: belfry.ActorLocal}, Role: belfry.RoleAdmin, Commands: true}
}

// Sees reports whether a namespace exists for the principal. One that does not is answered like
// one that has nothing in it: with 404.
func (p *Principal) Sees(namespace string) bool {
	return p.Namespaces == nil || slices.Contains(p.Namespaces, namespace)
}

// SeesAll reports whether the principal may use what belongs to no namespace.
func (p *Principal) SeesAll() bool { return p.Namespaces == nil }

// Has reports whether the role has a permission.
func (p *Principal) Has(permission Permission) bool {
	return slices.Contains(permission.Roles(), p.Role)
}

// Check is the one place where permissions are checked, for the API and the page: it says why the
// principal may not do something, in a namespace, or everywhere if the namespace is empty. A
// namespace that it does not see is NotFound, everything else Forbidden.
func (p *Principal) Check(permission Permission, namespace string) error {
	anywhere := permission == Public || permission == Known
	switch {
	case !anywhere && namespace != "" && !p.Sees(namespace):
		return belfry.Errorf(belfry.NotFound, "there is no namespace %q", namespace)
	case !p.Has(permission):
		return belfry.Errorf(belfry.Forbidden, "the role %s may not do this; one of these may: %s", p.Role, roleNames(permission))
	case !anywhere && namespace == "" && !p.SeesAll():
		return belfry.Errorf(belfry.Forbidden, "this is about all namespaces, and the API key is for some of them")
	}
	return nil
}

func roleNames(p Permission) string {
	var names []string
	for _, role := range p.Roles() {
		names = append(names, string(role))
	}
	return strings.Join(names, ", ")
}

// Require returns a Forbidden error unless who makes the request has a permission. A node that
// acts by itself has all of them.
func Require(ctx context.Context, permission Permission) error {
	if p := Of(ctx); p != nil && !p.Has(permission) {
		return p.Check(permission, "")
	}
	return nil
}

// RequireCommands returns a Forbidden error unless who makes the request may choose what a worker
// executes.
func RequireCommands(ctx context.Context) error {
	if p := Of(ctx); p != nil && !p.Commands {
		return belfry.Errorf(belfry.Forbidden, "jobs of type command need the permission commands, which this API key does not have; see: belfry key create --commands")
	}
	return nil
}

// RequireQueues returns a Forbidden error unless who makes the request may claim from the queues.
func RequireQueues(ctx context.Context, queues []string) error {
	p := Of(ctx)
	for _, queue := range queues {
		if p != nil && p.Queues != nil && !slices.Contains(p.Queues, queue) {
			return belfry.Errorf(belfry.Forbidden, "this API key may not claim from the queue %q, but from: %s", queue, strings.Join(p.Queues, ", "))
		}
	}
	return nil
}

type contextKey struct{}

// With returns a context that carries who makes the request.
func With(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(ctx, contextKey{}, p)
}

// Of is who makes the request of a context; nil: no request, the node acts by itself.
func Of(ctx context.Context) *Principal {
	p, _ := ctx.Value(contextKey{}).(*Principal)
	return p
}
