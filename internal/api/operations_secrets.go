package api

import (
	"context"
	"net/http"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/openapi"
)

const secretsPath = apiPath + "/secrets"

// secretOperations are about named secrets.
func (a *api) secretOperations() []operation {
	one := []openapi.Response{openapi.JSON[belfry.Secret](http.StatusOK, "The secret, without its value.")}
	return []operation{
		handle(a, openapi.Operation{
			ID: "listSecrets", Method: "GET", Path: secretsPath, Group: groupSecrets, Permission: auth.Read, Summary: "List secrets",
			Doc: "The secrets of the namespace by name, without their values, at most 1000.", Responses: []openapi.Response{openapi.JSON[[]belfry.Secret](http.StatusOK, "The secrets.")},
		}, func(ctx context.Context, r *request, _, _ none) (response, error) {
			secrets, err := a.Control.Secrets(ctx, r.namespace)
			return response{body: append([]belfry.Secret{}, secrets...)}, err
		}),
		handle(a, openapi.Operation{
			ID: "getSecret", Method: "GET", Path: secretsPath + "/{secret}", Group: groupSecrets, Permission: auth.Read, Summary: "Get a secret",
			Doc: "A secret, without its value.", Responses: one, Errors: []int{notFound},
		}, func(ctx context.Context, r *request, _, _ none) (response, error) {
			return shown(a.Control.Secret(ctx, r.namespace, r.ref))
		}),
		handle(a, openapi.Operation{
			ID: "putSecret", Method: "PUT", Path: secretsPath + "/{secret}", Group: groupSecrets, Permission: auth.Admin, Summary: "Create or change a secret",
			Doc: "Creates a secret or replaces its value, which attempts use within five seconds on all nodes. Without a value it keeps the one that it has, and gets the rest of the request. " +
				"With `keep_previous_seconds` the value before it stays valid for signatures.",
			Examples:  map[string]string{"A key of an API": `{"name": "stripe-key", "value": "the key", "allowed_hosts": ["api.stripe.com"]}`},
			Responses: append([]openapi.Response{openapi.JSON[belfry.Secret](http.StatusCreated, "The secret was created.")}, one...), Errors: []int{conflict},
		}, func(ctx context.Context, r *request, _ none, body belfry.Secret) (response, error) {
			if body.Name != r.ref {
				return response{}, badParameters(belfry.FieldError{Field: "name", Message: "must be the name in the path"})
			}
			secret, created, err := a.Control.PutSecret(ctx, r.namespace, body)
			if created {
				return response{status: http.StatusCreated, body: secret}, err
			}
			return shown(secret, err)
		}),
		handle(a, openapi.Operation{
			ID: "deleteSecret", Method: "DELETE", Path: secretsPath + "/{secret}", Group: groupSecrets, Permission: auth.Admin, Summary: "Delete a secret",
			Doc: "Deletes a secret that no job uses, or any with `force`.", Responses: []openapi.Response{{Status: http.StatusNoContent, Doc: "It is deleted."}}, Errors: errorsWith(notFound, conflict),
		}, func(ctx context.Context, r *request, q belfry.SecretDeletion, _ none) (response, error) {
			return response{status: http.StatusNoContent}, a.Control.DeleteSecret(ctx, r.namespace, r.ref, q.Force)
		}),
		handle(a, openapi.Operation{
			ID: "reencrypt", Method: "POST", Path: apiPath + "/encryption/reencrypt", Group: groupSecrets, Permission: auth.Admin, Summary: "Encrypt everything anew",
			Doc: "Makes one step of a pass over all stored secrets, and answers where the next step begins. The first step encrypts the data keys with the first key of `--encryption-key-file`; " +
				"the others encrypt what is not encrypted, or with an older data key. A pass may be repeated.",
			Global: true, Optional: true, Errors: []int{conflict}, Responses: []openapi.Response{openapi.JSON[belfry.Reencryption](http.StatusOK, "What the step did.")},
		}, func(ctx context.Context, _ *request, _ none, body belfry.Reencryption) (response, error) {
			return shown(a.Control.Reencrypt(ctx, body.After))
		}),
	}
}
