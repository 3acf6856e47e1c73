package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/belfry-sh/belfry"
)

const keysPath = apiPath + "/keys"

// CreateKey creates an API key. The key itself is in the result, and in no other.
func (c *Client) CreateKey(ctx context.Context, k belfry.APIKey) (belfry.APIKey, error) {
	once := func(q *call) { q.once = true } // a second try would create a second one
	return fetch[belfry.APIKey](ctx, c, "create key", http.MethodPost, keysPath, k, once)
}

// Keys lists API keys, newest first, like Jobs. None has the key itself.
func (c *Client) Keys(ctx context.Context) iter.Seq2[belfry.APIKey, error] {
	return pages[belfry.APIKey](ctx, c, "list keys", keysPath, nil)
}

// RevokeKey ends an API key. No server accepts it after 10 seconds.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	_, err := c.do(ctx, newCall("revoke key", http.MethodDelete, keysPath+"/"+url.PathEscape(id)))
	return err
}

// RotateKey creates an API key with the rights of another, which is accepted for a while longer.
func (c *Client) RotateKey(ctx context.Context, id string, overlap time.Duration) (belfry.APIKey, error) {
	once := func(q *call) { q.once = true }
	rotation := belfry.APIKeyRotation{OverlapSeconds: belfry.Some(int(overlap / time.Second))}
	return fetch[belfry.APIKey](ctx, c, "rotate key", http.MethodPost, keysPath+"/"+url.PathEscape(id)+"/rotate", rotation, once)
}
