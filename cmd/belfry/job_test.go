package main

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
)

func TestJobLifecycle(t *testing.T) {
	p := withServer(t)
	target := newReceiver(t)

	if r := p.ok("job", "list"); r.out != "" || !strings.Contains(r.err, "No jobs. Create one with: belfry job create hello") {
		t.Errorf("an empty list is %q and says %q", r.out, r.err)
	}
	r := p.ok("job", "create", "--name", "hello", "--schedule", "0 9 * * MON-FRI", "--timezone", "Europe/Paris", "--url", target.URL+"/hook",
		"--header", "X-Kind=daily", "--body", `{"n": 12345678901234567890}`, "--tag", "b", "--tag", "a", "--timeout", "90s", "--max-retries", "0", "--retry-base", "1500ms")
	if !strings.HasPrefix(r.out, "created    hello   next 20") {
		t.Errorf("create printed %q", r.out)
	}
	job := p.job("hello")
	if job.TimeoutSeconds != 90 || job.MaxRetries.Value() != 0 || job.RetryBaseSeconds.Value() != 1.5 || !slices.Equal(job.Tags, []string{"a", "b"}) ||
		!sameJSON(job.Payload, json.RawMessage(`{"url":"`+target.URL+`/hook","headers":{"X-Kind":"daily"},"body":{"n":12345678901234567890}}`)) {
		t.Errorf("the flags made %+v with %s", job, job.Payload)
	}

	rows := columns(p.ok("job", "list").out)
	want := []string{"NAME", "STATUS", "SCHEDULE", "TARGET", "NEXT", "LAST", "LAST RESULT"}
	if len(rows) != 2 || !slices.Equal(rows[0], want) || !slices.Equal(rows[1][:3], []string{"hello", "scheduled", "0 9 * * MON-FRI (Europe/Paris)"}) ||
		!strings.HasPrefix(rows[1][3], "POST http://") || !strings.HasPrefix(rows[1][4], "in ") || rows[1][5] != "-" || rows[1][6] != "-" {
		t.Errorf("the list is %q", rows)
	}
	shown := p.ok("job", "show", job.ID.String()).out
	for _, words := range []string{"Name        hello\n", "Status      scheduled\n", "Timeout     1m30s\n", "Retries     none\n", "Tags        a, b\n", `"X-Kind": "daily"`} {
		if !strings.Contains(shown, words) {
			t.Errorf("show does not have %q:\n%s", words, shown)
		}
	}

	if r := p.ok("job", "pause", "hello"); r.out != "paused     hello\n" {
		t.Errorf("pause printed %q", r.out)
	}
	if r := p.ok("job", "resume", job.ID.String()); !strings.HasPrefix(r.out, "resumed    hello   next 20") {
		t.Errorf("resume printed %q", r.out)
	}
	if r := p.ok("job", "edit", "hello", "--set", "schedule=0 10 * * *", "--set", "max_retries=2", "--set", "payload.headers.X-Kind=null"); !strings.HasPrefix(r.out, "updated    hello   schedule, max_retries, payload   next 20") {
		t.Errorf("edit printed %q", r.out)
	}
	rows = columns(p.ok("job", "revisions", "hello").out)
	if len(rows) != 3 || rows[1][0] != "2" || rows[1][1] != "current" || rows[1][2] != "0 10 * * * (Europe/Paris)" || rows[2][0] != "1" {
		t.Errorf("the revisions are %q", rows)
	}
	if r := p.ok("job", "rollback", "hello", "1"); r.out != "restored   hello   revision 1 is now revision 3\n" {
		t.Errorf("rollback printed %q", r.out)
	}
	if job := p.job("hello"); job.Schedule != "0 9 * * MON-FRI" || job.MaxRetries.Value() != 0 || !strings.Contains(string(job.Payload), "X-Kind") {
		t.Errorf("after the rollback it is %+v", job)
	}
	if r := p.run("job", "delete", "hello"); r.code != exitUsage || !strings.Contains(r.err, "--yes") {
		t.Errorf("delete without a terminal: %+v", r)
	}
	if r := p.ok("job", "delete", "hello", "--yes"); r.out != "deleted    hello\n" {
		t.Errorf("delete printed %q", r.out)
	}
	if r := p.run("job", "show", "hello"); r.code != exitNotFound {
		t.Errorf("a deleted job: %+v", r)
	}
}

