package secret

import (
	"context"
	"slices"
	"strings"
)

// Source has the named secrets of namespaces.
type Source interface {
	// Secret returns the values of a secret: the one in use first, then those that a rotation still
	// accepts. NotFound if there is none.
	Secret(ctx context.Context, namespace, name string) (values []string, err error)
}

// Named is a named secret.
type Named struct {
	Values       []string // the one in use first
	AllowedHosts []string // empty: any
}

// Allows reports whether the value may be sent to a host.
func (n Named) Allows(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return len(n.AllowedHosts) == 0 || slices.ContainsFunc(n.AllowedHosts, func(allowed string) bool {
		domain, wild := strings.CutPrefix(allowed, "*")
		return allowed == host || wild && strings.HasSuffix(host, domain)
	})
}
