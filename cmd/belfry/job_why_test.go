package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

func TestJobWhy(t *testing.T) {
	p := withServer(t)
	p.ok("job", "create", "--name", "a", "--schedule", "5 9 * * *", "--timezone", "Europe/Paris", "--handler", "nobody")
	paris, err := time.LoadLocation("Europe/Paris")
	if err != nil {
		t.Fatal(err)
	}
	next := p.job("a").NextRunAt.In(paris)
	r := p.ok("job", "why", "a")
	sentence, facts, _ := strings.Cut(r.out, "\n\n")
	if !strings.Contains(sentence, next.Format("2006-01-02 15:04")) || !strings.Contains(sentence, "is planned") {
		t.Errorf("the sentence is %q", sentence)
	}
	for _, words := range []string{
		"Instant    " + next.Format(time.RFC3339) + " (in ", "Decision   planned\n", "Schedule   5 9 * * *  (At 09:05 every day in Europe/Paris)\n", "Revision   1\n",
		"Previous   " + next.AddDate(0, 0, -1).Format(time.RFC3339), "Next       " + next.AddDate(0, 0, 1).Format(time.RFC3339),
	} {
		if !strings.Contains(facts, words) {
			t.Errorf("the facts do not have %q:\n%s", words, facts)
		}
	}
	same := p.ok("job", "why", "a", "--at", next.Format(time.RFC3339)).out
	if wall := p.ok("job", "why", "a", "--at", next.Format(" 2006-01-02 15:04")).out; !strings.HasPrefix(same, sentence) || !strings.HasPrefix(wall, sentence) {
		t.Errorf("the same instant is told as %q and as %q", same, wall)
	}
	var why belfry.Explanation
	p.json(&why, "job", "why", "a", "--at", next.Add(time.Minute).Format("2006-01-02 15:04"))
	if why.Decision != "none" || !why.At.Equal(next.Add(time.Minute)) || why.Previous == nil || !why.Previous.Equal(next) {
		t.Errorf("a minute later it is %+v", why)
	}
	before := time.Now()
	p.json(&why, "job", "why", "a", "--at", "10m")
	if why.At.Before(before.Add(-10*time.Minute).Truncate(time.Microsecond)) || why.At.After(time.Now().Add(-10*time.Minute)) {
		t.Errorf("ten minutes ago is %s, now it is %s", why.At, time.Now())
	}
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"a", "--at", "yesterday 09:00"}, exitUsage, `--at: "yesterday 09:00" is not an instant such as 2027-03-01T09:00:00+01:00, a wall time in the time zone of the job`},
		{[]string{"a", "--at", " "}, exitUsage, `--at: "" is not an instant`},
		{[]string{"nobody"}, exitNotFound, "nobody"},
		{nil, exitUsage, "accepts 1 arg(s)"},
	} {
		if r := p.run(append([]string{"job", "why"}, tt.args...)...); r.code != tt.code || !strings.Contains(r.err, tt.want) || r.out != "" {
			t.Errorf("%q: got %+v, want %d and %q", tt.args, r, tt.code, tt.want)
		}
	}
}

func TestJobWhyOfAWaitingRun(t *testing.T) {
	waits := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"at":"2030-01-01T08:00:00Z","decision":"queued","reason":"","sentence":"It waits.","rule":{"schedule":"@daily","timezone":"Europe/Paris"},
			"run":{"run_id":"01890a5d-ac96-774b-bcce-b302099a8057","status":"ready","attempt":2,"error":"no luck"},"waits_for":%s}`, waits)
	}))
	defer server.Close()
	p := &testCLI{t: t, server: server.URL}
	for _, tt := range []struct{ waits, want string }{
		{`{"what":"worker","queue":"q","handler":"h"}`, "a worker for q/h: there is none"},
		{`{"what":"slot","queue":"q","handler":"h","workers":2,"slots":100,"running":99,"ahead":1}`, "a free slot for q/h: 2 workers, 100 slots, 99 in use; 1 run ahead"},
		{`{"what":"run","run_ids":["01890a5d-ac96-774b-bcce-b302099a8058","01890a5d-ac96-774b-bcce-b302099a8059"]}`, "earlier runs of the job: 01890a5d-ac96-774b-bcce-b302099a8058, 01890a5d-ac96-774b-bcce-b302099a8059"},
		{`{"what":"time","until":"2030-01-01T09:00:00Z"}`, "2030-01-01T10:00:00+01:00 (in "},
		{`{"what":"godot"}`, "godot"},
	} {
		waits = tt.waits
		r := p.ok("job", "why", "a")
		if !strings.HasPrefix(r.out, "It waits.\n\n") || !strings.Contains(r.out, "Waits for   "+tt.want) ||
			!strings.Contains(r.out, "Run         01890a5d-ac96-774b-bcce-b302099a8057\nAttempt     2\nResult      no luck\n") {
			t.Errorf("%s is told as\n%s, want %q", tt.waits, r.out, tt.want)
		}
	}
}

func TestRunShowHintsAtWhy(t *testing.T) {
	const id = "01890a5d-ac96-774b-bcce-b302099a8057"
	run, job := "", http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasPrefix(r.URL.Path, "/api/v1/runs/") {
			fmt.Fprintf(w, `{"run_id": %q, "job_id": %q, "scheduled_at": "2026-03-02T08:05:00.25Z", %s}`, id, id, run)
			return
		}
		w.WriteHeader(job)
		fmt.Fprintf(w, `{"job_id": %q, "name": "a b"}`, id)
	}))
	defer server.Close()
	p := &testCLI{t: t, server: server.URL}
	const fired, hint = `"fired_at": "2026-03-02T08:05:01Z"`, "See what it waits for: belfry job why " + id + " --at 2026-03-02T08:05:00.25Z\n"
	for _, tt := range []struct {
		run  string
		job  int
		want string
	}{
		{`"status": "ready", ` + fired, http.StatusOK, hint},
		{`"status": "waiting", ` + fired, http.StatusOK, hint},
		{`"status": "retry", ` + fired, http.StatusOK, hint},
		{`"status": "running", ` + fired, http.StatusOK, ""},
		{`"status": "succeeded", ` + fired, http.StatusOK, ""},
		{`"status": "ready"`, http.StatusOK, ""},
		{`"status": "ready", ` + fired, http.StatusNotFound, hint}, // Its job was deleted.
	} {
		run, job = tt.run, tt.job
		if r := p.ok("run", "show", id); r.err != tt.want {
			t.Errorf("%s, job %d: it says %q, want %q", tt.run, tt.job, r.err, tt.want)
		}
	}
}
