package api

import (
	"net/http"

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
