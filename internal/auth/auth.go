// Package auth says who makes a request and what they may do.
package auth

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/netip"
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

// Client is where a request comes from.
type Client struct {
	Address string // without a port
	Secure  bool   // it used TLS, to this server or to a proxy that is trusted
}

// Proxies are the networks of the proxies whose headers about their clients count. From
// anybody else these headers are ignored.
type Proxies []netip.Prefix

type clientKey struct{}

// ClientOf is where a request comes from. Without Proxies.Receive it is the other end of the
// connection.
func ClientOf(r *http.Request) Client {
	if c, ok := r.Context().Value(clientKey{}).(Client); ok {
		return c
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return Client{Address: host, Secure: r.TLS != nil}
}

// Receive is the request as the first proxy that is trusted got it: with the host that its
// client asked for, and with what ClientOf returns.
//
// X-Forwarded-For, -Proto and -Host count before Forwarded, which many proxies pass on as
// they get it.
func (p Proxies) Receive(r *http.Request) *http.Request {
	c, host := ClientOf(r), r.Host
	peer, err := netip.ParseAddr(c.Address)
	if err == nil && p.trust(peer) {
		hops := forwardedFor(r.Header)
		if len(hops) == 0 {
			hops = forwarded(r.Header)
		}
		var seen hop
		for i := len(hops) - 1; i >= 0; i-- {
			addr, ok := parseNode(hops[i].node)
			if !ok { // a name that means nothing here, or none: what sent it is as far as we see
				break
			}
			c.Address, seen = addr.String(), hops[i]
			if !p.trust(addr) {
				break
			}
		}
		switch strings.ToLower(cmp.Or(last(r.Header, "X-Forwarded-Proto"), seen.proto)) {
		case "https":
			c.Secure = true
		case "http":
			c.Secure = false
		}
		host = cmp.Or(last(r.Header, "X-Forwarded-Host"), seen.host, host)
	}
	r = r.WithContext(context.WithValue(r.Context(), clientKey{}, c))
	r.Host = host
	return r
}

func (p Proxies) trust(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	return slices.ContainsFunc(p, func(prefix netip.Prefix) bool { return prefix.Contains(addr) })
}

// hop is what a proxy says of the request that it got.
type hop struct{ node, proto, host string }

func forwardedFor(h http.Header) (hops []hop) {
	for _, line := range h.Values("X-Forwarded-For") {
		for node := range strings.SplitSeq(line, ",") {
			hops = append(hops, hop{node: strings.TrimSpace(node)})
		}
	}
	return hops
}

// forwarded reads the header of RFC 7239. No value that counts has a comma or a semicolon in
// quotes.
func forwarded(h http.Header) (hops []hop) {
	for _, line := range h.Values("Forwarded") {
		for element := range strings.SplitSeq(line, ",") {
			var one hop
			for pair := range strings.SplitSeq(element, ";") {
				name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
				value = strings.Trim(value, `"`)
				switch strings.ToLower(name) {
				case "for":
					one.node = value
				case "proto":
					one.proto = value
				case "host":
					one.host = value
				}
			}
			hops = append(hops, one)
		}
	}
	return hops
}

// parseNode reads an address, with or without a port.
func parseNode(text string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil {
		var with netip.AddrPort
		with, err = netip.ParseAddrPort(text)
		addr = with.Addr()
	}
	return addr.Unmap().WithZone(""), err == nil
}

// last is the value that the nearest proxy added.
func last(h http.Header, name string) string {
	values := h.Values(name)
	if len(values) == 0 {
		return ""
	}
	line := values[len(values)-1]
	return strings.TrimSpace(line[strings.LastIndex(line, ",")+1:])
}
