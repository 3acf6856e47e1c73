// Package belfry is the vocabulary of the scheduler: jobs, runs, attempts and their
// results, the requests and answers of the API, and the rules about them that need no
// machine. It imports the standard library only; everything else in the module speaks
// in its terms.
//
// Each thing that travels has one type here, and everything about a field is said on
// the field: its JSON name, a description (doc), an example, its limits (min, max,
// minlen, maxlen, minitems, maxitems, pattern, enum) and its default. The server, the client, the command
// line, the OpenAPI document and the reference page read it from there. In descriptions, code stands in
// single quotes.
package belfry

import (
	"errors"
	"fmt"
	"strings"
)

// DefaultNamespace is the namespace of whatever names none.
const DefaultNamespace = "default"

// DefaultQueue is the queue of a job that names none.
const DefaultQueue = "default"

// Limits on input.
const (
	MaxPayload = 256 << 10 // bytes of a job's payload
	MaxOutput  = 64 << 10  // bytes kept of an attempt's output
	MaxLog     = 64 << 10  // bytes kept of an attempt's log, the newest
	MaxName    = 200       // characters of a job's name
)

// EnumValue is one value of an enumeration and what it means.
type EnumValue struct{ Value, Doc string }

// Enum is a type with a fixed list of values.
type Enum interface{ EnumValues() []EnumValue }

// Code is the kind of a failure. The list is append-only.
type Code string

// The codes that the library returns, and those that only a server returns.
const (
	Invalid     Code = "invalid"
	NotFound    Code = "not_found"
	Conflict    Code = "conflict"
	Changed     Code = "changed"
	TooLarge    Code = "too_large"
	Unavailable Code = "unavailable"
	Internal    Code = "internal"

	BadRequest           Code = "bad_request"
	Unauthorized         Code = "unauthorized"
	Forbidden            Code = "forbidden"
	MethodNotAllowed     Code = "method_not_allowed"
	RequestTimeout       Code = "request_timeout"
	UnsupportedMediaType Code = "unsupported_media_type"
	Misdirected          Code = "misdirected"
	RateLimited          Code = "rate_limited"

	QuotaExceeded Code = "quota_exceeded"
)

// EnumValues lists the codes.
func (Code) EnumValues() []EnumValue {
	return []EnumValue{
		{"bad_request", "the query, the headers or the JSON of the request cannot be read"},
		{"unauthorized", "an API key is required, and there is none or a wrong one, or the key file of the server cannot be used"},
		{"forbidden", "a page of another origin requested a change"},
		{"not_found", "it does not exist, or not in this namespace"},
		{"method_not_allowed", "the path does not support the method; the header 'Allow' lists those it supports"},
		{"request_timeout", "the request did not arrive in time"},
		{"conflict", "it exists already, or it conflicts with what exists"},
		{"changed", "it is not the version that 'If-Match' names"},
		{"too_large", "more bytes than allowed"},
		{"unsupported_media_type", "the media type of the body is not supported"},
		{"misdirected", "the server does not accept the name in the 'Host' header"},
		{"invalid", "the input is invalid; 'errors' names every field"},
		{"rate_limited", "too many requests with this key, or in this namespace; 'Retry-After' says when to try again"},
		{"unavailable", "the database cannot be reached, or the server is too busy; try again"},
		{"internal", "anything else; the server logs the cause with the request id"},
		{"quota_exceeded", "the namespace would have more than its quota allows"},
	}
}

// FieldError is one field that is wrong, and how to correct it. The message follows
// the name of the field: "must be from 1 to 10".
type FieldError struct {
	Field   string `json:"field" example:"schedule" doc:"Path of the field, parameter or header."`
	Message string `json:"message" example:"column 1: minute 61 is out of range, it goes from 0 to 59; for example \"*/15 * * * *\"" doc:"What is wrong, often with an example."`
}

// Problem is a failure as the API returns it, see RFC 9457.
type Problem struct {
	_         struct{}     `doc:"A failure (RFC 9457)."`
	Type      string       `json:"type" example:"about:blank" doc:"Always 'about:blank': see 'code'."`
	Title     string       `json:"title" example:"Unprocessable Entity" doc:"The HTTP status as text."`
	Status    int          `json:"status" example:"422" doc:"The HTTP status."`
	Detail    string       `json:"detail" example:"the job is not valid" doc:"What went wrong, for people."`
	Code      Code         `json:"code" example:"invalid" doc:"What went wrong, for programs. More codes may be added."`
	RequestID string       `json:"request_id" example:"01a22f39-2d30-7f6e-b1d2-6a90c3e7f5b8" doc:"Id of the request; the server logs more with it."`
	Errors    []FieldError `json:"errors,omitempty" doc:"Every field that is wrong, at most 100."`
}

// Error is a failure that users may see: a code for programs, a sentence for people
// and, for invalid input, the fields that are wrong.
type Error struct {
	Code    Code
	Message string
	Fields  []FieldError
	err     error
}

// Error is for logs: it includes the cause, which Message does not.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Message)
	for i, f := range e.Fields {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%s%s: %s", sep, f.Field, f.Message)
	}
	if e.err != nil {
		fmt.Fprintf(&b, ": %v", e.err)
	}
	return b.String()
}

// Unwrap gives the cause, which is for the log and never for a client.
func (e *Error) Unwrap() error { return e.err }

// Errorf makes an Error. An operand of %w, which the format should end in, is its
// cause and does not become part of the message.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	e := &Error{Code: code, Message: err.Error(), err: errors.Unwrap(err)}
	if e.err != nil {
		e.Message = strings.TrimSuffix(e.Message, ": "+e.err.Error())
		e.Message = strings.ReplaceAll(e.Message, e.err.Error(), "something")
	}
	return e
}

// CodeOf gives the code of an error: Internal for any that is not an Error.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return Internal
}
