package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

// withDeadLetters starts a server with some dead letters of each of two jobs.
func withDeadLetters(t *testing.T, each int) (*testCLI, *receiver) {
	t.Helper()
	p, target := withServer(t), newReceiver(t)
	target.answer(500)
	for _, name := range []string{"a", "b"} {
		p.ok("job", "create", "--name", name, "--schedule", "@yearly", "--url", target.URL+"/"+name, "--body", `"first"`, "--max-retries", "0", "--overlap", "parallel", "--tag", "t")
		for range each {
			if r := p.run("job", "trigger", name, "--wait"); r.code != exitNoSuccess {
				t.Fatalf("trigger ended with %+v", r)
			}
		}
	}
	return p, target
}

// dead lists the ids of dead letters, the latest first.
func (p *testCLI) dead(args ...string) (ids []string) {
	p.t.Helper()
	var letters []belfry.DeadLetter
	p.json(&letters, append([]string{"dead", "list"}, args...)...)
	for _, l := range letters {
		ids = append(ids, l.ID.String())
	}
	return ids
}

// waitForSuccess waits until runs have succeeded.
func (p *testCLI) waitForSuccess(ids ...string) {
	p.t.Helper()
	for _, id := range ids {
		p.ok("run", "watch", id)
	}
}

func TestDeadListAndShow(t *testing.T) {
	p, _ := withDeadLetters(t, 2)
	r := p.ok("dead", "list")
	rows := columns(r.out)
	if len(rows) != 5 || !slices.Equal(rows[0], []string{"RUN", "JOB", "DIED", "REASON", "ATTEMPT", "ERROR"}) || rows[1][1] != "b" || rows[4][1] != "a" ||
		!slices.Equal(rows[1][3:], []string{"out_of_retries", "1", "the target answered 500 Internal Server Error"}) {
		t.Errorf("the list is %q", rows)
	}
	if r := p.ok("dead", "list", "--limit", "3"); len(columns(r.out)) != 4 || r.err != "There are more dead letters. List all with: --limit 0\n" {
		t.Errorf("a short list is %+v", r)
	}
	rows = columns(p.ok("dead", "list", "--group").out)
	if len(rows) != 2 || !slices.Equal(rows[0], []string{"FINGERPRINT", "COUNT", "JOBS", "FIRST", "LAST", "ERROR"}) || !slices.Equal(rows[1][1:3], []string{"4", "2"}) {
		t.Fatalf("the groups are %q", rows)
	}
	fingerprint := rows[1][0]
	all := p.dead()
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"--job", "a"}, all[2:]},
		{[]string{"--since", "1h", "--until", "0s"}, all},
		{[]string{"--since", "7d"}, all},
		{[]string{"--until", "1h"}, nil},
		{[]string{"--since", time.Now().Add(time.Hour).Format(time.RFC3339)}, nil},
		{[]string{"--error", "INTERNAL server"}, all},
		{[]string{"--error", "nothing"}, nil},
		{[]string{"--fingerprint", fingerprint, "--reason", "out_of_retries", "--job", "b"}, all[:2]},
		{[]string{"--reason", "poison"}, nil},
	} {
		if got := p.dead(tt.args...); !slices.Equal(got, tt.want) {
			t.Errorf("%q: got %q, want %q", tt.args, got, tt.want)
		}
		if r := p.ok(append([]string{"dead", "list"}, tt.args...)...); (r.err == "No matching dead letters.\n") != (tt.want == nil) {
			t.Errorf("%q: it said %q", tt.args, r.err)
		}
	}
	r = p.ok("dead", "show", all[0])
	for _, words := range []string{
		"Run           " + all[0] + "\n", "Job           b\n", "Reason        out_of_retries\n", "Fingerprint   " + fingerprint + "\n", "Response      HTTP 500\n",
		"Payload\n  {\n", `"body": "first"`, "Output\n  answer 4\\x1b[31m\n", "Failed attempts\n",
	} {
		if !strings.Contains(r.out, words) {
			t.Errorf("show does not have %q:\n%s", words, r.out)
		}
	}
	if r.err != "Run it again with: belfry dead redrive "+all[0]+"\n" {
		t.Errorf("show said %q", r.err)
	}
	completed := columns(strings.ReplaceAll(p.ok("__complete", "dead", "--server", p.server, "redrive", all[1], all[0][:13]).out, "\t", "  "))
	if len(completed) == 0 || completed[0][0] != all[0] || completed[0][1] != "b: out_of_retries: the target answered 500 Internal Server …" {
		t.Errorf("ids are completed as %q", completed)
	}
	for _, tt := range []struct {
		path string
		args []string
	}{
		{"/api/v1/dead-letters", []string{"dead", "list"}},
		{"/api/v1/dead-letters?job=a", []string{"dead-letters", "ls", "--job", "a", "--server", p.server}},
		{"/api/v1/dead-letters/groups", []string{"dead", "list", "--group"}},
		{"/api/v1/dead-letters/groups?error=nothing", []string{"dead", "list", "--group", "--error", "nothing"}},
		{"/api/v1/dead-letters/" + all[0], []string{"dead", "show", all[0]}},
	} {
		var got json.RawMessage
		p.json(&got, tt.args...)
		if !sameJSON(got, p.api(tt.path)) {
			t.Errorf("belfry %s -o json is %s, and not the answer of %s", strings.Join(tt.args, " "), got, tt.path)
		}
	}
}

