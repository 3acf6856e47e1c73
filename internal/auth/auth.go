// Package auth says who makes a request and what they may do.
package auth

import (
	"context"
	"slices"

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

// Roles lists the roles that have a permission, the least first.
func (p Permission) Roles() []belfry.Role {
	switch p {
	case Public, Known:
		return []belfry.Role{belfry.RoleReader, belfry.RoleOperator, belfry.RoleAuthor, belfry.RoleAdmin, belfry.RoleWorker}
	case Read:
		return []belfry.Role{belfry.RoleReader, belfry.RoleOperator, belfry.RoleAuthor, belfry.RoleAdmin}
	case Operate:
		return []belfry.Role{belfry.RoleOperator, belfry.RoleAuthor, belfry.RoleAdmin}
	case Write:
		return []belfry.Role{belfry.RoleAuthor, belfry.RoleAdmin}
	case Admin:
		return []belfry.Role{belfry.RoleAdmin}
	case Work:
		return []belfry.Role{belfry.RoleWorker, belfry.RoleAdmin}
	}
	return nil
}

// Principal is who makes a request, and what they may do.
type Principal struct {
	belfry.Actor
	Role       belfry.Role
	Namespaces []string // nil: all of them, and what belongs to none
	Queues     []string // that a worker may claim from; nil: all of them
	Commands   bool     // may choose what a worker executes: jobs of type command

	Address   string // of the client
	RequestID string
}

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
