package client

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
)

var (
	cut   = said{err: errors.New("connection reset by peer")}
	busy  = said{status: 503, body: "<html>", header: "Content-Type: text/html"}
	early = said{status: 429, body: `{"detail":"too many requests","code":"rate_limited"}`, header: "Content-Type: application/problem+json\nRetry-After: 7"}
	fine  = said{status: 200, body: `{"id":"01890a5d-ac96-774b-bcce-b302099a8057","run_id":"01890a5d-ac96-774b-bcce-b302099a8057"}`}
	gone  = refusal(404, "not_found", "there is no job x")
	moved = refusal(412, "changed", "the job is no longer as you have seen it")
)

func TestRetryOfSafeCalls(t *testing.T) {
	create := func(ctx context.Context, c *Client) error { _, err := c.CreateJob(ctx, belfry.Manifest{}); return err }
	get := func(ctx context.Context, c *Client) error { _, err := c.Job(ctx, "x"); return err }
	put := func(ctx context.Context, c *Client) error {
		_, _, err := c.PutJob(ctx, "x", belfry.Manifest{}, IfMatch("v1"))
		return err
	}
	patch := func(ctx context.Context, c *Client) error {
		_, err := c.EditJob(ctx, "x", belfry.Manifest{})
		return err
	}
	remove := func(ctx context.Context, c *Client) error { return c.DeleteJob(ctx, "x") }
	trigger := func(ctx context.Context, c *Client) error { _, err := c.TriggerJob(ctx, "x", nil); return err }
	rollback := func(ctx context.Context, c *Client) error { _, err := c.RollbackJob(ctx, "x", 3); return err }
	post := func(ctx context.Context, c *Client) error { return c.Do(ctx, "POST", "/api/v1/jobs", 1, nil) }
	beat := func(ctx context.Context, c *Client) error { _, err := c.Heartbeat(ctx, belfry.Heartbeat{}); return err }
	claim := func(ctx context.Context, c *Client) error { _, err := c.Claim(ctx, belfry.Claim{}); return err }
	finish := func(ctx context.Context, c *Client) error {
		_, err := c.Finish(ctx, make([]belfry.Result, 1))
		return err
	}
	for _, tt := range []struct {
		name    string
		call    func(ctx context.Context, c *Client) error
		answers []said
		tries   int
		err     string // empty: it works
		least   time.Duration
		most    time.Duration
	}{
		{"a lost connection is tried again", get, []said{cut, fine}, 2, "", 100 * time.Millisecond, 300 * time.Millisecond},
		{"the pauses grow", get, []said{cut, busy, cut, fine}, 4, "", 700 * time.Millisecond, 2100 * time.Millisecond},
		{"four tries are enough", get, []said{cut}, 4, "no answer from http://belfry.test: connection reset", 0, time.Minute},
		{"a gateway that fails too", get, []said{{status: 502}, {status: 504}, fine}, 3, "", 0, time.Minute},
		{"a server asks for patience", get, []said{early, fine}, 2, "", 7 * time.Second, 7 * time.Second},
		{"a server asks for too much", get, []said{{status: 429, header: "Retry-After: 3600"}, fine}, 1, "429 Too Many Requests", 0, 0},
		{"a failure of the server is not tried again", get, []said{refusal(500, "internal", "something went wrong here"), fine}, 1, "went wrong here (request r1)", 0, 0},
		{"nor is a refusal", create, []said{refusal(422, "invalid", "no"), fine}, 1, "create job: no", 0, 0},
		{"nor a bad certificate", get, []said{{err: &tls.CertificateVerificationError{Err: errors.New("unknown authority")}}, fine}, 1, "unknown authority", 0, 0},
		{"nor an address with http:// of a server that answers with an alert of TLS", get, []said{{err: errors.New(`malformed HTTP response "\x15\x03\x01\x00"`)}, fine}, 1, "the server uses TLS: use https://belfry.test", 0, 0},
		{"nor of a proxy that says so", get, []said{{status: 400, body: "<h1>The plain HTTP request was sent to HTTPS port</h1>", header: "Content-Type: text/html"}, fine}, 1, "the server uses TLS: use https://belfry.test", 0, 0},
		{"create", create, []said{cut, busy, fine}, 3, "", 0, time.Minute},
		{"trigger", trigger, []said{cut, busy, fine}, 3, "", 0, time.Minute},
		{"put", put, []said{cut, fine}, 2, "", 0, time.Minute},
		{"patch", patch, []said{cut, fine}, 2, "", 0, time.Minute},
		{"roll back", rollback, []said{cut, fine}, 2, "", 0, time.Minute},
		{"a job that is gone after a lost answer was deleted", remove, []said{cut, gone}, 2, "", 0, time.Minute},
		{"a job that is gone after a refusal was not there", remove, []said{early, gone}, 2, "no job x", 0, time.Minute},
		{"a job that is not there is not deleted", remove, []said{gone}, 1, "no job x", 0, 0},
		{"a change after a lost answer may be one's own", put, []said{cut, moved}, 2, "may have changed it", 0, time.Minute},
		{"a call of one's own without a key", post, []said{cut, fine}, 1, "connection reset", 0, 0},
		{"a heartbeat is the worker's to repeat", beat, []said{cut, fine}, 1, "connection reset", 0, 0},
		{"a claim too", claim, []said{busy, fine}, 1, "503", 0, 0},
		{"a result too", finish, []said{early, fine}, 1, "too many requests", 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, tt.answers...)
				began := time.Now()
				err := tt.call(t.Context(), c)
				took := time.Since(began)
				if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
					t.Errorf("got %v, want %q", err, tt.err)
				}
				if len(s.requests) != tt.tries || took < tt.least || took > tt.most {
					t.Errorf("%d tries in %s, want %d in %s to %s", len(s.requests), took, tt.tries, tt.least, tt.most)
				}
				for _, r := range s.requests {
					if key := r.Header.Get("Idempotency-Key"); key != s.requests[0].Header.Get("Idempotency-Key") {
						t.Errorf("a try has another idempotency key: %s", key)
					}
				}
			})
		})
	}
}

