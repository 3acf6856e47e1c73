// Package openapi describes operations of an HTTP API as an OpenAPI 3.1 document and as
// a reference page. Descriptions, limits and examples of fields come from the tags of
// their types, see package schema.
package openapi

import (
	"reflect"

	"github.com/belfry-sh/belfry/internal/auth"
)

// Operation is one operation of the API: how it is reached and what is said about it.
type Operation struct {
	ID      string // as in createJob
	Method  string
	Path    string // as http.ServeMux writes it
	Group   string // heading in the reference
	Summary string // a few words
	Doc     string // sentences

	Permission auth.Permission // that a caller must have

	Query    []reflect.Type    // structs whose fields are the parameters of the query
	Headers  []string          // request headers beside the namespace: Idempotency-Key, If-Match, Last-Event-ID
	Body     reflect.Type      // nil: none is read
	Patch    bool              // the body has the fields to change; null resets one
	Media    []string          // media types of the body; none: JSON
	Optional bool              // the body may be left out
	Examples map[string]string // of the body, by title

	Responses []Response // of success; several of one status differ in their bodies
	Errors    []int      // statuses of failure beside those that any operation may have
	Global    bool       // does not work in a namespace
	Filtered  bool       // Global, and leaves out the namespaces that the caller does not see
}

// Response is a response of success.
type Response struct {
	Status  int
	Doc     string
	Type    reflect.Type // nil: no body
	Media   string       // empty: JSON
	Headers []string     // beside X-Request-Id
}

// JSON is a response with a JSON body.
func JSON[T any](status int, doc string, headers ...string) Response {
	return Response{Status: status, Doc: doc, Type: reflect.TypeFor[T](), Headers: headers}
}

// Media types.
const (
	MediaJSON    = "application/json"
	MediaLines   = "application/x-ndjson"
	MediaProblem = "application/problem+json"
	MediaEvents  = "text/event-stream"
)
