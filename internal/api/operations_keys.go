package api

import (
	"context"
	"net/http"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/openapi"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	keysPath       = apiPath + "/keys"
	defaultOverlap = 24 * time.Hour
)

// keyOperations are about API keys.
func (a *api) keyOperations() []operation {
	created := []openapi.Response{openapi.JSON[belfry.APIKey](http.StatusCreated, "The key, with its secret.")}
	return []operation{
		handle(a, openapi.Operation{
			ID: "createKey", Method: "POST", Path: keysPath, Group: groupKeys, Permission: auth.Admin, Global: true, Scoped: true, Summary: "Create an API key",
			Doc: "The answer has the key itself, `bf_` and 58 characters, which nobody can look up later. Nobody can give rights that they lack. A server that listens on loopback alone needs no key until " +
				"the first is created, which must be an admin of all namespaces; from then on every request needs one.",
			Examples: map[string]string{
				"For deployments": `{"name": "deploy", "role": "author", "namespaces": ["billing"], "expires_seconds": 2592000}`,
				"For workers":     `{"name": "invoices", "role": "worker", "namespaces": ["billing"], "queues": ["default"], "expires_seconds": 0}`,
			},
			Responses: created, Errors: errorsWith(conflict),
		}, func(ctx context.Context, _ *request, _ none, body belfry.APIKey) (response, error) {
			k, err := a.Control.CreateKey(ctx, body)
			return response{status: http.StatusCreated, body: k}, err
		}),
		list(a, openapi.Operation{
			ID: "listKeys", Method: "GET", Path: keysPath, Group: groupKeys, Permission: auth.Admin, Global: true, Scoped: true, Summary: "List API keys",
			Doc: "The keys all of whose namespaces the caller sees, newest first, also those that have ended; never a secret.",
		}, func(ctx context.Context, _ *request, _ none, p store.Page) ([]belfry.APIKey, store.Position, error) {
			return a.Control.ListKeys(ctx, p)
		}),
		handle(a, openapi.Operation{
			ID: "revokeKey", Method: "DELETE", Path: keysPath + "/{key}", Group: groupKeys, Permission: auth.Admin, Global: true, Scoped: true, Summary: "Revoke an API key",
			Doc:       "No node accepts the key after 10 seconds. Requests that wait, streams of events, and logins to the page with it end. Repeating it changes nothing.",
			Responses: []openapi.Response{{Status: http.StatusNoContent, Doc: "The key is revoked."}}, Errors: []int{notFound},
		}, func(ctx context.Context, r *request, _, _ none) (response, error) {
			return response{status: http.StatusNoContent}, a.Control.RevokeKey(ctx, r.ref)
		}),
		handle(a, openapi.Operation{
			ID: "rotateKey", Method: "POST", Path: keysPath + "/{key}/rotate", Group: groupKeys, Permission: auth.Admin, Global: true, Scoped: true, Summary: "Rotate an API key",
			Doc:      "Creates a key with the same rights and lifetime. The old one expires after the overlap, if not before.",
			Optional: true, Examples: map[string]string{"Within an hour": `{"overlap_seconds": 3600}`}, Responses: created, Errors: errorsWith(notFound, conflict),
		}, func(ctx context.Context, r *request, _ none, body belfry.APIKeyRotation) (response, error) {
			overlap := defaultOverlap
			if seconds, given := body.OverlapSeconds.Get(); given { // there may be no body at all
				overlap = time.Duration(seconds) * time.Second
			}
			k, err := a.Control.RotateKey(ctx, r.ref, overlap)
			return response{status: http.StatusCreated, body: k}, err
		}),
	}
}
