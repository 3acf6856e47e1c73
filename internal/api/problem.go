package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/openapi"
)

// maxShownErrors is how many fields a problem document lists.
const maxShownErrors = control.MaxImportErrors

// httpError is a failure that a client sees as it is.
type httpError struct {
	code   belfry.Code
	detail string
	fields []belfry.FieldError
	header map[string]string
}

func (e *httpError) Error() string { return e.detail }

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
	case belfry.Invalid, belfry.NotFound, belfry.Conflict, belfry.Changed:
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
	a.Log.Log(r.Context(), level, "request failed", "request_id", contextOf(r).id, "method", r.Method, "path", r.URL.Path, "status", status, "error", err)
}

func noRoute(r *http.Request) *httpError {
	return &httpError{code: belfry.NotFound, detail: fmt.Sprintf("there is nothing at %.200q; GET / lists all operations", r.URL.Path)}
}

func methodNotAllowed(r *http.Request, allow string) *httpError {
	return &httpError{code: belfry.MethodNotAllowed, detail: fmt.Sprintf("%.20s is not supported here; supported: %s", r.Method, allow), header: map[string]string{"Allow": allow}}
}
