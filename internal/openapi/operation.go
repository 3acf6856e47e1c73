// Package openapi describes operations of an HTTP API as an OpenAPI 3.1 document and as
// a reference page. Descriptions, limits and examples of fields come from the tags of
// their types, see package schema.
package openapi

import (
	"cmp"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"

	"github.com/belfry-sh/belfry"
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
	Scoped    bool       // is global, and looks at the namespaces of its caller itself
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

// failure describes the problem documents of one status.
type failure struct {
	name    string // of the component
	doc     string
	code    belfry.Code
	detail  string // of the example
	fields  []belfry.FieldError
	headers []string
}

// failures are the statuses that the document lists, of which an internal error stands
// for all others: they have the same form and are described as the default.
var failures = map[int]failure{
	http.StatusBadRequest: {name: "BadRequest", code: belfry.BadRequest, doc: "The query, the headers or the JSON of the request cannot be read.",
		detail: "the request has wrong parameters", fields: []belfry.FieldError{{Field: "limit", Message: "must be from 1 to 500, not 0"}}},
	http.StatusUnauthorized: {name: "Unauthorized", code: belfry.Unauthorized, doc: "An API key is required, and there is none or a wrong one.",
		detail: "an API key is required: send the header Authorization: Bearer <key>", headers: []string{"WWW-Authenticate"}},
	http.StatusForbidden: {name: "Forbidden", code: belfry.Forbidden, doc: "The API key may not do this, or a page of another origin requested it.",
		detail: "the role reader may not do this; one of these may: author, admin"},
	http.StatusNotFound: {name: "NotFound", code: belfry.NotFound, doc: "It does not exist, or not in this namespace.",
		detail: `there is no job with the id or name "nightly-report"`},
	http.StatusConflict: {name: "Conflict", code: belfry.Conflict, doc: "It exists already, or it conflicts with what exists.",
		detail: `there is already a job named "nightly-report"`},
	http.StatusPreconditionFailed: {name: "Changed", code: belfry.Changed, doc: "It is not the version that `If-Match` names. Read it again.",
		detail: "the job has changed since it was read; read it again"},
	http.StatusRequestEntityTooLarge: {name: "TooLarge", code: belfry.TooLarge, doc: "The body has more bytes than allowed.",
		detail: "the body is too large, the maximum is 1048576 bytes"},
	http.StatusUnsupportedMediaType: {name: "UnsupportedMediaType", code: belfry.UnsupportedMediaType, doc: "The media type of the body is not supported.",
		detail: "the body must be application/json in UTF-8"},
	http.StatusUnprocessableEntity: {name: "Invalid", code: belfry.Invalid, doc: "The input is invalid. Every field that is wrong is named.",
		detail: "the job is not valid", fields: []belfry.FieldError{
			{Field: "schedule", Message: `column 1: minute 61 is out of range, it goes from 0 to 59; for example "*/15 * * * *"`},
			{Field: "timezone", Message: `there is no time zone "Paris"; did you mean "Europe/Paris"?`},
		}},
	http.StatusTooManyRequests: {name: "RateLimited", code: belfry.RateLimited, doc: "There were too many requests with this key or in this namespace, or from this address without one.",
		detail: "too many requests with this API key; try again later", headers: []string{"Retry-After"}},
	http.StatusServiceUnavailable: {name: "Unavailable", code: belfry.Unavailable, doc: "The database cannot be reached, or the server is too busy. It is not known whether anything was done.",
		detail: "the database cannot be reached; try again", headers: []string{"Retry-After"}},
	http.StatusInternalServerError: {name: "Failure", code: belfry.Internal, doc: "Any other failure.",
		detail: "internal error; the server logs the cause with the request id"},
}

// codeStatuses are the statuses of codes that have no entry in failures.
var codeStatuses = map[belfry.Code]int{
	belfry.MethodNotAllowed: http.StatusMethodNotAllowed, belfry.RequestTimeout: http.StatusRequestTimeout,
	belfry.Misdirected: http.StatusMisdirectedRequest, belfry.QuotaExceeded: http.StatusForbidden,
}

// StatusOf is the HTTP status of a code.
func StatusOf(code belfry.Code) int {
	for status, f := range failures {
		if f.code == code {
			return status
		}
	}
	return cmp.Or(codeStatuses[code], http.StatusInternalServerError)
}

// failures describes the failures of an operation and those that any may have.
func (d *Document) failures(op *Operation, out *pathOperation) {
	list := slices.Clone(op.Errors)
	if !op.Global {
		list = append(list, http.StatusBadRequest, http.StatusServiceUnavailable)
	}
	if d.options.Keyed && op.Permission != auth.Public {
		list = append(list, http.StatusUnauthorized, http.StatusForbidden)
		if d.options.RateLimited {
			list = append(list, http.StatusTooManyRequests)
		}
	}
	slices.Sort(list)
	for _, status := range slices.Compact(list) {
		out.Responses.add(strconv.Itoa(status), d.failure(status))
	}
	out.Responses.add("default", d.failure(http.StatusInternalServerError))
}

// failure refers to the component of a failure.
func (d *Document) failure(status int) *response {
	f := failures[status]
	d.Components.Responses.share(f.name, &response{Description: f.doc, Headers: d.headers(f.headers), Content: ordered[*media]{{MediaProblem, &media{
		Schema:   d.schemas.of(reflect.TypeFor[belfry.Problem]()),
		Examples: ordered[*example]{{"example", &example{http.StatusText(status), f.example(status)}}},
	}}}})
	return &response{Ref: responseRef + f.name}
}

// example is a problem document of the failure.
func (f failure) example(status int) json.RawMessage {
	return belfry.MustJSON(belfry.Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: f.detail, Code: f.code, RequestID: "01a22f39-2d30-7f6e-b1d2-6a90c3e7f5b8", Errors: f.fields,
	})
}
