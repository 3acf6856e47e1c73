package api

import (
	"net/http"
	"slices"
)

// Operation is what tests of the package's outside need to know of an operation.
type Operation struct {
	ID, Method, Path string
	Open             bool
	Parameters       []string // of query and header
	Media            []string // of the body; none: it has no body
	Required         bool     // the body must be there
	Fields           []string // members of the body that have one type only
}

// OperationsOf lists what a handler that New made serves.
func OperationsOf(h http.Handler) []Operation {
	var list []Operation
	for _, op := range h.(*api).served {
		out := Operation{ID: op.id, Method: op.method, Path: op.path, Open: op.open}
		for _, p := range op.parameters {
			out.Parameters = append(out.Parameters, p.name)
		}
		if op.body != nil {
			kind := op.body.kind
			if op.id == "importJobs" {
				kind = kind.Elem()
			}
			out.Media, out.Required = op.body.media, op.body.required
			out.Fields = slices.DeleteFunc(fieldsOf(kind), func(name string) bool { return name == payloadField || name == "filter" })
		}
		list = append(list, out)
	}
	return list
}

// Limits that tests go to.
const (
	MaxBody       = maxBody
	MaxResultBody = maxResultBody
	MaxBulk       = maxBulk
	MaxSpools     = maxSpools
)
