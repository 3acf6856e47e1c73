//go:build unix

package examples

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"
)

// server is a Belfry server of one test.
type server struct {
	t   *testing.T
	url string
}

func serve(t *testing.T) *server {
	t.Helper()
	p := start(t, nil, "belfry", "serve", "--listen", "127.0.0.1:0", "--data", t.TempDir())
	return &server{t, p.says(`API\s+(http://\S+)/api/v1`)}
}

// env is the environment of a program that uses the server.
func (s *server) env() []string { return []string{"BELFRY_SERVER=" + s.url} }

// runStatus is a run as the server shows it.
type runStatus struct {
	ID      string    `json:"run_id"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason"`
	Attempt int       `json:"attempt"`
	ReadyAt time.Time `json:"ready_at"`
	Key     string    `json:"idempotency_key"`
	Output  string    `json:"output"`
	Error   string    `json:"error"`

	Attempts []struct {
		Error string `json:"error"`
	} `json:"attempts"`
}

// last is the error of the latest attempt that did not succeed.
func (r runStatus) last() string {
	if len(r.Attempts) == 0 {
		return ""
	}
	return r.Attempts[len(r.Attempts)-1].Error
}

// job is what to create.
type job map[string]any

func (s *server) request(method, path string, body, into any) {
	s.t.Helper()
	var content bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			s.t.Fatal(err)
		}
	}
	req, err := http.NewRequest(method, s.url+"/api/v1"+path, &content)
	if err != nil {
		s.t.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	if err == nil && into != nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
}

func (s *server) create(j job) {
	s.t.Helper()
	s.request("POST", "/jobs", j, nil)
}

// trigger triggers a run, with a payload unless that is nil, and waits until it is
// settled.
func (s *server) trigger(name string, payload any) runStatus {
	s.t.Helper()
	return s.settled(s.startTrigger(name, payload))
}

// startTrigger triggers a run and returns its id.
func (s *server) startTrigger(name string, payload any) string {
	s.t.Helper()
	var body any
	if payload != nil {
		body = job{"payload": payload}
	}
	var result struct {
		RunID string `json:"run_id"`
	}
	s.request("POST", "/jobs/"+name+"/trigger", body, &result)
	return result.RunID
}

// settled waits until a run is settled.
func (s *server) settled(id string) runStatus {
	s.t.Helper()
	return s.until(id, "settled", func(run runStatus) bool {
		return run.Status == "succeeded" || run.Status == "dead" || run.Status == "cancelled"
	})
}

// log is what a run logged.
func (s *server) log(id string) string {
	s.t.Helper()
	var log struct{ Text string }
	s.request("GET", "/runs/"+id+"/log", nil, &log)
	return log.Text
}

// until waits until a condition holds for a run.
func (s *server) until(id, what string, done func(runStatus) bool) (run runStatus) {
	s.t.Helper()
	eventually(s.t, "run "+id+" is "+what, func() bool {
		run = runStatus{}
		s.request("GET", "/runs/"+id, nil, &run)
		return done(run)
	})
	return run
}

// skipped waits until a job has a skip for the reason.
func (s *server) skipped(name, reason string) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("an occurrence of %s is skipped: %s", name, reason), func() bool {
		var runs []runStatus
		s.request("GET", "/jobs/"+name+"/runs", nil, &runs)
		return slices.ContainsFunc(runs, func(r runStatus) bool { return r.Status == "skipped" && r.Reason == reason })
	})
}

// succeeded waits until a job has n runs that succeeded, and returns them.
func (s *server) succeeded(name string, n int) (good []runStatus) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("%s has succeeded %d times", name, n), func() bool {
		var runs []runStatus
		s.request("GET", "/jobs/"+name+"/runs", nil, &runs)
		good = nil
		for _, r := range runs {
			if r.Status == "succeeded" {
				good = append(good, r)
			}
		}
		return len(good) >= n
	})
	return good
}
