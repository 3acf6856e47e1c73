package client

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
)

// Error is what a server, or a proxy in front of it, answered instead of doing
// what it was asked for.
type Error struct {
	Status     int                 // of the HTTP answer
	Code       belfry.Code         // the kind of failure
	Detail     string              // a sentence for people
	Fields     []belfry.FieldError // the fields that are wrong
	RequestID  string              // under which the server's log has more
	RetryAfter time.Duration       // what the server asked for; zero if nothing

	maybeDone bool // an earlier try of the same call may have been carried out
}

// Error is one line that says what is wrong and what to do.
func (e *Error) Error() string {
	const most = 10
	var b strings.Builder
	b.WriteString(e.Detail)
	for i, f := range e.Fields[:min(len(e.Fields), most)] {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%s%s: %s", sep, f.Field, f.Message)
	}
	if more := len(e.Fields) - most; more > 0 {
		fmt.Fprintf(&b, "; and %d more", more)
	}
	if e.maybeDone {
		b.WriteString("; the answer to an earlier try of this call was lost, and may be what changed it")
	}
	if e.Status >= http.StatusInternalServerError && e.RequestID != "" {
		fmt.Fprintf(&b, " (request %s)", e.RequestID)
	}
	return b.String()
}

// Unwrap gives the failure in the terms of package belfry. A request that is
// wrong as such is Invalid there.
func (e *Error) Unwrap() error {
	code := e.Code
	if code == belfry.BadRequest {
		code = belfry.Invalid
	}
	return &belfry.Error{Code: code, Message: e.Detail, Fields: e.Fields}
}

const (
	maxProblem = 256 << 10 // bytes read of an answer that tells of a failure
	maxDetail  = 1 << 10   // bytes kept of a sentence in it
)

// failure makes the Error of an answer. Of one that is no problem document only
// the status is believed: pages of proxies are not for people who read errors.
func failure(a *http.Response, body []byte) *Error {
	e := &Error{Status: a.StatusCode, RequestID: oneLine(a.Header.Get("X-Request-Id"), 100), RetryAfter: retryAfter(a.Header, time.Now())}
	var p belfry.Problem
	media, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if media == "application/problem+json" && json.Unmarshal(body, &p) == nil && p.Detail != "" && p.Code != "" {
		e.Code, e.Detail = belfry.Code(oneLine(string(p.Code), 64)), oneLine(p.Detail, maxDetail)
		if p.RequestID != "" {
			e.RequestID = oneLine(p.RequestID, 100)
		}
		for _, f := range p.Errors {
			e.Fields = append(e.Fields, belfry.FieldError{Field: oneLine(f.Field, maxDetail), Message: oneLine(f.Message, maxDetail)})
		}
		return e
	}
	e.Code, e.Detail = strange(a)
	return e
}

// strange says what an answer means that is not one of a Belfry server.
func strange(a *http.Response) (belfry.Code, string) {
	said := fmt.Sprintf("the answer is %d %s, and not from a Belfry server", a.StatusCode, http.StatusText(a.StatusCode))
	switch status := a.StatusCode; {
	case status >= 300 && status < 400:
		where := "elsewhere"
		if to, err := a.Location(); err == nil {
			where = "to " + (&url.URL{Scheme: to.Scheme, Host: to.Host}).String()
		}
		return belfry.Internal, fmt.Sprintf("the answer leads %s: give that address as the server's", oneLine(where, 200))
	case status == http.StatusBadRequest:
		return belfry.BadRequest, said + ": check its address"
	case status == http.StatusUnauthorized:
		return belfry.Unauthorized, said + ": check its address and the key"
	case status == http.StatusForbidden:
		return belfry.Forbidden, said + ": a proxy does not let this pass"
	case status == http.StatusNotFound:
		return belfry.NotFound, said + ": check its address"
	case status == http.StatusPreconditionFailed:
		return belfry.Changed, said
	case status == http.StatusRequestEntityTooLarge:
		return belfry.TooLarge, said + ": a proxy allows less than this"
	case status == http.StatusTooManyRequests:
		return belfry.RateLimited, said + ": try again later"
	case status == http.StatusBadGateway, status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		return belfry.Unavailable, said + ": the server behind it cannot be reached, try again later"
	default:
		return belfry.Internal, said + ": check its address"
	}
}

// retryAfter reads how long a server wants to be left alone.
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

// oneLine makes text from outside fit for a line of a terminal.
func oneLine(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, sanitize.Text(s, limit))
	return strings.TrimSpace(s)
}