func TestJSONAndYAMLOutputAreTheServersAnswer(t *testing.T) {
	p := withServer(t)
	target := newReceiver(t)
	p.ok("job", "create", "--name", "it's a job/with ä slash", "--schedule", "@daily", "--url", target.URL)
	p.ok("job", "create", "--name", "a.b %2F?#", "--schedule", "0 0 1 1 *", "--handler", "send", "--payload", `{"a": [1, 1.0, "1", null, "<&>"], "on": "yes"}`)
	p.ok("job", "edit", "a.b %2F?#", "--set", "max_retries=1")
	id := p.job("it's a job/with ä slash").ID.String()
	var asked struct {
		RunID belfry.ID `json:"run_id"`
	}
	p.json(&asked, "job", "trigger", id)
	if r := p.ok("run", "watch", asked.RunID.String()); !strings.Contains(r.out, "succeeded") {
		t.Errorf("watch printed %q", r.out)
	}
	worker := p.job("a.b %2F?#").ID.String()
	for _, tt := range []struct {
		path string
		args []string
	}{
		{"/api/v1/jobs/" + id, []string{"job", "show", "it's a job/with ä slash"}},
		{"/api/v1/jobs/" + worker, []string{"job", "show", "a.b %2F?#"}},
		{"/api/v1/jobs", []string{"job", "list"}},
		{"/api/v1/jobs?type=worker", []string{"job", "list", "--type", "worker"}},
		{"/api/v1/jobs?search=nothing", []string{"job", "list", "--search", "nothing"}},
		{"/api/v1/jobs/" + id + "/runs", []string{"job", "runs", id}},
		{"/api/v1/jobs/" + worker + "/revisions", []string{"job", "revisions", "a.b %2F?#"}},
		{"/api/v1/runs", []string{"run", "list"}},
		{"/api/v1/runs?status=dead", []string{"run", "list", "--status", "dead"}},
		{"/api/v1/runs/" + asked.RunID.String(), []string{"run", "show", asked.RunID.String()}},
		{"/api/v1/runs/" + asked.RunID.String(), []string{"run", "watch", asked.RunID.String()}},
	} {
		want := decodeJSON(p.api(tt.path))
		var got json.RawMessage
		p.json(&got, tt.args...)
		if d := cmp.Diff(want, decodeJSON(got)); d != "" {
			t.Errorf("belfry %s -o json is not the answer of %s:\n%s", strings.Join(tt.args, " "), tt.path, d)
		}
		documents, err := parseYAML("out", []byte(p.ok(append(tt.args, "-o", "yaml")...).out))
		if err != nil || len(documents) != 1 {
			t.Errorf("belfry %s -o yaml: %d documents, error %v", strings.Join(tt.args, " "), len(documents), err)
			continue
		}
		raw, err := (&yamlToJSON{lines: map[string]int{}}).convert(documents[0], "")
		if d := cmp.Diff(want, decodeJSON([]byte(raw))); d != "" || err != nil {
			t.Errorf("belfry %s -o yaml is not the answer of %s: error %v\n%s", strings.Join(tt.args, " "), tt.path, err, d)
		}
	}
}

