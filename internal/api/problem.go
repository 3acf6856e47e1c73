package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

// statuses says which HTTP status stands for which kind of failure.
var statuses = map[belfry.Code]int{
	belfry.Invalid:     http.StatusUnprocessableEntity,
	belfry.NotFound:    http.StatusNotFound,
	belfry.Conflict:    http.StatusConflict,
	belfry.Changed:     http.StatusPreconditionFailed,
	belfry.TooLarge:    http.StatusRequestEntityTooLarge,
	belfry.Unavailable: http.StatusServiceUnavailable,
	belfry.Internal:    http.StatusInternalServerError,
}

// Kinds of failure that only HTTP knows.
const (
	badRequest       belfry.Code = "bad_request"
	unauthorized     belfry.Code = "unauthorized"
	forbidden        belfry.Code = "forbidden"
	methodNotAllowed belfry.Code = "method_not_allowed"
	unsupportedMedia belfry.Code = "unsupported_media_type"
	misdirected      belfry.Code = "misdirected"
	tooSlow          belfry.Code = "too_slow"
	rateLimited      belfry.Code = "rate_limited"
)

// refusal is a failure that is told to a client as it stands.
type refusal struct {
	status int
	code   belfry.Code
	detail string
	faults []belfry.FieldError
	header map[string]string
}

func (e *refusal) Error() string { return e.detail }

// sentence is all that a client is told, in one line.
func (e *refusal) sentence() string {
	text := e.detail
	for i, f := range e.faults {
		mark := "; "
		if i == 0 {
			mark = ": "
		}
		text += mark + f.Field + " " + f.Message
	}
	return text
}

// refuse answers a request that is wrong as such.
func refuse(format string, args ...any) *refusal {
	return &refusal{status: http.StatusBadRequest, code: badRequest, detail: fmt.Sprintf(format, args...)}
}

// refuseParameters answers a request whose query or headers are wrong.
func refuseParameters(faults ...belfry.FieldError) *refusal {
	e := refuse("the request has wrong parameters")
	e.faults = faults
	return e
}

func noRoute(r *http.Request) *refusal {
	return &refusal{
		status: http.StatusNotFound,
		code:   belfry.NotFound,
		detail: fmt.Sprintf("there is nothing at %.200q; GET / lists what there is", r.URL.Path),
	}
}

func wrongMethod(r *http.Request, allow string) *refusal {
	return &refusal{
		status: http.StatusMethodNotAllowed,
		code:   methodNotAllowed,
		detail: fmt.Sprintf("%.20s is not possible here; possible: %s", r.Method, allow),
		header: map[string]string{"Allow": allow},
	}
}

// problem is the document of RFC 9457, with a code for programs, the request's id
// and the fields at fault.
type problem struct {
	Type      string              `json:"type"`
	Title     string              `json:"title"`
	Status    int                 `json:"status"`
	Detail    string              `json:"detail"`
	Code      belfry.Code         `json:"code"`
	RequestID string              `json:"request_id"`
	Errors    []belfry.FieldError `json:"errors,omitempty"`
}

// fail writes the problem document of an error, and logs what it does not say.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	e := tell(err)
	a.note(r, e, err)
	for name, value := range e.header {
		w.Header().Set(name, value)
	}
	body, _ := json.Marshal(problem{ // It has only strings and numbers.
		Type:      "about:blank",
		Title:     http.StatusText(e.status),
		Status:    e.status,
		Detail:    e.detail,
		Code:      e.code,
		RequestID: visitOf(r).id,
		Errors:    e.faults[:min(len(e.faults), maxShownFaults)],
	})
	write(w, e.status, "application/problem+json", append(body, '\n'))
}

// maxFaults is how many faults of one object are looked for, and maxShownFaults
// how many an answer lists.
const (
	maxFaults      = 50
	maxShownFaults = control.MaxImportFaults
)

// tell turns an error into what a client may know of it.
func tell(err error) *refusal {
	var told *refusal
	if errors.As(err, &told) {
		return told
	}
	var known *belfry.Error
	if !errors.As(err, &known) {
		known = &belfry.Error{Code: belfry.Internal}
	}
	status, ok := statuses[known.Code]
	if !ok {
		known, status = &belfry.Error{Code: belfry.Internal}, http.StatusInternalServerError
	}
	told = &refusal{status: status, code: known.Code, detail: known.Message, faults: known.Fields}
	switch known.Code {
	case belfry.Unavailable:
		told.detail = "the database cannot be reached; try again"
		told.header = map[string]string{"Retry-After": "5"}
	case belfry.Internal:
		told.detail = "something went wrong here; the log tells more under the request's id"
	case belfry.TooLarge:
		// The rest of the body is not read, so the connection cannot go on.
		told.header = map[string]string{"Connection": "close"}
	}
	return told
}

// note logs failures that are not the client's.
func (a *api) note(r *http.Request, told *refusal, err error) {
	if told.status < http.StatusInternalServerError {
		return
	}
	level := slog.LevelError
	switch {
	case r.Context().Err() != nil:
		level = slog.LevelDebug // The client left; that is why.
	case told.status == http.StatusServiceUnavailable:
		level = slog.LevelWarn
	}
	a.log.Log(r.Context(), level, "request failed", "request_id", visitOf(r).id, "method", r.Method,
		"path", r.URL.Path, "status", told.status, "error", err)
}
