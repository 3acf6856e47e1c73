package api

import (
	"net/http"
	"reflect"
)

// operation is one thing that can be asked for over HTTP: how it is reached and
// how it is described. Routes, the index and the OpenAPI document are all made
// from the one list of them, so that none can leave another behind.
type operation struct {
	id      string // of the OpenAPI document, as in createJob
	method  string
	path    string // as http.ServeMux takes it
	group   string // heading in the reference
	summary string // a few words
	about   string // sentences

	parameters []parameter // of query and headers; those of the path are known by their names
	body       *content    // nil: none is read
	answers    []reply     // those of success
	refusals   []int       // statuses of problem documents beyond those that any operation may give

	open    bool // needs no API key
	handler http.Handler
}

// parameter is a value in the query or the header of a request.
type parameter struct {
	name    string
	in      string // "query" or "header"
	about   string
	kind    reflect.Type
	many    bool     // may be given several times
	words   []string // the only values that there are
	example any
}

// content is a body that is read or written.
type content struct {
	media    []string // the first is the usual one
	kind     reflect.Type
	required bool
	examples map[string]string // by a few words: JSON, or lines of it
}

// reply is an answer of success.
type reply struct {
	status  int
	about   string
	headers []string // beside X-Request-Id: Location, Link, ETag
	content *content // nil: none
}
