package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

// screen is what a command that goes on has printed so far.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
	news chan struct{}
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.news <- struct{}{}:
	default:
	}
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// await waits until something is on the screen.
func (s *screen) await(t *testing.T, words string) {
	t.Helper()
	patience := time.After(time.Minute)
	for !strings.Contains(s.String(), words) {
		select {
		case <-s.news:
		case <-patience:
			t.Fatalf("there is no %q on the screen:\n%s", words, s)
		}
	}
}

// start begins a command that goes on until it is interrupted.
func (p *testCLI) start(args ...string) (out, err *screen, interrupt func() (code int)) {
	ctx, cancel := context.WithCancel(p.t.Context())
	out, err = &screen{news: make(chan struct{}, 1)}, &screen{news: make(chan struct{}, 1)}
	code := make(chan int, 1)
	go func() {
		code <- execute(ctx, append(args, "--server", p.server), strings.NewReader(""), out, err)
	}()
	return out, err, func() int {
		cancel()
		return <-code
	}
}

func TestRunWatchOfAJob(t *testing.T) {
	p := withServer(t)
	target := newReceiver(t)
	p.ok("job", "create", "--name", "a", "--schedule", "@yearly", "--url", target.URL)
	p.ok("job", "trigger", "a", "--wait")
	out, said, interrupt := p.start("run", "watch", "--job", "a")
	said.await(t, "Watching the runs of a.")
	var asked belfry.TriggerResult
	p.json(&asked, "job", "trigger", "a")
	out.await(t, asked.RunID.String()+"  succeeded  attempt 1")
	if code := interrupt(); code != exitInterrupted || !strings.HasSuffix(said.String(), "belfry: run watch: interrupted\n") || strings.Count(out.String(), "succeeded") != 1 {
		t.Errorf("it ended with %d and\n%s", code, out)
	}
}

func TestRunWatchInterrupted(t *testing.T) {
	p := withServer(t)
	p.ok("job", "create", "--name", "a", "--schedule", "@yearly", "--handler", "nobody")
	out, said, interrupt := p.start("job", "trigger", "a", "--wait")
	out.await(t, "waits for a worker")
	if code := interrupt(); code != exitInterrupted || !strings.Contains(said.String(), "belfry: job trigger: interrupted\n") {
		t.Errorf("it ended with %d and %q", code, said)
	}
}

func TestRunWatchSurvivesAServerRestart(t *testing.T) {
	var calls atomic.Int32
	id := belfry.ID{7}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		state := "running"
		switch n := calls.Add(1); {
		case n > 1 && n < 6:
			http.Error(w, "gone for a moment", http.StatusServiceUnavailable)
			return
		case n >= 6:
			state = "succeeded"
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"run_id": %q, "status": %q, "attempt": 1}`, id, state)
	}))
	defer server.Close()
	p := &testCLI{t: t, server: server.URL}
	r := p.ok("run", "watch", id.String())
	if !strings.Contains(r.out, "running    attempt 1\n") || !strings.Contains(r.out, "succeeded  attempt 1\n") || r.err != "The server does not answer. Trying again.\n" {
		t.Errorf("it printed %+v", r)
	}
}

func TestAskForConfirmation(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "Yes \n": true, "y": true, "n\n": false, "\n": false, "": false, "yep\n": false} {
		var asked strings.Builder
		d := &cli{in: strings.NewReader(answer), output: output{err: &asked}}
		if err := d.ask("Delete a\x1b[31m?"); (err == nil) != want || err != nil && exitCode(err) != exitOther || !strings.HasPrefix(asked.String(), `Delete a\x1b[31m? [y/N] `) {
			t.Errorf("%q: got %v after %q", answer, err, asked.String())
		}
	}
}
