package client

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testKey = "k3y-0123456789abcdef0123456789abcdef"

// said is an answer of a server that a test plays.
type said struct {
	status int
	body   string
	header string // "Name: value" a line
	err    error  // instead of an answer
}

// script answers requests in order, the last one for ever, and keeps them.
type script struct {
	mu       sync.Mutex
	answers  []said
	requests []*http.Request
	bodies   []string
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		r.Body.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	s.bodies = append(s.bodies, string(body))
	a := s.answers[0]
	if len(s.answers) > 1 {
		s.answers = s.answers[1:]
	}
	if a.err != nil {
		return nil, a.err
	}
	return a.response(r), nil
}

func (a said) response(r *http.Request) *http.Response {
	h := http.Header{}
	for line := range strings.Lines(a.header) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		h.Add(name, value)
	}
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json")
		if a.status >= 400 {
			h.Set("Content-Type", "application/problem+json")
		}
	}
	return &http.Response{StatusCode: a.status, Header: h, Body: io.NopCloser(strings.NewReader(a.body)), Request: r}
}

// refusal is a problem document.
func refusal(status int, code, detail string) said {
	body, _ := json.Marshal(map[string]any{"type": "about:blank", "status": status, "code": code, "detail": detail, "request_id": "r1"})
	return said{status: status, body: string(body)}
}

// scripted makes a client whose server says what it is told to say.
func scripted(t *testing.T, answers ...said) (*Client, *script) {
	t.Helper()
	s := &script{answers: answers}
	c, err := New("http://belfry.test", WithKey(testKey), WithInsecurePlainHTTP(), WithHTTPClient(&http.Client{Transport: s}))
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

// serving makes a client of a handler behind a real connection.
func serving(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c, err := New(server.URL, WithKey(testKey))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
