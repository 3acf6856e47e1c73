package api

import (
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
)

var (
	MaxFinishBody    = int(finishBody{}.maxBody())
	MaxHeartbeatBody = int(heartbeatBody{}.maxBody())
)

// ServeAs serves an operation for somebody.
func ServeAs(h http.Handler, id string, p *auth.Principal, w http.ResponseWriter, r *http.Request) {
	for _, op := range h.(*api).served {
		if op.ID == id {
			op.handler.ServeHTTP(w, r.WithContext(auth.With(r.Context(), p)))
		}
	}
}
