package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/openapi"
	"github.com/belfry-sh/belfry/internal/store"
)

// auditOperations list who changed what, or export it to a client that asks for that.
func (a *api) auditOperations() []operation {
	op := list(a, openapi.Operation{
		ID: "listAudit", Method: "GET", Path: apiPath + "/audit", Group: groupAudit, Permission: auth.Read, Summary: "List or export changes", Errors: []int{notFound},
		Doc: "Who changed what, the latest first: an entry for every request that changed something, written in the same transaction. What nodes do by themselves, pings and requests of workers have none. " +
			"A page may be short, or empty, and still be followed by others. With `Accept: application/x-ndjson` all entries that match are sent, one per line.",
	}, func(ctx context.Context, r *request, f belfry.AuditFilter, p store.Page) ([]belfry.AuditEntry, store.Position, error) {
		if err := mayList(ctx, f); err != nil {
			return nil, store.Position{}, err
		}
		return a.Control.ListAudit(ctx, r.namespace, f, p)
	})
	op.Responses = append(op.Responses, openapi.Response{Status: http.StatusOK, Doc: "Or all entries, one per line.", Media: openapi.MediaLines})
	page := op.handler
	op.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !accepts(r, openapi.MediaLines) {
			page.ServeHTTP(w, r)
		} else if err := a.exportAudit(w, r, &op.Operation); err != nil {
			a.fail(w, r, err)
		}
	})
	return []operation{op}
}

// mayList refuses what belongs to other namespaces, or to none, to all but admins of everything.
func mayList(ctx context.Context, f belfry.AuditFilter) error {
	if p := auth.Of(ctx); f.Scope == "" || f.Scope == belfry.AuditNamespace || p.Has(auth.Admin) && p.SeesAll() {
		return nil
	}
	return &httpError{code: belfry.Forbidden, detail: "the scope " + string(f.Scope) + " needs the role admin for all namespaces"}
}

const exportPage = 500

// exportAudit sends pages until there are no more. An error is from before the first; after it a
// failure ends the connection, so that a part is not taken for the whole.
func (a *api) exportAudit(w http.ResponseWriter, r *http.Request, op *openapi.Operation) error {
	var f belfry.AuditFilter
	in, err := readHead(r, op, &f)
	if err == nil {
		err = mayList(r.Context(), f)
	}
	if err != nil {
		return err
	}
	connection, lines := http.NewResponseController(w), json.NewEncoder(w)
	for position, first := in.page.After, true; ; first = false {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		entries, next, err := a.Control.ListAudit(ctx, in.namespace, f, store.Page{After: position, Limit: exportPage})
		if cancel(); err != nil && first {
			return err
		}
		if first {
			w.Header().Set("Content-Type", openapi.MediaLines)
		}
		connection.SetWriteDeadline(time.Now().Add(requestTimeout))
		for i := range entries {
			if err == nil {
				err = lines.Encode(&entries[i])
			}
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		if position = next; position == (store.Position{}) {
			return nil
		}
		extendDeadlines(w, 2*requestTimeout)
	}
}