func TestJobTriggerWait(t *testing.T) {
	p := withServer(t)
	target := newReceiver(t)
	p.ok("job", "create", "--name", "good", "--schedule", "@yearly", "--url", target.URL, "--body", `"as ever"`)
	p.ok("job", "create", "--name", "bad", "--schedule", "@yearly", "--url", target.URL, "--max-retries", "0")

	r := p.ok("job", "trigger", "good", "--wait", "--payload", "@"+p.file("body.json", `{"special": true}`))
	if !strings.Contains(r.out, "succeeded  attempt 1, took ") || !strings.Contains(r.out, "HTTP 200") {
		t.Errorf("it printed %q", r.out)
	}
	if got := target.got(); len(got) != 1 || got[0] != `{"special":true}` && got[0] != `{"special": true}` {
		t.Errorf("the target got %q", got)
	}
	target.answer(500)
	r = p.run("job", "trigger", "bad", "--wait")
	if r.code != exitNoSuccess || !strings.Contains(r.out, "dead") || !strings.Contains(r.err, "belfry: job trigger: run ") || !strings.Contains(r.err, "is dead after attempt 1: out_of_retries") {
		t.Errorf("it ended with %+v", r)
	}
	var run belfry.Run
	r = p.run("job", "trigger", "bad", "--wait", "-o", "json")
	if err := json.Unmarshal([]byte(r.out), &run); err != nil || r.code != exitNoSuccess || run.Status != belfry.RunDead {
		t.Errorf("as JSON it ended with %+v, error %v", r, err)
	}
	if r := p.run("run", "watch", run.ID.String()); r.code != exitNoSuccess {
		t.Errorf("to watch it ended with %+v", r)
	}
	shown := p.ok("run", "show", run.ID.String()).out
	if !strings.Contains(shown, "Job         bad\n") || !strings.Contains(shown, "Reason      out_of_retries\n") || !strings.Contains(shown, `\x1b[31m`) || strings.Contains(shown, "\x1b") {
		t.Errorf("show is\n%s", shown)
	}
	rows := columns(p.ok("run", "list", "--status", "dead").out)
	if len(rows) != 3 || !slices.Equal(rows[0], []string{"RUN", "JOB", "STATUS", "KIND", "SCHEDULED", "TOOK", "ATTEMPT", "DETAIL"}) || rows[1][0] != run.ID.String() || !slices.Equal(rows[1][1:4], []string{"bad", "dead", "manual"}) {
		t.Errorf("the dead runs are %q", rows)
	}
	rows = columns(p.ok("job", "runs", "good").out)
	if len(rows) != 2 || rows[1][1] != "succeeded" || rows[1][6] != "HTTP 200" {
		t.Errorf("the runs are %q", rows)
	}
	var all []belfry.TriggerResult
	p.json(&all, "job", "trigger", "good", "bad", "--idempotency-key", "k")
	var again []belfry.TriggerResult
	p.json(&again, "job", "trigger", "good", "bad", "--idempotency-key", "k")
	if len(all) != 2 || !slices.Equal(all, again) {
		t.Errorf("the same key made %v and %v", all, again)
	}
}

func TestJobActionsOnSeveralNames(t *testing.T) {
	p := withServer(t)
	for _, name := range []string{"one", "two"} {
		p.ok("job", "create", "--name", name, "--schedule", "@yearly", "--handler", "h")
	}
	r := p.run("job", "pause", "one", "nobody", "two")
	if r.code != exitNotFound || r.out != "paused     one\npaused     two\n" || !strings.HasPrefix(r.err, "belfry: job pause: nobody: ") || strings.Count(r.err, "\n") != 1 {
		t.Errorf("pause ended with %+v", r)
	}
	var jobs []belfry.Job
	p.json(&jobs, "job", "resume", "one", "two")
	if len(jobs) != 2 || jobs[0].Status != belfry.StatusScheduled {
		t.Errorf("resume gave %+v", jobs)
	}
	if r := p.ok("job", "delete", "--yes", "one", "two"); r.out != "deleted    one\ndeleted    two\n" {
		t.Errorf("delete printed %q", r.out)
	}
}

