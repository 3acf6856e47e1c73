package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

func TestJobActionsByFilter(t *testing.T) {
	p := withServer(t)
	for i := range 5 {
		p.ok("job", "create", "--name", "j"+strconv.Itoa(i), "--schedule", "@yearly", "--handler", "h"+strconv.Itoa(i%2), "--queue", "q"+strconv.Itoa(i), "--tag", "all", "--tag", "t"+strconv.Itoa(i%2))
	}
	for _, tt := range []struct {
		args []string
		out  string
	}{
		{[]string{"pause", "--tag", "all", "--tag", "t0", "--dry-run"}, "3 jobs would be paused.\n"},
		{[]string{"pause", "--tag", "all", "--tag", "t0", "--yes"}, "paused     3 jobs\n"},
		{[]string{"pause", "--status", "paused", "--yes"}, "paused     3 jobs\n"},
		{[]string{"resume", "--status", "paused", "--search", "J0", "--yes"}, "resumed    1 job\n"},
		{[]string{"resume", "--status", "paused", "--catch-up", "--dry-run"}, "2 jobs would be resumed.\n"},
		{[]string{"resume", "--status", "paused", "--catch-up", "--yes"}, "resumed    2 jobs\n"},
		{[]string{"pause", "--status", "paused", "--yes"}, ""},
		{[]string{"trigger", "--handler", "h1", "--dry-run"}, "2 jobs would be triggered.\n"},
		{[]string{"trigger", "--handler", "h1", "--yes"}, "triggered  2 jobs\n"},
		{[]string{"cancel", "--queue", "q3", "--type", "worker", "--yes"}, "cancelled  1 job\n"},
		{[]string{"delete", "--status", "cancelled", "--yes"}, "deleted    1 job\n"},
		{[]string{"delete", "--tag", "t1", "--runs", "cancel", "--history", "delete", "--yes"}, "deleted    1 job\n"},
		{[]string{"delete", "--all", "--dry-run"}, "3 jobs would be deleted.\n"},
		{[]string{"delete", "--all", "--yes"}, "deleted    3 jobs\n"},
	} {
		r := p.ok(append([]string{"job"}, tt.args...)...)
		if r.out != tt.out || (r.err == "No matching jobs.\n") != (tt.out == "") {
			t.Errorf("%q printed %+v, want %q", tt.args, r, tt.out)
		}
	}
	var done belfry.BulkResult
	if p.json(&done, "job", "pause", "--all", "--yes"); done.Matched != 0 || done.Failed == nil {
		t.Errorf("nothing to pause: %+v", done)
	}
}

func TestJobSelectionErrors(t *testing.T) {
	p := withServer(t)
	p.ok("job", "create", "--name", "a", "--schedule", "@yearly", "--handler", "h", "--tag", "t")
	for _, action := range []string{"pause", "resume", "trigger", "cancel", "retry", "delete"} {
		for _, tt := range []struct {
			args []string
			want string
		}{
			{nil, "name each job, or use a filter (--status, --type, --handler, --queue, --tag, --search), or --all"},
			{[]string{"a", "--tag", "t"}, "use either names or --tag"},
			{[]string{"a", "--all"}, "use either names or --all"},
			{[]string{"--all", "--queue", "q"}, "use either --all or --queue"},
			{[]string{"--tag", "t", "--tag", "", "--yes"}, "--tag: is empty"},
			{[]string{"--search=", "--yes"}, "--search: is empty"},
			{[]string{"a", "--dry-run"}, "--dry-run counts what a filter such as --tag matches"},
			{[]string{"--tag", "t"}, action + " needs --yes when there is no terminal to ask at"},
		} {
			if r := p.run(append([]string{"job", action}, tt.args...)...); r.code != exitUsage || !strings.Contains(r.err, tt.want) || r.out != "" {
				t.Errorf("%s %q: got %+v, want %q", action, tt.args, r, tt.want)
			}
		}
		if r := p.run("job", action, "--status", "bored", "--yes"); r.code != exitRefused || !strings.Contains(r.err, `status: must be "scheduled", "queued"`) {
			t.Errorf("%s of a state that there is not: %+v", action, r)
		}
	}
	for _, flag := range []string{"--wait", "--payload=1", "--idempotency-key=k"} {
		if r := p.run("job", "trigger", "--tag", "t", "--yes", flag); r.code != exitUsage || !strings.Contains(r.err, "works only with names, not with a filter") {
			t.Errorf("%s: %+v", flag, r)
		}
	}
	for flag, want := range map[string]string{"--runs=later": `--runs: "later" is not one of finish, cancel`, "--history=burn": `--history: "burn" is not one of keep, delete`} {
		if r := p.run("job", "delete", "a", "--yes", flag); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%s: %+v", flag, r)
		}
	}
	if p.job("a").Status != belfry.StatusScheduled {
		t.Errorf("the job is %s", p.job("a").Status)
	}
}