func TestDeadRedriveAndDiscardByID(t *testing.T) {
	p, target := withDeadLetters(t, 1)
	ids := p.dead()
	r := p.ok("dead", "redrive", ids[0], ids[1], "--dry-run")
	if want := "redrive    " + ids[0] + "   b   out_of_retries: the target answered 500"; !strings.HasPrefix(r.out, want) || len(p.dead()) != 2 {
		t.Errorf("the dry run printed %q, want %q", r.out, want)
	}
	target.answer(200)
	p.stdin = strings.NewReader(`{"other": true}`)
	// It prints the run as it is afterwards, which a worker may have claimed already.
	if r := p.ok("dead", "redrive", ids[0], "--payload", "-"); !regexp.MustCompile(`^redriven   ` + ids[0] + `   (ready|running|succeeded)\n$`).MatchString(r.out) {
		t.Errorf("redrive printed %q", r.out)
	}
	p.stdin = nil
	p.waitForSuccess(ids[0])
	if got := target.got(); got[len(got)-1] != `{"other": true}` && got[len(got)-1] != `{"other":true}` {
		t.Errorf("the target got %q", got)
	}
	if r := p.run("dead", "redrive", ids[0], ids[1]); r.code != exitNotFound || !strings.HasPrefix(r.out, "redriven   "+ids[1]) || !strings.HasPrefix(r.err, "belfry: dead redrive: "+ids[0]+": ") {
		t.Errorf("one that is gone already: %+v", r)
	}
	p.waitForSuccess(ids[1])
	p, _ = withDeadLetters(t, 1)
	ids = p.dead()
	if r := p.run("dead", "discard", ids[0]); r.code != exitUsage || !strings.Contains(r.err, "discard needs --yes when there is no terminal to ask at") {
		t.Errorf("discard without a terminal: %+v", r)
	}
	if r := p.ok("dead", "discard", ids[0], "--yes"); r.out != "discarded  "+ids[0]+"   b\n" {
		t.Errorf("discard printed %q", r.out)
	}
	var letter belfry.DeadLetter
	if p.json(&letter, "dead", "discard", ids[1], "--yes"); letter.ID.String() != ids[1] || letter.JobName != "a" {
		t.Errorf("discard gave %+v", letter)
	}
	var run belfry.Run
	if p.json(&run, "run", "show", ids[0]); run.Status != belfry.RunDiscarded || len(p.dead()) != 0 {
		t.Errorf("the run is %s, and dead are %q", run.Status, p.dead())
	}
	if rows := columns(p.ok("run", "list", "--status", "discarded").out); len(rows) != 3 {
		t.Errorf("the discarded are %q", rows)
	}
}