func TestJobListLimitAndFilters(t *testing.T) {
	p := withServer(t)
	for i := range 5 {
		p.ok("job", "create", "--name", "j"+strconv.Itoa(i), "--schedule", "@yearly", "--handler", "h", "--queue", "q"+strconv.Itoa(i%2), "--tag", "all", "--tag", "t"+strconv.Itoa(i))
	}
	for _, tt := range []struct {
		args []string
		want []string
		more bool
	}{
		{nil, []string{"j4", "j3", "j2", "j1", "j0"}, false},
		{[]string{"--limit", "2"}, []string{"j4", "j3"}, true},
		{[]string{"--limit", "5"}, []string{"j4", "j3", "j2", "j1", "j0"}, false},
		{[]string{"--limit", "0", "--queue", "q1"}, []string{"j3", "j1"}, false},
		{[]string{"--tag", "all", "--tag", "t3"}, []string{"j3"}, false},
		{[]string{"--search", "J2"}, []string{"j2"}, false},
		{[]string{"--handler", "h", "--status", "scheduled", "--limit", "1"}, []string{"j4"}, true},
		{[]string{"--status", "paused"}, nil, false},
	} {
		r := p.ok(append([]string{"job", "list"}, tt.args...)...)
		var got []string
		for i, row := range columns(r.out) {
			if i > 0 {
				got = append(got, row[0])
			}
		}
		if !slices.Equal(got, tt.want) || strings.Contains(r.err, "There are more jobs. List all with") != tt.more {
			t.Errorf("%q: got %q, want %q; it said %q", tt.args, got, tt.want, r.err)
		}
	}
	if r := p.run("job", "list", "--limit", "-1"); r.code != exitUsage {
		t.Errorf("a negative limit: %+v", r)
	}
}

// described is how the values of an enumeration are completed.
func described(values []belfry.EnumValue) (words []string) {
	for _, v := range values {
		words = append(words, v.Value+"\t"+unquote(v.Doc))
	}
	return words
}

func TestCompletion(t *testing.T) {
	p := withServer(t)
	for _, name := range []string{"report-daily", "report-weekly", "invoices"} {
		p.ok("job", "create", "--name", name, "--schedule", "@weekly", "--handler", "h")
	}
	t.Setenv("BELFRY_SERVER", p.server)
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"job", "show", "rep"}, []string{"report-weekly\t@weekly", "report-daily\t@weekly"}},
		{[]string{"job", "show", ""}, []string{"invoices\t@weekly", "report-weekly\t@weekly", "report-daily\t@weekly"}},
		{[]string{"job", "show", "invoices", ""}, nil},
		{[]string{"job", "pause", "report-daily", "report"}, []string{"report-weekly\t@weekly"}},
		{[]string{"run", "watch", "--job", "inv"}, []string{"invoices\t@weekly"}},
		{[]string{"job", "list", "--status", ""}, described(schema.For[belfry.JobFilter]().Field("status").Enum)},
		{[]string{"job", "retry", "--status", ""}, described(schema.For[belfry.JobFilter]().Field("status").Enum)},
		{[]string{"job", "why", "inv"}, []string{"invoices\t@weekly"}},
		{[]string{"job", "why", "invoices", "--at", ""}, nil},
		{[]string{"job", "backfill", "invoices", ""}, nil},
		{[]string{"dead", "list", "--job", "inv"}, []string{"invoices\t@weekly"}},
		{[]string{"dead", "list", "--reason", ""}, described(schema.For[belfry.DeadFilter]().Field("reason").Enum)},
		{[]string{"dead", "redrive", ""}, nil},
		{[]string{"job", "create", "--overlap", ""}, described(belfry.Overlap("").EnumValues())},
		{[]string{"job", "create", "--missed-window", ""}, described(belfry.MissedWindow("").EnumValues())},
		{[]string{"job", "delete", "--runs", ""}, []string{"finish", "cancel"}},
		{[]string{"job", "list", "-o", ""}, formats},
		{[]string{"help", "job", "ro"}, []string{"rollback\tReturn a job to an earlier revision"}},
	} {
		r := p.ok(append([]string{"__complete"}, tt.args...)...)
		got := strings.Split(strings.TrimSpace(r.out), "\n")
		if got = got[:len(got)-1]; !slices.Equal(got, tt.want) {
			t.Errorf("%q: got %q, want %q", tt.args, got, tt.want)
		}
	}
	for _, args := range [][]string{{"run", "cancel"}, {"run", "show"}, {"run", "watch"}, {"event", "list"}, {"dead", "list"}, {"job", "apply"}, {"schedule", "next"}, {"serve"}} {
		if r := p.ok(slices.Concat([]string{"__complete"}, args, []string{""})...); strings.TrimSpace(r.out) != ":4" {
			t.Errorf("%q is completed by files: %q", args, r.out)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if r := p.ok("completion", shell); !strings.Contains(r.out, "belfry") {
			t.Errorf("the completion for %s is %q", shell, r.out)
		}
	}
}

