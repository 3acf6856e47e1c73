package belfry

import (
	"errors"
	"fmt"
	"strings"
)

// Code says what kind of failure an Error is. The list is append-only.
type Code string

// The kinds of failure a caller may act on.
const (
	Invalid     Code = "invalid"     // what was asked for is wrong; see the faults
	NotFound    Code = "not_found"   // no such thing, or not in this namespace
	Conflict    Code = "conflict"    // it is there already, or changed meanwhile
	Changed     Code = "changed"     // it is no longer as the caller has seen it
	TooLarge    Code = "too_large"   // more bytes than allowed
	Unavailable Code = "unavailable" // the database cannot be reached; try again
	Internal    Code = "internal"    // anything else
)

// Fault names one field that is wrong and what to do about it.
type FieldError struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// Error is a failure that people may see: a code for programs, a sentence for
// people and, for invalid input, the fields at fault.
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