func TestDeadRedriveAndDiscardByFilter(t *testing.T) {
	p, target := withDeadLetters(t, 3)
	all := p.dead()
	r := p.ok("dead", "redrive", "--job", "a", "--dry-run")
	if rows := columns(r.out); len(rows) != 2 || rows[1][1] != "3" || r.err != "Dry run: 3 dead letters to redrive.\n" {
		t.Errorf("the dry run printed %+v", r)
	}
	var done belfry.DeadResult
	if p.json(&done, "dead", "redrive", "--all", "--limit", "4", "--dry-run"); done != (belfry.DeadResult{Matched: 4}) || len(p.dead()) != 6 {
		t.Errorf("the dry run gave %+v", done)
	}
	if r := p.run("dead", "redrive", "--all"); r.code != exitUsage || !strings.Contains(r.err, "redrive needs --yes when there is no terminal to ask at") || len(p.dead()) != 6 {
		t.Errorf("without a terminal: %+v", r)
	}
	target.answer(200)
	if r := p.ok("dead", "redrive", "--job", "b", "--limit", "1", "--payload", `"second"`, "--yes"); r.out != "redriven   1 dead letter\n" || r.err != "" {
		t.Errorf("redrive printed %+v", r)
	}
	p.waitForSuccess(all[0])
	if got := target.got(); got[len(got)-1] != "second" {
		t.Errorf("the target got %q", got)
	}
	if r := p.ok("dead", "redrive", "--job", "a", "--rate", "0.01", "--yes"); !strings.HasPrefix(r.out, "redriven   3 dead letters   the last starts in 3m") {
		t.Errorf("redrive at a rate printed %+v", r)
	}
	p.waitForSuccess(all[5])
	if rows := columns(p.ok("run", "list", "--status", "retry").out); len(rows) != 3 {
		t.Errorf("those that wait are %q", rows)
	}
	if p.json(&done, "dead", "discard", "--all", "--yes"); done != (belfry.DeadResult{Matched: 2, Done: 2}) {
		t.Errorf("discard gave %+v", done)
	}
	for _, row := range columns(p.ok("run", "list", "--status", "discarded").out)[1:] {
		if took := row[5]; took != "-" { // It ended when it was discarded, and that is no part of its attempt.
			t.Errorf("a discarded run took %s", took)
		}
	}
	if r := p.ok("run", "show", all[1]); strings.Contains(r.out, "Took") || !strings.Contains(r.out, "discarded") {
		t.Errorf("a discarded run is shown as\n%s", r.out)
	}
	if r := p.ok("dead", "redrive", "--all", "--yes"); r.out != "" || r.err != "No dead letters.\n" {
		t.Errorf("nothing to redrive: %+v", r)
	}
	if p.json(&done, "dead", "discard", "--job", "a", "--yes"); done != (belfry.DeadResult{}) {
		t.Errorf("nothing to discard: %+v", done)
	}
}

func TestJobRetry(t *testing.T) {
	p, target := withDeadLetters(t, 2)
	all := p.dead()
	if r := p.run("job", "retry", "a", "nobody", "b"); r.code != exitNotFound || r.out != "retried    a   2 runs\nretried    b   2 runs\n" {
		t.Errorf("retry ended with %+v", r)
	}
	for _, id := range all {
		if r := p.run("run", "watch", id); r.code != exitNoSuccess || !strings.Contains(r.out, "attempt 2") {
			t.Errorf("the target still fails, and the run ended with %+v", r)
		}
	}
	target.answer(200)
	if r := p.ok("job", "retry", "--tag", "t", "--dry-run"); r.out != "2 jobs would be retried.\n" || len(p.dead()) != 4 {
		t.Errorf("the dry run printed %+v", r)
	}
	if r := p.ok("job", "retry", "--tag", "t", "--yes"); r.out != "retried    2 jobs\n" {
		t.Errorf("retry printed %+v", r)
	}
	p.waitForSuccess(all...)
	var done belfry.DeadResult
	if p.json(&done, "job", "retry", "a"); done != (belfry.DeadResult{}) {
		t.Errorf("nothing to retry: %+v", done)
	}
	if r := p.ok("job", "retry", "a"); r.out != "unchanged  a   no dead letters\n" {
		t.Errorf("nothing to retry: %+v", r)
	}
}

func TestDeadUsageErrors(t *testing.T) {
	p := withServer(t)
	none := belfry.ID{1}.String()
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"redrive"}, exitUsage, "name each dead letter, or use a filter (--job, --since, --until, --error, --fingerprint, --reason), or --all"},
		{[]string{"discard", "--yes"}, exitUsage, "name each dead letter"},
		{[]string{"redrive", none, "--job", "a"}, exitUsage, "use either names or --job"},
		{[]string{"redrive", none, "--all"}, exitUsage, "use either names or --all"},
		{[]string{"redrive", "--all", "--error", "x"}, exitUsage, "use either --all or --error"},
		{[]string{"discard", "--job", "", "--yes"}, exitUsage, "--job: is empty"},
		{[]string{"list", "--error", ""}, exitUsage, "--error: is empty"},
		{[]string{"redrive", none, "--rate", "5"}, exitUsage, "--rate works only with a filter, not with names"},
		{[]string{"discard", none, "--limit", "5"}, exitUsage, "--limit works only with a filter, not with names"},
		{[]string{"redrive", "--all", "--rate", "0"}, exitUsage, "--rate: must be from 0.001 to 1000, not 0"},
		{[]string{"redrive", "--all", "--rate", "NaN"}, exitUsage, `--rate: "NaN" is not a number`},
		{[]string{"redrive", "--all", "--limit", "-1"}, exitUsage, "--limit: -1 is negative"},
		{[]string{"redrive", "latest"}, exitUsage, `"latest" is not an id`},
		{[]string{"show", "latest"}, exitUsage, "belfry dead list"},
		{[]string{"redrive", none, "--payload", "hello"}, exitUsage, "--payload: is not valid JSON"},
		{[]string{"list", "--since", "yesterday"}, exitUsage, `--since: "yesterday" is neither an instant such as 2027-03-01T09:00:00+01:00 nor an age such as 24h or 7d`},
		{[]string{"list", "--since", "-5h"}, exitUsage, "--since"},
		{[]string{"list", "--since", "1h", "--until", "2h"}, exitUsage, "--until: must be after --since"},
		{[]string{"list", "--limit", "-1"}, exitUsage, "--limit: -1 is negative"},
		{[]string{"list", "--reason", "boredom"}, exitRefused, `reason: must be "out_of_retries", "permanent" or "poison"`},
		{[]string{"list", "--job", "nobody"}, exitNotFound, "nobody"},
		{[]string{"show", none}, exitNotFound, "belfry: dead show: "},
		{[]string{"redrive", none}, exitNotFound, "belfry: dead redrive: "},
		{[]string{"discard", none, "--yes"}, exitNotFound, "belfry: dead discard: "},
		{[]string{"rdrive"}, exitUsage, "did you mean redrive?"},
	} {
		r := p.run(append([]string{"dead"}, tt.args...)...)
		if r.code != tt.code || !strings.Contains(r.err, tt.want) || r.out != "" {
			t.Errorf("%q: got %+v, want %d and %q", tt.args, r, tt.code, tt.want)
		}
	}
}