func TestRetryUsesOneIdempotencyKey(t *testing.T) {
	c, s := scripted(t, fine)
	c.CreateJob(t.Context(), belfry.Manifest{})
	c.CreateJob(t.Context(), belfry.Manifest{})
	c.TriggerJob(t.Context(), "x", map[string]int{"a": 1})
	c.TriggerJob(t.Context(), "x", nil, IdempotencyKey("mine"))
	c.PauseJob(t.Context(), "x")
	var keys []string
	for _, r := range s.requests {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
	}
	if keys[0] == "" || keys[1] == "" || keys[2] == "" || keys[0] == keys[1] || keys[3] != "mine" || keys[4] != "" {
		t.Errorf("the keys are %q", keys)
	}
	if s.bodies[2] != `{"payload":{"a":1}}` || s.bodies[3] != "{}" {
		t.Errorf("the bodies are %q", s.bodies)
	}
	if _, err := c.CreateJob(t.Context(), belfry.Manifest{}, IdempotencyKey("a\nb")); belfry.CodeOf(err) != belfry.Invalid || len(s.requests) != 5 {
		t.Errorf("a key that cannot be sent: got %v", err)
	}
}

func TestRetriesEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, early)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		_, err := c.Job(ctx, "x")
		if belfry.CodeOf(err) != belfry.RateLimited || time.Since(began) != 0 || len(s.requests) != 1 {
			t.Errorf("a pause beyond the deadline: got %v after %s and %d tries", err, time.Since(began), len(s.requests))
		}
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, stop)
		if _, err = c.Job(ctx, "x"); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "too many") || time.Since(began) != 2*time.Second {
			t.Errorf("a pause that was cut: got %v after %s", err, time.Since(began))
		}
		if _, err = c.Job(ctx, "x"); !errors.Is(err, context.Canceled) && belfry.CodeOf(err) != belfry.RateLimited {
			t.Errorf("a context that is over: got %v", err)
		}
	})
}

func TestTryTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, fine)
		hung := 0
		c.http.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
			if hung++; hung == 1 {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return s.RoundTrip(r)
		})
		began := time.Now()
		if _, err := c.Job(t.Context(), "x"); err != nil || time.Since(began) < tryTimeout || time.Since(began) > tryTimeout+time.Second {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
		hung = 0
		c.retries = 0
		if _, err := c.Job(t.Context(), "x"); belfry.CodeOf(err) != belfry.Unavailable || !strings.Contains(err.Error(), "timeout") {
			t.Errorf("got %v", err)
		}
	})
}

type roundTrip func(r *http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
