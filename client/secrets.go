package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/belfry-sh/belfry"
)

const secretsPath = apiPath + "/secrets"

// Secrets lists the secrets by name, without their values.
func (c *Client) Secrets(ctx context.Context) ([]belfry.Secret, error) {
	return fetch[[]belfry.Secret](ctx, c, "list secrets", http.MethodGet, secretsPath, nil)
}

// Secret returns a secret, without its value.
func (c *Client) Secret(ctx context.Context, name string) (belfry.Secret, error) {
	return fetch[belfry.Secret](ctx, c, "get secret", http.MethodGet, secretsPath+"/"+url.PathEscape(name), nil)
}

// PutSecret creates a secret, or changes the one that has its name. Without a value it keeps the
// one that it has.
func (c *Client) PutSecret(ctx context.Context, s belfry.Secret) (belfry.Secret, error) {
	return fetch[belfry.Secret](ctx, c, "put secret", http.MethodPut, secretsPath+"/"+url.PathEscape(s.Name), s)
}

// DeleteSecret deletes a secret. One that jobs use is a belfry.Conflict, unless it is forced.
func (c *Client) DeleteSecret(ctx context.Context, name string, force bool) error {
	path := secretsPath + "/" + url.PathEscape(name)
	if force {
		path += "?force=true"
	}
	_, err := c.do(ctx, newCall("delete secret", http.MethodDelete, path))
	return err
}

// Reencrypt makes one step of a pass over all stored secrets. The next step begins at the After of
// the answer; the pass is done when that is empty.
func (c *Client) Reencrypt(ctx context.Context, after string) (belfry.Reencryption, error) {
	return fetch[belfry.Reencryption](ctx, c, "reencrypt", http.MethodPost, apiPath+"/encryption/reencrypt", belfry.Reencryption{After: after})
}