// Dead letters that die again while the command runs are not redriven twice.
func TestDeadRedriveRepeatsWithinABound(t *testing.T) {
	died := time.Date(2030, 1, 1, 9, 0, 0, 123456000, time.UTC)
	var orders []belfry.Redrive
	answers := []string{`{"matched":10000,"done":0,"more":true}`, `{"matched":1000,"done":1000,"more":true}`, `{"matched":1000,"done":999,"more":true}`, `{"matched":5,"done":5,"more":false}`}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			fmt.Fprintf(w, `[{"run_id":%q,"finished_at":%q}]`, belfry.ID{1}, died.Format(time.RFC3339Nano))
			return
		}
		var order belfry.Redrive
		if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
			t.Error(err)
		}
		orders = append(orders, order)
		fmt.Fprint(w, answers[min(len(orders), len(answers))-1])
	}))
	defer server.Close()
	p := &testCLI{t: t, server: server.URL}
	if r := p.ok("dead", "redrive", "--all", "--yes"); r.out != "redriven   2004 dead letters\n" || r.err != "" || len(orders) != 4 {
		t.Errorf("it printed %+v after %d orders", r, len(orders))
	}
	for i, o := range orders {
		if !o.Filter.Until.Equal(died.Add(time.Microsecond)) || o.DryRun != (i == 0) {
			t.Errorf("order %d is %+v", i, o)
		}
	}
	last := time.Now().Add(time.Hour).Format(time.RFC3339)
	orders, answers = nil, []string{`{"matched":10000,"done":0,"more":true}`, `{"matched":10000,"done":10000,"more":true,"last_at":"` + last + `"}`}
	r := p.ok("dead", "redrive", "--all", "--yes", "--rate", "3")
	if len(orders) != 2 || orders[1].Limit != maxDead || orders[1].Rate != 3 || !strings.HasPrefix(r.out, "redriven   10000 dead letters   the last starts in ") ||
		!strings.HasPrefix(r.err, "There are more that match. Repeat the command in ") {
		t.Errorf("with a rate it printed %+v after %+v", r, orders)
	}
	orders, answers = nil, []string{`{"matched":1000,"done":0,"more":true}`, `{"matched":1000,"done":1000,"more":true}`, `{"matched":200,"done":200,"more":true}`}
	if p.ok("dead", "redrive", "--all", "--yes", "--limit", "1200", "--payload", "1"); len(orders) != 3 || orders[1].Limit != payloadBatch || orders[2].Limit != 200 {
		t.Errorf("with a limit the orders are %+v", orders)
	}
	orders, answers = nil, []string{`{"matched":10000,"done":0,"more":true}`, `{"matched":1000,"done":0,"more":true}`}
	if r := p.ok("dead", "redrive", "--all", "--yes"); len(orders) != 2 || r.out != "redriven   0 dead letters\n" || r.err != "There are more that match. Repeat the command to redrive them too.\n" {
		t.Errorf("without progress it printed %+v after %d orders", r, len(orders))
	}
	if r := p.ok("dead", "redrive", "--all", "--dry-run", "-o", "json"); !strings.Contains(r.out, `"more": true`) {
		t.Errorf("the dry run printed %+v", r)
	}
}
