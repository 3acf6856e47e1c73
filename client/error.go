package client

import (
	"cmp"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
)

// Error is a failure that a server, or a proxy in front of it, answered.
type Error struct {
	Status     int                 // HTTP status
	Code       belfry.Code         // the kind of failure
	Detail     string              // a sentence for people
	Fields     []belfry.FieldError // the fields that are wrong
	RequestID  string              // in the server's log
	RetryAfter time.Duration       // that the server asks for; zero if it does not

	maybeDone bool // an earlier try of the same call may have been executed
}

// Error is one line.
func (e *Error) Error() string {
	const maxFields = 10
	text, before := e.Detail, ": "
	for _, f := range e.Fields[:min(len(e.Fields), maxFields)] {
		text += before + f.Field + ": " + f.Message
		before = "; "
	}
	if more := len(e.Fields) - maxFields; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	if e.maybeDone {
		text += "; an earlier try of this call, whose answer was lost, may have changed it"
	}
	if e.Status >= http.StatusInternalServerError && e.RequestID != "" {
		text += " (request " + e.RequestID + ")"
	}
	return text
}

// Unwrap returns the failure as a *belfry.Error. BadRequest is Invalid there.
func (e *Error) Unwrap() error {
	code := e.Code
	if code == belfry.BadRequest {
		code = belfry.Invalid
	}
	return &belfry.Error{Code: code, Message: e.Detail, Fields: e.Fields}
}

// SchemeError is that an address has https:// although the server does not use TLS, or
// http:// although it does.
type SchemeError struct {
	Use string // the address to use instead
}

func (e *SchemeError) Error() string {
	if strings.HasPrefix(e.Use, "http:") {
		return "the server does not use TLS: use " + e.Use
	}
	return "the server uses TLS: use " + e.Use
}

func (c *Client) schemeError() *SchemeError {
	if host, ok := strings.CutPrefix(c.base, "https://"); ok {
		return &SchemeError{"http://" + host}
	}
	return &SchemeError{"https://" + strings.TrimPrefix(c.base, "http://")}
}

// A server that uses TLS answers plain HTTP with an alert, or with one of these texts,
// of Go, nginx and Apache.
const tlsAlert = `malformed HTTP response "\x15\x03`

var wantsTLS = regexp.MustCompile(`(?i)HTTP request to an HTTPS server|plain HTTP request was sent to HTTPS port|plain HTTP to an SSL-enabled server port`)

const (
	maxProblem = 256 << 10 // bytes of a problem document
	maxDetail  = 1 << 10   // bytes of a text in it
)

// newError is the Error of an answer. If it is not a problem document, only its status
// counts: the text may be a page of a proxy.
func newError(a *http.Response, body []byte) *Error {
	e := &Error{Status: a.StatusCode, RequestID: sanitizeLine(a.Header.Get("X-Request-Id"), 100), RetryAfter: retryAfter(a.Header, time.Now())}
	var p belfry.Problem
	media, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if media == "application/problem+json" && json.Unmarshal(body, &p) == nil && p.Detail != "" && p.Code != "" {
		e.Code, e.Detail = belfry.Code(sanitizeLine(string(p.Code), 64)), sanitizeLine(p.Detail, maxDetail)
		e.RequestID = cmp.Or(sanitizeLine(p.RequestID, 100), e.RequestID)
		for _, f := range p.Errors {
			e.Fields = append(e.Fields, belfry.FieldError{Field: sanitizeLine(f.Field, maxDetail), Message: sanitizeLine(f.Message, maxDetail)})
		}
		return e
	}
	e.Code, e.Detail = foreignError(a)
	return e
}

// foreignError is the code and the detail of an answer that is not one of a Belfry server.
func foreignError(a *http.Response) (belfry.Code, string) {
	detail := fmt.Sprintf("the answer is %d %s, not one of a Belfry server", a.StatusCode, http.StatusText(a.StatusCode))
	switch status := a.StatusCode; {
	case status >= 300 && status < 400:
		target := "another address"
		if to, err := a.Location(); err == nil {
			target = (&url.URL{Scheme: to.Scheme, Host: to.Host}).String()
		}
		return belfry.Internal, fmt.Sprintf("the answer redirects to %s: use that address", sanitizeLine(target, 200))
	case status == http.StatusBadRequest:
		return belfry.BadRequest, detail + ": check the address"
	case status == http.StatusUnauthorized:
		return belfry.Unauthorized, detail + ": check the address and the key"
	case status == http.StatusForbidden:
		return belfry.Forbidden, detail + ": a proxy refuses the request"
	case status == http.StatusNotFound:
		return belfry.NotFound, detail + ": check the address"
	case status == http.StatusPreconditionFailed:
		return belfry.Changed, detail
	case status == http.StatusRequestEntityTooLarge:
		return belfry.TooLarge, detail + ": a proxy refuses a request of this size"
	case status == http.StatusTooManyRequests:
		return belfry.RateLimited, detail + ": try again later"
	case status == http.StatusBadGateway, status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		return belfry.Unavailable, detail + ": the server behind a proxy cannot be reached; try again later"
	default:
		return belfry.Internal, detail + ": check the address"
	}
}

func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

// sanitizeLine makes text from outside safe to print in one line.
func sanitizeLine(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, sanitize.Text(s, limit))
	return strings.TrimSpace(s)
}
