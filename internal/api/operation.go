package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/belfry-sh/belfry/internal/openapi"
	"github.com/belfry-sh/belfry/internal/store"
)

// operation is one operation of the API with its handler. Routes, the index and the
// OpenAPI document are made from the one list of them.
type operation struct {
	openapi.Operation
	handler http.Handler
}

// response is what a handler answers.
type response struct {
	status int // 200 unless set
	header map[string]string
	next   string // address of the next page
	body   any    // nil: none; a streamed one writes itself
}

// shown is the response that shows the result of a call.
func shown[T any](body T, err error) (response, error) { return response{body: body}, err }

// streamed is a body that is too large to be put together first.
type streamed interface {
	length() int
	writeTo(w io.Writer) error
}

// requestTimeout limits a request, well within the server's WriteTimeout; bulkTimeout
// is for those about thousands of jobs or runs.
const (
	requestTimeout = 20 * time.Second
	bulkTimeout    = 2 * time.Minute
)

// none is the type of a query or body that an operation does not have.
type none struct{}

// handle makes an operation of a function. The query and the body are decoded into
// their types and checked by the tags of those.
func handle[Query, Body any](a *api, op openapi.Operation, do func(context.Context, *request, Query, Body) (response, error)) operation {
	return handleWithin(a, requestTimeout, op, do)
}

// handleWithin is handle for operations that take longer.
func handleWithin[Query, Body any](a *api, timeout time.Duration, op openapi.Operation, do func(context.Context, *request, Query, Body) (response, error)) operation {
	if t := reflect.TypeFor[Query](); t.NumField() > 0 {
		op.Query = append([]reflect.Type{t}, op.Query...)
	}
	if t := reflect.TypeFor[Body](); op.Body == nil && t != reflect.TypeFor[none]() {
		op.Body = t
	}
	return a.handleRaw(op, func(w http.ResponseWriter, r *http.Request, op *openapi.Operation) (response, error) {
		var query Query
		var body Body
		in, err := readRequest(r, op, &query, &body)
		if err != nil {
			return response{}, err
		}
		if timeout > requestTimeout {
			extendDeadlines(w, timeout+requestTimeout)
		}
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		return do(ctx, in, query, body)
	})
}

// handleRaw makes an operation of a function that reads the request itself.
func (a *api) handleRaw(op openapi.Operation, do func(http.ResponseWriter, *http.Request, *openapi.Operation) (response, error)) operation {
	return operation{op, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, err := do(w, r, &op)
		a.reply(w, r, out, err)
	})}
}

// list makes an operation of a function that gives a page of a list.
func list[Query, Item any](a *api, op openapi.Operation, get func(context.Context, *request, Query, store.Page) ([]Item, store.Position, error)) operation {
	op.Query = append(op.Query, pageQueryType)
	op.Responses = []openapi.Response{openapi.JSON[[]Item](http.StatusOK, "A page of the list.", "Link")}
	return handle(a, op, func(ctx context.Context, r *request, q Query, _ none) (response, error) {
		items, last, err := get(ctx, r, q, r.page)
		if err != nil {
			return response{}, err
		}
		return response{next: r.nextPage(last), body: append([]Item{}, items...)}, nil // never null
	})
}

// reply writes a response, or the problem document of an error.
func (a *api) reply(w http.ResponseWriter, r *http.Request, out response, err error) {
	if err != nil {
		a.fail(w, r, err)
		return
	}
	var text bytes.Buffer
	large, stream := out.body.(streamed)
	if out.body != nil && !stream {
		if err := json.NewEncoder(&text).Encode(out.body); err != nil {
			a.fail(w, r, fmt.Errorf("encode the response: %w", err))
			return
		}
	}
	status := cmp.Or(out.status, http.StatusOK)
	setHeaders(w, out.header)
	if out.next != "" {
		w.Header().Set("Link", "<"+out.next+`>; rel="next"`)
	}
	switch {
	case stream:
		writeHead(w, status, openapi.MediaJSON, large.length())
		if err := large.writeTo(w); err != nil {
			panic(http.ErrAbortHandler) // the client is gone, or must not take a part for the whole
		}
	case out.body == nil:
		w.WriteHeader(status)
	default:
		write(w, status, openapi.MediaJSON, text.Bytes())
	}
}

func setHeaders(w http.ResponseWriter, header map[string]string) {
	for name, value := range header {
		w.Header().Set(name, value)
	}
}

func writeHead(w http.ResponseWriter, status int, contentType string, length int) {
	setHeaders(w, map[string]string{"Content-Type": contentType, "Content-Length": strconv.Itoa(length)})
	w.WriteHeader(status)
}

func write(w http.ResponseWriter, status int, contentType string, body []byte) {
	writeHead(w, status, contentType, len(body))
	w.Write(body) // a client that is gone cannot be told
}

// extendDeadlines gives a request more time than the server's timeouts do. Once the
// body is read, a read that times out would end the request's context.
func extendDeadlines(w http.ResponseWriter, by time.Duration) {
	connection := http.NewResponseController(w)
	until := time.Now().Add(by)
	connection.SetReadDeadline(until) // without support there is no timeout either
	connection.SetWriteDeadline(until)
}
