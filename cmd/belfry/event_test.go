package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

func TestEventList(t *testing.T) {
	p := withServer(t)
	if r := p.ok("event", "list"); r.out != "" || r.err != "No events.\n" {
		t.Errorf("no events are %+v", r)
	}
	if r := p.ok("event", "list", "-o", "json"); !sameJSON(json.RawMessage(r.out), p.api("/api/v1/events")) {
		t.Errorf("no events are %s", r.out)
	}
	if r := p.run("event", "list", "--limit", "-1"); r.code != exitUsage {
		t.Errorf("a negative limit: %+v", r)
	}
	events := fmt.Sprintf(`[{"event_id":%[1]q,"namespace":"default","job_id":%[2]q,"kind":"large_catch_up","at":%[3]q,"message":"12 runs catch up","count":12},
		{"event_id":%[2]q,"namespace":"default","kind":"other","at":%[3]q,"message":"of no job"}]`, belfry.ID{1}, belfry.ID{2}, time.Now().Add(-61*time.Minute).Format(time.RFC3339Nano))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/events") {
			fmt.Fprint(w, events)
			return
		}
		fmt.Fprintf(w, `{"job_id":%q,"name":"report"}`, belfry.ID{2})
	}))
	defer server.Close()
	fake := &testCLI{t: t, server: server.URL}
	rows := columns(fake.ok("event", "list").out)
	want := [][]string{{"WHEN", "EVENT", "JOB", "MESSAGE"}, {"1h1m ago", "large_catch_up", "report", "12 runs catch up"}, {"1h1m ago", "other", "-", "of no job"}}
	if !slices.EqualFunc(rows, want, slices.Equal) {
		t.Errorf("the events are %q, want %q", rows, want)
	}
	if r := fake.ok("events", "ls", "-o", "json", "--server", server.URL); !sameJSON(json.RawMessage(r.out), json.RawMessage(events)) {
		t.Errorf("for programs they are %s", r.out)
	}
	if r := fake.ok("event", "list", "--limit", "1"); len(columns(r.out)) != 2 || r.err != "There are more events. List all with: --limit 0\n" {
		t.Errorf("a short list is %+v", r)
	}
}