func TestBulkActionContinuesAndReportsFailures(t *testing.T) {
	var orders []belfry.Bulk
	broken := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var order belfry.Bulk
		if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
			t.Error(err)
		}
		orders = append(orders, order)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case order.DryRun:
			fmt.Fprint(w, `{"matched":3,"done":0,"failed":[]}`)
		case order.Cursor == "":
			fmt.Fprintf(w, `{"matched":2,"done":1,"failed":[{"job_id":%q,"name":"x\u001b","error":"it is stuck"}],"next":"c"}`, belfry.ID{1})
		case broken:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, `{"detail":"out of order","code":"internal"}`)
		default:
			fmt.Fprintf(w, `{"matched":1,"done":0,"failed":[{"job_id":%q,"error":"so is this"}]}`, belfry.ID{2})
		}
	}))
	defer server.Close()
	p := &testCLI{t: t, server: server.URL}
	r := p.run("job", "pause", "--tag", "a", "--tag", "b", "--yes")
	want := "belfry: job pause: x\\x1b: it is stuck\nbelfry: job pause: " + belfry.ID{2}.String() + ": so is this\n"
	if r.code != exitRefused || r.out != "paused     1 job\n" || r.err != want {
		t.Errorf("it ended with %+v, want %q", r, want)
	}
	if len(orders) != 3 || orders[0].Limit != 0 || orders[1].Limit != bulkBatch || orders[1].Cursor != "" || orders[2].Cursor != "c" ||
		orders[2].Action != belfry.ActionPause || strings.Join(orders[2].Filter.Tags, " ") != "a b" {
		t.Errorf("the orders are %+v", orders)
	}
	r = p.run("job", "pause", "--tag", "a", "--yes", "-o", "json")
	var done belfry.BulkResult
	if err := json.Unmarshal([]byte(r.out), &done); err != nil || r.code != exitRefused || done.Matched != 3 || done.Done != 1 || len(done.Failed) != 2 {
		t.Errorf("it ended with %+v, error %v", r, err)
	}
	broken = true
	if r := p.run("job", "pause", "--tag", "a", "--yes"); r.code != exitOther || r.out != "" || r.err != "1 job paused before the failure.\nbelfry: job pause: out of order\n" {
		t.Errorf("it ended with %+v", r)
	}
}

// catchUp reports whether a request resumes a job with a catch-up.
func catchUp(r *http.Request) bool {
	var body belfry.Resume
	return json.NewDecoder(r.Body).Decode(&body) == nil && body.CatchUp
}

func TestJobActionOneByOne(t *testing.T) {
	broken := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		problem := func(status int, code string) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"detail":"it cannot be","code":%q}`, code)
		}
		switch {
		case r.Method == http.MethodGet:
			fmt.Fprintf(w, `[{"job_id":%q,"name":"one"},{"job_id":%q,"name":"two"},{"job_id":%q}]`, belfry.ID{1}, belfry.ID{2}, belfry.ID{3})
		case !catchUp(r):
			t.Errorf("the request %s does not catch up", r.URL)
		case strings.Contains(r.URL.Path, belfry.ID{2}.String()) && broken:
			problem(http.StatusForbidden, "forbidden")
		case strings.Contains(r.URL.Path, belfry.ID{2}.String()):
			problem(http.StatusConflict, "conflict")
		default:
			fmt.Fprint(w, `{}`)
		}
	}))
	defer server.Close()
	p := &testCLI{t: t, server: server.URL}
	if r := p.run("job", "resume", "--all", "--catch-up", "--yes"); r.code != exitRefused || r.out != "resumed    2 jobs\n" || r.err != "belfry: job resume: two: it cannot be\n" {
		t.Errorf("it ended with %+v", r)
	}
	broken = true
	if r := p.run("job", "resume", "--all", "--catch-up", "--yes"); r.code != exitNotAllowed || r.out != "" || r.err != "1 job resumed before the failure.\nbelfry: job resume: two: it cannot be\n" {
		t.Errorf("it ended with %+v", r)
	}
}
