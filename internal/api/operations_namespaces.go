package api

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/openapi"
	"github.com/belfry-sh/belfry/internal/schema"
)

const namespacesPath = apiPath + "/namespaces"

// namespaceBody is the body of a request that changes a namespace.
type namespaceBody struct {
	_    struct{} `doc:"What to change of a namespace."`
	text []byte
	name string
}

func (b *namespaceBody) decodeBody(text []byte, r *request) error {
	b.text, b.name = text, r.ref
	if _, _, syntax := (schema.Decoder{}).Decode(text, &belfry.Namespace{}); syntax != nil {
		return badRequest("the body %s", syntax.Message)
	}
	return nil
}

func (b *namespaceBody) patch(n *belfry.Namespace) []belfry.FieldError {
	_, errors, _ := schema.Decoder{}.Decode(b.text, n) // It was decoded before.
	if n.Name != b.name {
		errors = append(errors, belfry.FieldError{Field: "name", Message: "must be the name in the path"})
	}
	return errors
}

// namespaceOperations are about namespaces and their quotas.
func (a *api) namespaceOperations() []operation {
	one := []openapi.Response{openapi.JSON[belfry.Namespace](http.StatusOK, "The namespace.")}
	return []operation{
		handle(a, openapi.Operation{
			ID: "listNamespaces", Method: "GET", Path: namespacesPath, Group: groupNamespaces, Permission: auth.Read, Global: true, Scoped: true, Summary: "List namespaces",
			Doc:       "The namespaces that the caller sees, by name: those that were created, those that have jobs, and `default`. Usage may be 10 seconds old.",
			Responses: []openapi.Response{openapi.JSON[[]belfry.Namespace](http.StatusOK, "The namespaces.")},
		}, func(ctx context.Context, _ *request, _, _ none) (response, error) {
			namespaces, err := a.Control.Namespaces(ctx)
			return response{body: append([]belfry.Namespace{}, namespaces...)}, err
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
		}, func(ctx context.Context, r *request, _ none, body namespaceBody) (response, error) {
			return shown(a.Control.EditNamespace(ctx, r.ref, body.patch))
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

// namespaceLimits bound the requests a second of namespaces that have a quota of them. It
// never has more entries than there are such namespaces, and were since the start.
type namespaceLimits struct {
	mu     sync.Mutex
	byName map[string]*limiter
}

func (l *namespaceLimits) of(namespace string, perSecond float64) *limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.byName[namespace]
	if known == nil || known.every != rate.Limit(perSecond) {
		if l.byName == nil {
			l.byName = map[string]*limiter{}
		}
		known = newLimiter(perSecond)
		l.byName[namespace] = known
	}
	return known
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
	if err != nil || q.RateLimit <= 0 {
		return nil // Without a database nothing is served anyway.
	}
	refused, ok := a.limits.of(namespace, q.RateLimit).allow("", time.Now()).(*httpError)
	if !ok {
		return nil
	}
	refused.detail = fmt.Sprintf("the quota rate_limit of the namespace %s is %g requests a second; try again later, or ask an admin of all namespaces to change it", namespace, q.RateLimit)
	return refused
}
