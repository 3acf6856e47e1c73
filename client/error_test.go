package client

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

func TestErrorMessages(t *testing.T) {
	page := "<html><body>" + strings.Repeat("secret page ", 100_000) + "</body></html>"
	html := func(status int, more ...string) said {
		return said{status: status, body: page, header: strings.Join(append(more, "Content-Type: text/html"), "\n")}
	}
	for _, tt := range []struct {
		name   string
		answer said
		code   belfry.Code // of CodeOf
		line   string
	}{
		{"a problem document", refusal(409, "conflict", "the name is taken"), belfry.Conflict, "get job: the name is taken"},
		{"one of the server's own failure names the request", refusal(500, "internal", "oh no"), belfry.Internal, "get job: oh no (request r1)"},
		{"one with faults", said{status: 422, body: `{"detail":"the job is not valid","code":"invalid","errors":[{"field":"schedule","message":"is missing"},{"field":"queue","message":"is odd"}]}`},
			belfry.Invalid, "get job: the job is not valid: schedule: is missing; queue: is odd"},
		{"a request that is wrong as such", refusal(400, "bad_request", "the request has wrong parameters"), belfry.Invalid, "get job: the request has wrong parameters"},
		{"a key that is not known", refusal(401, "unauthorized", "an API key is required"), belfry.Unauthorized, "get job: an API key is required"},
		{"a code of a newer server", refusal(418, "teapot", "short and stout"), "teapot", "get job: short and stout"},
		{"control characters", refusal(404, "not_found", "no \x1b[31mjob\n\tx"), belfry.NotFound, "get job: no  [31mjob  x"},
		{"a page of a proxy", html(404), belfry.NotFound, "get job: the answer is 404 Not Found, not one of a Belfry server: check the address"},
		{"a proxy that refuses", html(403), belfry.Forbidden, "get job: the answer is 403 Forbidden, not one of a Belfry server: a proxy refuses the request"},
		{"a proxy that allows less", html(413), belfry.TooLarge, "get job: the answer is 413 Request Entity Too Large, not one of a Belfry server: a proxy refuses a request of this size"},
		{"a proxy without a server", html(502, "Retry-After: 3600"), belfry.Unavailable, "get job: the answer is 502 Bad Gateway, not one of a Belfry server: the server behind a proxy cannot be reached; try again later"},
		{"a redirect", html(302, "Location: https://user:pw@login.test/x?token=1"), belfry.Internal, "get job: the answer redirects to https://login.test: use that address"},
		{"a redirect to nowhere", html(301), belfry.Internal, "get job: the answer redirects to another address: use that address"},
		{"a page where a job should be", html(200), belfry.Internal, `get job: the answer is 200 with "text/html" that cannot be decoded, not one of a Belfry server of this version: check the address`},
		{"half a problem document", said{status: 422, body: `{"detail":"x`}, belfry.Internal, "get job: the answer is 422 Unprocessable Entity, not one of a Belfry server: check the address"},
		{"JSON that is no problem document", said{status: 500, body: `{"message":"secret"}`}, belfry.Internal, "get job: the answer is 500 Internal Server Error, not one of a Belfry server: check the address"},
	} {
		c, _ := scripted(t, tt.answer)
		_, err := c.Job(t.Context(), "x")
		if err == nil || err.Error() != tt.line || belfry.CodeOf(err) != tt.code {
			t.Errorf("%s:\n got %v (%s)\nwant %s (%s)", tt.name, err, belfry.CodeOf(err), tt.line, tt.code)
		}
		answer, ok := errors.AsType[*Error](err)
		if ok != (tt.answer.status != 200) || ok && answer.Status != tt.answer.status {
			t.Errorf("%s: got %+v", tt.name, answer)
		}
	}
}

func TestErrorWithManyFields(t *testing.T) {
	e := &Error{Detail: "the jobs are not valid", Fields: make([]belfry.FieldError, 50)}
	for i := range e.Fields {
		e.Fields[i] = belfry.FieldError{Field: fmt.Sprintf("line %d", i), Message: "is bad"}
	}
	if got := e.Error(); !strings.HasSuffix(got, "line 9: is bad; and 40 more") || strings.Contains(got, "\n") {
		t.Errorf("got %s", got)
	}
	var known *belfry.Error
	if !errors.As(error(e), &known) || len(known.Fields) != 50 {
		t.Errorf("got %+v", known)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-7": 0, "soon": 0, "99999999999": 0,
		"Tue, 01 Jan 2030 00:00:30 GMT": 30 * time.Second, "Tue, 01 Jan 2019 00:00:30 GMT": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

func TestAnswerSizeIsLimited(t *testing.T) {
	c := serving(t, func(w http.ResponseWriter, _ *http.Request) {
		chunk := make([]byte, 1<<20)
		for range maxAnswer>>20 + 1 {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	if _, err := c.Job(t.Context(), "x"); belfry.CodeOf(err) != belfry.TooLarge {
		t.Errorf("got %v", err)
	}
}
