package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

func TestIdempotencyKeyRepeatsTheReply(t *testing.T) {
	s := newService(t)
	s.create(strings.Replace(validJob, "report", "target", 1))
	secret := strings.Replace(validJob, `/hook"`, `/hook", "headers": {"Authorization": "Bearer s3cr3t-s3cr3t"}`, 1)
	lines := `{"name": "l1", "schedule": "@daily", "payload": {"url": "https://example.com"}}` + "\n"
	for i, tt := range []struct {
		name, path, body, again, other string
		media                          string
	}{
		{"a job", "/api/v1/jobs", secret, strings.ReplaceAll(secret, `": "`, "\" :\n \""), strings.Replace(secret, "report", "other", 1), "application/json"},
		{"a trigger", "/api/v1/jobs/target/trigger", "", " {} ", `{"payload": 1}`, "application/json"},
		{"a trigger with a payload", "/api/v1/jobs/target/trigger", `{"payload": [1, 2]}`, `{"payload":[1,2]}`, `{"payload": [1, 3]}`, "application/json"},
		{"an import", "/api/v1/jobs/bulk", lines, lines, lines + lines, "application/x-ndjson"},
	} {
		headers := []string{"Content-Type: " + tt.media, fmt.Sprintf("Idempotency-Key: key %d", i)}
		first := s.send("POST", tt.path, tt.body, headers...)
		if first.status >= 300 {
			t.Fatalf("%s: %s", tt.name, first.body)
		}
		second := s.send("POST", tt.path, tt.again, headers...)
		if second.status != first.status || second.body != first.body || second.header.Get("Location") != first.header.Get("Location") ||
			second.header.Get("ETag") != first.header.Get("ETag") {
			t.Errorf("%s: first %s %v\nthen  %s %v", tt.name, first.body, first.header, second.body, second.header)
		}
		if p := s.send("POST", tt.path, tt.other, headers...).problem(t); p.Status != http.StatusUnprocessableEntity || len(p.Errors) != 1 || p.Errors[0].Field != "Idempotency-Key" {
			t.Errorf("%s: another body under the key: %+v", tt.name, p)
		}
		if a := s.send("POST", tt.path, tt.body, "Content-Type: "+tt.media, "Idempotency-Key: x"+headers[1], "Belfry-Namespace: other"); a.header.Get("Location") != "" && a.header.Get("Location") == first.header.Get("Location") {
			t.Errorf("%s: the key holds in another namespace", tt.name)
		}
	}
	// The key of one operation is not that of another.
	if p := s.send("POST", "/api/v1/jobs/target/trigger", "", "Idempotency-Key: key 0").problem(t); p.Status != http.StatusUnprocessableEntity {
		t.Errorf("got %+v", p)
	}
	// Elsewhere it means nothing.
	s.expect(http.StatusOK, nil, "PATCH", "/api/v1/jobs/target", `{"max_retries": 1}`, "Idempotency-Key: key 0")
	if ids, _ := s.listIDs("/api/v1/jobs?limit=500"); len(ids) != 3 {
		t.Errorf("there are %d jobs", len(ids))
	}
}

// concurrently sends requests at the same instant.
func concurrently(s *service, n int, send func(i int) reply) []reply {
	replies := make([]reply, n)
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-start
			replies[i] = send(i)
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
	return replies
}

func TestConcurrentCreatesMakeOneJob(t *testing.T) {
	s := newService(t)
	for round := range 20 {
		body := strings.Replace(validJob, "report", fmt.Sprintf("named-%d", round), 1)
		created, taken := 0, 0
		for _, a := range concurrently(s, 4, func(int) reply { return s.send("POST", "/api/v1/jobs", body) }) {
			switch a.status {
			case http.StatusCreated:
				created++
			case http.StatusConflict:
				taken++
				a.problem(t)
			}
		}
		if created != 1 || taken != 3 {
			t.Fatalf("the same name: %d were created, %d refused", created, taken)
		}
		put := strings.Replace(body, "named", "put", 1)
		created = 0
		ids := make(map[string]bool)
		for _, a := range concurrently(s, 4, func(int) reply { return s.send("PUT", fmt.Sprintf("/api/v1/jobs/put-%d", round), put) }) {
			if a.status == http.StatusCreated {
				created++
			} else if a.status != http.StatusOK {
				t.Errorf("got %s", a.body)
			}
			ids[a.body] = true
		}
		if created != 1 || len(ids) != 1 {
			t.Fatalf("the same PUT: %d were created, the replies are %v", created, ids)
		}
		unnamed := strings.Replace(validJob, `"name": "report", `, "", 1)
		key := fmt.Sprintf("Idempotency-Key: %d", round)
		bodies := make(map[string]bool)
		for _, a := range concurrently(s, 4, func(int) reply { return s.send("POST", "/api/v1/jobs", unnamed, key) }) {
			if a.status != http.StatusCreated {
				t.Errorf("the same key: got %d %s", a.status, a.body)
			}
			bodies[a.body+a.header.Get("ETag")+a.header.Get("Location")] = true
		}
		if len(bodies) != 1 {
			t.Fatalf("the same key: the replies are %v", bodies)
		}
	}
	if ids, _ := s.listIDs("/api/v1/jobs?limit=500"); len(ids) != 60 {
		t.Errorf("there are %d jobs, want 60", len(ids))
	}
}
