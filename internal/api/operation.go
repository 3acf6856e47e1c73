package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/jsontext"
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

// shownAll shows a whole list, which is never null.
func shownAll[T any](list []T, err error) (response, error) {
	return response{body: append([]T{}, list...)}, err
}

// putResponse shows what a PUT has created or replaced.
func putResponse[T any](body T, created bool, err error) (response, error) {
	if created {
		return response{status: http.StatusCreated, body: body}, err
	}
	return shown(body, err)
}

// byID shows what has the id in the path.
func byID[T any](find func(context.Context, string, belfry.ID) (T, error)) func(context.Context, *request, none, none) (response, error) {
	return func(ctx context.Context, r *request, _, _ none) (response, error) {
		return shown(find(ctx, r.namespace, r.id))
	}
}

// inNamespace is a list of the namespace of a request.
func inNamespace[Query, Item any](get func(context.Context, string, Query, store.Page) ([]Item, store.Position, error)) func(context.Context, *request, Query, store.Page) ([]Item, store.Position, error) {
	return func(ctx context.Context, r *request, q Query, p store.Page) ([]Item, store.Position, error) {
		return get(ctx, r.namespace, q, p)
	}
}

// nameInPath is the error of a body with another name than that in the path.
var nameInPath = belfry.FieldError{Field: "name", Message: "must be the name in the path"}

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
	text := buffers.Get().(*[]byte)
	defer releaseBuffer(text)
	large, stream := out.body.(streamed)
	if out.body != nil && !stream {
		if *text, err = jsontext.Append((*text)[:0], out.body); err != nil {
			a.fail(w, r, fmt.Errorf("encode the response: %w", err))
			return
		}
		*text = append(*text, '\n')
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
		write(w, status, openapi.MediaJSON, *text)
	}
}

// buffers are those that responses are written in, except for large ones, which are rare.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

func releaseBuffer(text *[]byte) {
	const largest = 1 << 20
	if cap(*text) <= largest {
		buffers.Put(text)
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

const maxShownErrors = control.MaxImportErrors

// httpError is a failure that a client sees as it is.
type httpError struct {
	code   belfry.Code
	detail string
	fields []belfry.FieldError
	header map[string]string
}

func (e *httpError) Error() string { return e.detail }

// Unwrap is the error for those who know no HTTP.
func (e *httpError) Unwrap() error {
	return &belfry.Error{Code: e.code, Message: e.detail, Fields: e.fields}
}

func (e *httpError) status() int { return openapi.StatusOf(e.code) }

// badRequest is the error of a request that cannot be read.
func badRequest(format string, args ...any) *httpError {
	return &httpError{code: belfry.BadRequest, detail: fmt.Sprintf(format, args...)}
}

// badParameters is the error of a query or of headers.
func badParameters(fields ...belfry.FieldError) *httpError {
	return &httpError{code: belfry.BadRequest, detail: "the request has wrong parameters", fields: fields}
}

// fail writes the problem document of an error, and logs what it does not say.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	e := publicError(err)
	a.logFailure(r, e, err)
	setHeaders(w, e.header)
	body, _ := json.Marshal(belfry.Problem{ // strings and numbers only
		Type:      "about:blank",
		Title:     http.StatusText(e.status()),
		Status:    e.status(),
		Detail:    e.detail,
		Code:      e.code,
		RequestID: contextOf(r).id,
		Errors:    e.fields[:min(len(e.fields), maxShownErrors)],
	})
	write(w, e.status(), openapi.MediaProblem, append(body, '\n'))
}

// publicError is what a client may know of an error.
func publicError(err error) *httpError {
	if e, ok := errors.AsType[*httpError](err); ok {
		return e
	}
	known := &belfry.Error{Code: belfry.Internal}
	errors.As(err, &known)
	e := &httpError{code: known.Code, detail: known.Message, fields: known.Fields}
	switch known.Code {
	case belfry.Unavailable:
		e.header = map[string]string{"Retry-After": "5"}
		if !errors.Is(err, control.ErrBusy) {
			e.detail = "the database cannot be reached; try again"
		}
	case belfry.TooLarge:
		e.header = map[string]string{"Connection": "close"} // the rest of the body is not read
	case belfry.Invalid, belfry.NotFound, belfry.Conflict, belfry.Changed, belfry.Forbidden, belfry.QuotaExceeded:
	default:
		e.code, e.detail, e.fields = belfry.Internal, "internal error; the server logs the cause with the request id", nil
	}
	return e
}

// logFailure logs failures that are not the client's.
func (a *api) logFailure(r *http.Request, e *httpError, err error) {
	status := e.status()
	if status < http.StatusInternalServerError {
		return
	}
	level := slog.LevelError
	switch {
	case r.Context().Err() != nil:
		level = slog.LevelDebug // the client left, which is the cause
	case status == http.StatusServiceUnavailable:
		level = slog.LevelWarn
	}
	a.Log.Log(r.Context(), level, "request failed", "request_id", contextOf(r).id, "method", r.Method, "path", loggedPath(r), "status", status, "error", err)
}

// pageQuery is the parameters of every list.
type pageQuery struct {
	Limit  int    `json:"limit,omitempty" min:"1" max:"500" implicit:"50" doc:"How many items a page has."`
	Cursor string `json:"cursor,omitempty" doc:"Start of the page: taken from the 'Link' header of the page before."`
}

const defaultPageSize = 50

var (
	pageQueryType = reflect.TypeFor[pageQuery]()
	pageQueries   = []reflect.Type{pageQueryType}
)

// cursor is a position in a list, of the last item of a page. Clients return it
// unchanged.
type cursor struct {
	Version byte
	Scope   cursorScope
	At      int64 // in microseconds
	ID      belfry.ID
}

const cursorVersion = 2

var (
	errCursor        = errors.New("is not a cursor of this list; take it from the answer before")
	errCursorVersion = errors.New("is a cursor of another version of the server; start the list again")
	errCursorScope   = errors.New("belongs to another list or filter; repeat the request of the page before, or start again without a cursor")
)

// cursorScope is a digest of the list and filter that a cursor belongs to.
type cursorScope [8]byte

func newCursorScope(path, namespace string, filter url.Values) (s cursorScope) {
	filter = maps.Clone(filter)
	delete(filter, "cursor")
	delete(filter, "limit")
	sum := sha256.Sum256(fmt.Appendf(nil, "%q\n%q\n%q", path, namespace, filter.Encode()))
	copy(s[:], sum[:])
	return s
}

func (s cursorScope) encode(p store.Position) string {
	raw, _ := binary.Append(nil, binary.BigEndian, cursor{cursorVersion, s, p.At.UnixMicro(), p.ID}) // its size is fixed
	return base64.RawURLEncoding.EncodeToString(raw)
}

func (s cursorScope) decode(text string) (p store.Position, err error) {
	if text == "" {
		return p, nil
	}
	var c cursor
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	size, short := binary.Decode(raw, binary.BigEndian, &c)
	switch {
	case err != nil || short != nil || size != len(raw) || strings.ContainsAny(text, "\r\n"): // decoding would skip those
		return p, errCursor
	case c.Version != cursorVersion:
		return p, errCursorVersion
	case c.Scope != s:
		return p, errCursorScope
	}
	return store.Position{At: time.UnixMicro(c.At).UTC(), ID: c.ID}, nil
}

// nextPage is the address of the page after a position; empty if that is zero.
func (in *request) nextPage(last store.Position) string {
	if last == (store.Position{}) {
		return ""
	}
	next := maps.Clone(in.query)
	next.Set("cursor", in.cursor.encode(last))
	return in.path + "?" + next.Encode()
}
