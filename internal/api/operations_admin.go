package api

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/openapi"
	"github.com/belfry-sh/belfry/internal/store"
)

const namespacesPath = apiPath + "/namespaces"

func (a *api) namespaceOperations() []operation {
	one := []openapi.Response{openapi.JSON[belfry.Namespace](http.StatusOK, "The namespace.")}
	return []operation{
		handle(a, openapi.Operation{
			ID: "listNamespaces", Method: "GET", Path: namespacesPath, Group: groupNamespaces, Permission: auth.Read, Global: true, Scoped: true, Summary: "List namespaces",
			Doc:       "The namespaces that the caller sees, by name: those that were created, those that have jobs, and `default`. Usage may be 10 seconds old.",
			Responses: []openapi.Response{openapi.JSON[[]belfry.Namespace](http.StatusOK, "The namespaces.")},
		}, func(ctx context.Context, _ *request, _, _ none) (response, error) {
			return shownAll(a.Control.Namespaces(ctx))
		}),
		handle(a, openapi.Operation{
			ID: "getNamespace", Method: "GET", Path: namespacesPath + "/{namespace}", Group: groupNamespaces, Permission: auth.Read, Global: true, Scoped: true, Summary: "Get a namespace",
			Doc: "A namespace, its quota, and what it uses now.", Responses: one, Errors: []int{notFound},
		}, func(ctx context.Context, r *request, _, _ none) (response, error) {
			return shown(a.Control.Namespace(ctx, r.ref))
		}),
		handle(a, openapi.Operation{
			ID: "createNamespace", Method: "POST", Path: namespacesPath, Group: groupNamespaces, Permission: auth.Admin, Global: true, Summary: "Create a namespace",
			Doc:       "Declares a namespace and its quota. It may have jobs already: a namespace needs no creation to be used.",
			Examples:  map[string]string{"With a quota": `{"name": "billing", "max_jobs": 10000, "min_interval_seconds": 60, "weight": 2}`},
			Responses: []openapi.Response{openapi.JSON[belfry.Namespace](http.StatusCreated, "The namespace.", "Location")}, Errors: errorsWith(conflict),
		}, func(ctx context.Context, _ *request, _ none, body belfry.Namespace) (response, error) {
			n, err := a.Control.CreateNamespace(ctx, belfry.Namespace{Name: body.Name, Quota: body.Quota, SignWith: body.SignWith})
			return response{status: http.StatusCreated, header: map[string]string{"Location": namespacesPath + "/" + body.Name}, body: n}, err
		}),
		handle(a, openapi.Operation{
			ID: "editNamespace", Method: "PATCH", Path: namespacesPath + "/{namespace}", Group: groupNamespaces, Permission: auth.Admin, Global: true, Summary: "Change the quota of a namespace",
			Doc:  "Changes the limits that are given; null removes one. It counts at every node after 2 seconds. What exceeds a lower limit stays.",
			Body: reflect.TypeFor[belfry.Namespace](), Patch: true, Examples: map[string]string{"More jobs": `{"max_jobs": 20000}`},
			Responses: one, Errors: errorsWith(notFound),
		}, func(ctx context.Context, r *request, _ none, body patchBody[belfry.Namespace]) (response, error) {
			return shown(a.Control.EditNamespace(ctx, r.ref, func(n *belfry.Namespace) []belfry.FieldError {
				_, errors := body.set(n)
				if n.Name != r.ref {
					errors = append(errors, nameInPath)
				}
				return errors
			}))
		}),
		handle(a, openapi.Operation{
			ID: "deleteNamespace", Method: "DELETE", Path: namespacesPath + "/{namespace}", Group: groupNamespaces, Permission: auth.Admin, Global: true, Summary: "Delete a namespace",
			Doc:       "Deletes a namespace that has no jobs. Its history stays until it is pruned.",
			Responses: []openapi.Response{{Status: http.StatusNoContent, Doc: "It is deleted."}}, Errors: []int{notFound, conflict},
		}, func(ctx context.Context, r *request, _, _ none) (response, error) {
			return response{status: http.StatusNoContent}, a.Control.DeleteNamespace(ctx, r.ref)
		}),
	}
}

// limitNamespace counts a request of a namespace with a quota of requests. Those of workers do
// not count: a heartbeat or a result that is refused would lose a run.
func (a *api) limitNamespace(op operation, r *http.Request) error {
	if op.Global || op.Permission == auth.Work || a.Control == nil {
		return nil
	}
	namespace, err := readNamespace(r)
	if err != nil {
		return err
	}
	q, err := a.Control.Quota(r.Context(), namespace)
	if err != nil {
		return nil // Without a database nothing is served anyway.
	}
	if wait := a.spaces.take(namespace, q.RateLimit); wait > 0 {
		return tooMany(wait, fmt.Sprintf("the quota rate_limit of the namespace %s is %g requests a second; try again later, or ask an admin of all namespaces to change it", namespace, q.RateLimit))
	}
	return nil
}

const (
	keysPath       = apiPath + "/keys"
	defaultOverlap = 24 * time.Hour
)

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

const secretsPath = apiPath + "/secrets"

func (a *api) secretOperations() []operation {
	one := []openapi.Response{openapi.JSON[belfry.Secret](http.StatusOK, "The secret, without its value.")}
	return []operation{
		handle(a, openapi.Operation{
			ID: "listSecrets", Method: "GET", Path: secretsPath, Group: groupSecrets, Permission: auth.Read, Summary: "List secrets",
			Doc: "The secrets of the namespace by name, without their values, at most 1000.", Responses: []openapi.Response{openapi.JSON[[]belfry.Secret](http.StatusOK, "The secrets.")},
		}, func(ctx context.Context, r *request, _, _ none) (response, error) {
			return shownAll(a.Control.Secrets(ctx, r.namespace))
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
				return response{}, badParameters(nameInPath)
			}
			return putResponse(a.Control.PutSecret(ctx, r.namespace, body))
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

// fleetOperations are about all jobs and all nodes.
func (a *api) fleetOperations() []operation {
	return []operation{
		handle(a, openapi.Operation{
			ID: "getForecast", Method: "GET", Path: apiPath + "/forecast", Group: groupSchedules, Permission: auth.Read, Summary: "Forecast the runs",
			Doc: "How many runs the schedules of the namespace plan for each minute of the next 24 hours and each hour of the next 7 days, and which schedules make the highest minutes. " +
				"With `jitter_seconds` it says also what the minutes would be if every recurring job had at least that jitter. " +
				"Runs whose jitter is not known yet are spread evenly over it. Up to 20,000 jobs are all computed; of more a sample is, which the answer says. It may be 5 seconds old.",
			Responses: []openapi.Response{openapi.JSON[belfry.Forecast](http.StatusOK, "The forecast.")},
		}, func(ctx context.Context, r *request, q belfry.ForecastQuery, _ none) (response, error) {
			return shown(a.Control.Forecast(ctx, r.namespace, q))
		}),
		handle(a, openapi.Operation{
			ID: "getFleet", Method: "GET", Path: apiPath + "/fleet", Group: groupServer, Permission: auth.Read, Summary: "Get the nodes, workers and the database",
			Doc:    "The nodes of the cluster with the shards that they own, the workers with their slots, and the database. It may be 2 seconds old.",
			Global: true, Responses: []openapi.Response{openapi.JSON[belfry.Fleet](http.StatusOK, "The fleet.")},
		}, func(ctx context.Context, _ *request, _, _ none) (response, error) {
			return shown(a.Control.Fleet(ctx))
		}),
	}
}
