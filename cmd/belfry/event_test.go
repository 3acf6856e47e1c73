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
	none := []string{"event", "list", "--kind", "large_catch_up"} // The node itself has an event once it has joined.
	if r := p.ok(none...); r.out != "" || r.err != "No matching events.\n" {
		t.Errorf("no events are %+v", r)
	}
	if r := p.ok(append(none, "-o", "json")...); !sameJSON(json.RawMessage(r.out), p.api("/api/v1/events?kind=large_catch_up")) {
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
	events = "[]"
	if r := fake.ok("event", "list"); r.out != "" || r.err != "No events.\n" {
		t.Errorf("without a filter no events are %+v", r)
	}
}

func TestEventWatch(t *testing.T) {
	p, target := withServer(t), newReceiver(t)
	target.answer(500)
	out, said, interrupt := p.start("event", "watch", "--kind", "run_dead")
	said.await(t, "Watching events. Interrupt to stop.")
	p.ok("job", "create", "--name", "report", "--schedule", "@yearly", "--url", target.URL, "--max-retries", "0")
	p.ok("job", "trigger", "report")
	out.await(t, "run_dead        a run of report died: the target answered 500 Internal Server Error")
	if code := interrupt(); code != exitInterrupted {
		t.Errorf("it ended with %d and %s", code, said)
	}
	if r := p.run("event", "watch", "--kind", "nothing"); r.code != exitUsage && r.code != exitRefused || !strings.Contains(r.err, "kind") {
		t.Errorf("a wrong kind: %+v", r)
	}
	if r := p.ok("event", "list", "--job", "report", "--kind", "run_dead"); len(columns(r.out)) != 2 {
		t.Errorf("the events of the job are %+v", r)
	}
}
