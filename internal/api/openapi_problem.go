package api

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/belfry-sh/belfry"
)

var problemType = reflect.TypeFor[problem]()

// failure describes the problem documents of one status.
type failure struct {
	name    string // of the component
	about   string
	headers []string
	example *refusal
}

// failures are the statuses of problem documents that the document lists. What
// else may happen has the same form, and is described as the default.
var failures = map[int]failure{
	http.StatusBadRequest: {
		name: "BadRequest", about: "The request as such cannot be read: its query, its headers or its JSON.",
		example: refuseParameters(belfry.FieldError{Field: "limit", Message: "must be from 1 to 500"}),
	},
	http.StatusUnauthorized: {
		name: "Unauthorized", about: "An API key is needed, and there is none or a wrong one.", headers: []string{"WWW-Authenticate"},
		example: noKey("", "an API key is required: send the header Authorization: Bearer <key>"),
	},
	http.StatusNotFound: {
		name: "NotFound", about: "There is no such thing, or not in this namespace.",
		example: tell(belfry.Errorf(belfry.NotFound, "there is no job %q", "nightly-report")),
	},
	http.StatusConflict: {
		name: "Conflict", about: "It is there already, or it does not fit what is there.",
		example: tell(belfry.Errorf(belfry.Conflict, "there is already a job named %q", "nightly-report")),
	},
	http.StatusPreconditionFailed: {
		name: "Changed", about: "It is no longer as `If-Match` says. Read it again.",
		example: &refusal{status: http.StatusPreconditionFailed, code: belfry.Changed, detail: "the job has changed meanwhile; read it again"},
	},
	http.StatusRequestEntityTooLarge: {
		name: "TooLarge", about: "The body has more bytes than allowed.",
		example: tell(belfry.Errorf(belfry.TooLarge, "the body is too large, the most is %d bytes", 1<<20)),
	},
	http.StatusUnsupportedMediaType: {
		name: "UnsupportedMediaType", about: "The body is not of a media type that is read here.",
		example: &refusal{status: http.StatusUnsupportedMediaType, code: unsupportedMedia, detail: "the body must be application/json in UTF-8"},
	},
	http.StatusUnprocessableEntity: {
		name: "Invalid", about: "What was asked for is wrong. Every field at fault is named.",
		example: tell(&belfry.Error{Code: belfry.Invalid, Message: "the job is not valid", Fields: []belfry.FieldError{
			{Field: "schedule", Message: `column 1: minute 61 is out of range, it goes from 0 to 59; for example "*/15 * * * *"`},
			{Field: "timezone", Message: `there is no time zone "Paris"; did you mean "Europe/Paris"?`},
		}}),
	},
	http.StatusTooManyRequests: {
		name: "RateLimited", about: "There were too many requests under this key.", headers: []string{"Retry-After"},
		example: &refusal{status: http.StatusTooManyRequests, code: rateLimited, detail: "too many requests under this key; try again later"},
	},
	http.StatusServiceUnavailable: {
		name: "Unavailable", about: "The database cannot be reached. Nothing is known to have been done.", headers: []string{"Retry-After"},
		example: tell(belfry.Errorf(belfry.Unavailable, "reach the database")),
	},
}

// refusals describes the answers of failure: those of the operation, and those
// that any may give.
func (d *document) refusals(op *operation, out *documentOperation) {
	list := slices.Clone(op.refusals)
	if spoken(op) {
		list = append(list, http.StatusBadRequest, http.StatusServiceUnavailable)
	}
	if d.keyed && !op.open {
		list = append(list, http.StatusUnauthorized)
		if d.limited {
			list = append(list, http.StatusTooManyRequests)
		}
	}
	slices.Sort(list)
	for _, status := range slices.Compact(list) {
		out.Responses.add(strconv.Itoa(status), d.failure(status))
	}
	out.Responses.add("default", d.failure(0))
}

// failure refers to the component of a status; 0 is that of all others.
func (d *document) failure(status int) *documentResponse {
	f, known := failures[status]
	switch {
	case status == 0:
		f = failure{name: "Failure", about: "Anything else that may go wrong.", example: tell(belfry.Errorf(belfry.Internal, "serve"))}
	case !known:
		d.schemas.fault("the status %d is not described", status)
		return &documentResponse{Description: http.StatusText(status)}
	}
	if _, there := d.Components.Responses.get(f.name); !there {
		out := &documentResponse{Description: f.about}
		for _, name := range append([]string{"X-Request-Id"}, f.headers...) {
			out.Headers.add(name, d.header(name))
		}
		value, _ := json.Marshal(exampleProblem(f.example))
		out.Content.add(mediaFault, &documentMedia{
			Schema:   d.schemas.of(problemType),
			Examples: ordered[*documentExample]{{"example", &documentExample{http.StatusText(f.example.status), value}}},
		})
		d.Components.Responses.add(f.name, out)
	}
	return &documentResponse{Ref: "#/components/responses/" + f.name}
}

// exampleProblem is the problem document of a refusal.
func exampleProblem(e *refusal) problem {
	return problem{
		Type: "about:blank", Title: http.StatusText(e.status), Status: e.status, Detail: e.detail, Code: e.code,
		RequestID: strings.Trim(samples["Problem.request_id"], `"`), Errors: e.faults,
	}
}
