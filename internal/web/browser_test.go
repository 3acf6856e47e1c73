package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/browsertest"
	"github.com/belfry-sh/belfry/internal/node"
	"github.com/belfry-sh/belfry/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(browsertest.Main(m, pgtest.Main)) }

// site is a node with a receiver for its jobs.
type site struct {
	t        testing.TB
	address  string
	receiver string
	failing  atomic.Bool   // the receiver answers 503 to /switch
	release  chan struct{} // closed: /wait answers
}

func newSite(t testing.TB, change ...func(*node.Config)) *site {
	t.Helper()
	s := &site{t: t, release: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, `{"rows": 1204, "status": "done"}`)
	})
	mux.HandleFunc("/fail", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "upstream connect error: payments.internal:443 refused the connection", http.StatusServiceUnavailable)
	})
	mux.HandleFunc("/switch", func(w http.ResponseWriter, r *http.Request) {
		if s.failing.Load() {
			http.Error(w, "the warehouse is closed", http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("/wait", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // so that the end of the connection is noticed
		select {
		case <-s.release:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
	receiver := httptest.NewServer(mux)
	t.Cleanup(receiver.Close)
	s.receiver = receiver.URL
	c := node.Defaults()
	c.Listen, c.Data, c.Shards, c.Version, c.DrainTimeout = "127.0.0.1:0", t.TempDir(), 4, "1.0", time.Second
	c.Settings = []node.Setting{{Name: "listen", Value: "127.0.0.1:7070", Doc: "address to listen on"}, {Name: "concurrency", Value: "100", Doc: "how many runs this process executes at a time"}}
	for _, f := range change {
		f(&c)
	}
	n, err := node.New(context.Background(), c, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the node: %v", err)
		}
	})
	s.address = "http://" + n.Addr().String()
	return s
}

// call calls the API.
func (s *site) call(method, path string, body any) (reply map[string]any) {
	s.t.Helper()
	text, _ := json.Marshal(body)
	r, _ := http.NewRequest(method, s.address+"/api/v1"+path, strings.NewReader(string(text)))
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	out, _ := io.ReadAll(answer.Body)
	if answer.StatusCode >= 300 {
		s.t.Fatalf("%s %s: %d %s", method, path, answer.StatusCode, out)
	}
	_ = json.Unmarshal(out, &reply) // a list is of no interest here
	return reply
}

// try calls the API, and reports whether that succeeded.
func (s *site) try(method, path string, body any) bool {
	s.t.Helper()
	text, _ := json.Marshal(body)
	r, err := http.NewRequest(method, s.address+"/api/v1"+path, strings.NewReader(string(text)))
	if err != nil {
		return false
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode < 300
}

// job creates a job that calls a path of the receiver.
func (s *site) job(name, schedule, path string, more ...any) {
	s.t.Helper()
	m := map[string]any{"schedule": schedule, "payload": map[string]any{"url": s.receiver + path, "body": map[string]any{"job": name}}}
	for i := 0; i+1 < len(more); i += 2 {
		m[more[i].(string)] = more[i+1]
	}
	s.call("PUT", "/jobs/"+name, m)
}

func (s *site) trigger(job string) belfry.ID {
	s.t.Helper()
	id, err := belfry.ParseID(s.call("POST", "/jobs/"+job+"/trigger", map[string]any{})["run_id"].(string))
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

// settled waits until a run has a status.
func (s *site) settled(run belfry.ID, status string) {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if got := s.call("GET", "/runs/"+run.String(), nil)["status"]; got == status {
			return
		} else if time.Now().After(deadline) {
			s.t.Fatalf("run %s is %v, not %s", run, got, status)
		}
	}
}

// eventually waits until something holds.
func eventually(t testing.TB, what string, check func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !check(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
