package target

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/worker"
)

// applyError is the result that an error makes.
func applyError(err error) (r belfry.Result) {
	r.ApplyError(err)
	return r
}

func TestRetryAfterOfResponses(t *testing.T) {
	const week, atOnce = 7 * 24 * 3600, 0.001
	for _, tt := range []struct {
		name, status, headers string
		want                  float64 // seconds
	}{
		{"429 with seconds", "429 Too Many Requests", "Retry-After: 120", 120},
		{"503 with seconds", "503 Service Unavailable", "Retry-After: 7", 7},
		{"in any case of its letters", "503 Service Unavailable", "retry-after: 7", 7},
		{"a date", "429 Too Many Requests", "Retry-After: Sat, 01 Jan 2000 00:05:00 GMT", 300}, // a bubble begins in the year 2000
		{"a date of a wrong clock", "429 Too Many Requests", "Date: Fri, 13 Jun 2031 12:00:00 GMT\r\nRetry-After: Fri, 13 Jun 2031 12:01:30 GMT", 90},
		{"a date and an invalid Date", "429 Too Many Requests", "Date: today\r\nRetry-After: Sat, 01 Jan 2000 00:05:00 GMT", 300},
		{"more than a week", "503 Service Unavailable", "Retry-After: 604801", week},
		{"more than a number can be", "503 Service Unavailable", "Retry-After: 99999999999999999999999", week},
		{"a date far away", "503 Service Unavailable", "Retry-After: Fri, 31 Dec 9999 23:59:59 GMT", week},
		{"a date that has passed", "503 Service Unavailable", "Retry-After: Fri, 31 Dec 1999 23:59:59 GMT", atOnce},
		{"nothing at all", "503 Service Unavailable", "X: y", 0},
		{"zero", "429 Too Many Requests", "Retry-After: 0", atOnce},
		{"a negative number", "429 Too Many Requests", "Retry-After: -5", 0},
		{"a fraction", "429 Too Many Requests", "Retry-After: 1.5", 0},
		{"words", "429 Too Many Requests", "Retry-After: in a while", 0},
		{"another failure", "500 Internal Server Error", "Retry-After: 120", 0},
		{"a redirect", "301 Moved Permanently", "Retry-After: 120", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				run, _, err := callSlow(t, time.Hour, func(conn net.Conn) {
					fmt.Fprintf(conn, "HTTP/1.1 %s\r\n%s\r\nContent-Length: 4\r\n\r\nbusy", tt.status, tt.headers)
				})
				want := "the target answered " + tt.status
				if err == nil || err.Error() != want || string(run.Report.Output) != "busy" {
					t.Errorf("got %v and %q, want %s", err, run.Report.Output, want)
				}
				if r := applyError(err); r.RetryAfterSeconds != tt.want || r.Permanent || r.Outcome != "" {
					t.Errorf("it requests %gs, want %g; permanent: %v, outcome %q", r.RetryAfterSeconds, tt.want, r.Permanent, r.Outcome)
				}
			})
		})
	}
}

func TestInvalidPayloadIsPermanent(t *testing.T) {
	h := localHTTP(t)
	for _, payload := range []string{``, `7`, `{}`, `{"url":"ftp://example.com"}`, `{"url":"http://example.com","methd":"GET"}`} {
		err := h.Handle(t.Context(), &belfry.Run{Payload: json.RawMessage(payload)})
		if !applyError(err).Permanent || belfry.CodeOf(err) != belfry.Invalid {
			t.Errorf("%q: got %v, permanent: %v", payload, err, applyError(err).Permanent)
		}
	}
	_, err := call(t, h, map[string]any{"url": "http://127.0.0.1:1"})
	if err == nil || applyError(err).Permanent {
		t.Errorf("a target that is away: got %v, permanent: %v", err, applyError(err).Permanent)
	}
}

// A cancelled run releases its connection at once, whatever its target is
// doing.
func TestCancellationAbortsTheRequest(t *testing.T) {
	for name, begin := range map[string]func(http.ResponseWriter){
		"before the answer":    func(http.ResponseWriter) {},
		"in the middle of one": func(w http.ResponseWriter) { fmt.Fprint(w, "half of "); w.(http.Flusher).Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			dropped := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body) // the context of a request is watched once its body is read
				begin(w)
				cancel(worker.ErrCancelled)
				<-r.Context().Done()
				close(dropped)
			}))
			defer server.Close()
			run := &belfry.Run{Payload: json.RawMessage(fmt.Sprintf(`{"url":%q,"body":1}`, server.URL))}
			err := localHTTP(t).Handle(ctx, run)
			if !errors.Is(err, worker.ErrCancelled) || !strings.HasPrefix(err.Error(), "call the target: ") {
				t.Errorf("got %v", err)
			}
			<-dropped
		})
	}
}
