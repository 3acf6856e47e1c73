package api

import (
	"context"
	"net/http"

	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/openapi"
)

// OperationsOf lists the operations of a handler that New made.
func OperationsOf(h http.Handler) []openapi.Operation {
	var list []openapi.Operation
	for _, op := range h.(*api).served {
		list = append(list, op.Operation)
	}
	return list
}

// Limits that tests go to.
const (
	MaxBody   = maxBody
	MaxBulk   = maxBulk
	MaxSpools = maxSpools

	MaxConnections        = maxConnections
	MaxAddressConnections = maxAddressConnections
)

var (
	MaxFinishBody    = int(finishBody{}.maxBody())
	MaxHeartbeatBody = int(heartbeatBody{}.maxBody())
)

// As serves the routes of a handler that New made to a principal.
func As(h http.Handler, p *auth.Principal) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.(*api).dispatch(w, r.WithContext(context.WithValue(r.Context(), contextKey{}, &requestContext{id: "test", principal: p})))
	})
}

// ServeAs serves an operation for somebody.
func ServeAs(h http.Handler, id string, p *auth.Principal, w http.ResponseWriter, r *http.Request) {
	for _, op := range h.(*api).served {
		if op.ID == id {
			op.handler.ServeHTTP(w, r.WithContext(auth.With(r.Context(), p)))
		}
	}
}
