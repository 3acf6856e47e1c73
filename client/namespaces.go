package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/belfry-sh/belfry"
)

const namespacesPath = apiPath + "/namespaces"

func namespacePath(name string) string { return namespacesPath + "/" + url.PathEscape(name) }

// Namespaces lists the namespaces that the caller sees, by name.
func (c *Client) Namespaces(ctx context.Context) ([]belfry.Namespace, error) {
	return fetch[[]belfry.Namespace](ctx, c, "list namespaces", http.MethodGet, namespacesPath, nil)
}

// Namespace returns a namespace with what it uses now.
func (c *Client) Namespace(ctx context.Context, name string) (belfry.Namespace, error) {
	return fetch[belfry.Namespace](ctx, c, "get namespace", http.MethodGet, namespacePath(name), nil)
}

// CreateNamespace declares a namespace. One that was declared before is a belfry.Conflict.
func (c *Client) CreateNamespace(ctx context.Context, n belfry.Namespace) (belfry.Namespace, error) {
	once := func(q *call) { q.once = true } // a second try would find the name taken
	return fetch[belfry.Namespace](ctx, c, "create namespace", http.MethodPost, namespacesPath, n, once)
}

// EditNamespace changes the limits that changes has when it is written as JSON: a map, a
// json.RawMessage, or a belfry.Quota, of which the limits that are set count.
func (c *Client) EditNamespace(ctx context.Context, name string, changes any) (belfry.Namespace, error) {
	return fetch[belfry.Namespace](ctx, c, "edit namespace", http.MethodPatch, namespacePath(name), changes)
}

// DeleteNamespace deletes a namespace. While it has jobs, that is a belfry.Conflict.
func (c *Client) DeleteNamespace(ctx context.Context, name string) error {
	_, err := c.do(ctx, newCall("delete namespace", http.MethodDelete, namespacePath(name)))
	return err
}