func TestJobCreateTakesANameAsArgument(t *testing.T) {
	p := withServer(t)
	for _, args := range [][]string{{"a"}, {"b", "--name", "b"}, {"--name", "c"}} {
		p.ok(append([]string{"job", "create", "--schedule", "@yearly", "--handler", "h"}, args...)...)
	}
	for _, name := range []string{"a", "b", "c"} {
		if job := p.job(name); job.Name != name {
			t.Errorf("the job %s is %+v", name, job)
		}
	}
}

func TestUnknownJobSuggestsASimilarName(t *testing.T) {
	p := withServer(t)
	for _, name := range []string{"backup", "report"} {
		p.ok("job", "create", name, "--schedule", "@yearly", "--handler", "h")
	}
	const missing = `there is no job with the id or name "bakup"; did you mean "backup"?`
	for _, args := range [][]string{
		{"job", "show", "bakup"}, {"job", "why", "bakup"}, {"job", "runs", "bakup"}, {"job", "rollback", "bakup", "1"}, {"job", "trigger", "bakup", "--wait"},
		{"job", "edit", "bakup", "--set", "queue=q"}, {"job", "delete", "bakup", "--yes"}, {"run", "watch", "--job", "bakup"}, {"dead", "list", "--job", "bakup"},
	} {
		if r := p.run(args...); r.code != exitNotFound || !strings.HasSuffix(r.err, ": "+missing+"\n") || strings.Count(r.err, "did you mean") != 1 {
			t.Errorf("%q: got %+v", args, r)
		}
	}
	r := p.run("job", "pause", "bakup", "report", "nothing-like-it")
	if r.code != exitNotFound || r.out != "paused     report\n" || !strings.Contains(r.err, "bakup: "+missing+"\n") || strings.Count(r.err, "did you mean") != 1 {
		t.Errorf("several names: %+v", r)
	}
	if r := p.run("job", "rollback", "backup", "17"); r.code != exitNotFound || strings.Contains(r.err, "did you mean") {
		t.Errorf("another thing that is not there: %+v", r)
	}
}

func TestRunsHaveTheNameOfTheirJob(t *testing.T) {
	p, target := withServer(t), newReceiver(t)
	p.ok("job", "create", "backup", "--schedule", "@yearly", "--url", target.URL)
	p.ok("job", "trigger", "backup", "--wait")
	p.ok("job", "delete", "backup", "--yes")
	var runs []struct {
		ID      string `json:"run_id"`
		JobName string `json:"job_name"`
	}
	p.json(&runs, "run", "list")
	if len(runs) != 1 || runs[0].JobName != "backup" {
		t.Fatalf("the runs are %+v", runs)
	}
	for _, args := range [][]string{{"run", "list"}, {"run", "show", runs[0].ID}, {"run", "show", runs[0].ID, "-o", "yaml"}} {
		if r := p.ok(args...); !strings.Contains(r.out, "backup") {
			t.Errorf("%q printed\n%s", args, r.out)
		}
	}
}
