package secret

import "context"

// Source has the named secrets of namespaces.
type Source interface {
	// Secret returns the values of a secret: the one in use first, then those that a rotation still
	// accepts. NotFound if there is none.
	Secret(ctx context.Context, namespace, name string) (values []string, err error)
}
