package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

func TestExitCodes(t *testing.T) {
	p := withServer(t)
	p.ok("job", "create", "--name", "a", "--schedule", "@yearly", "--handler", "h")
	nobody := &testCLI{t: t, server: "http://127.0.0.1:1"}
	none := belfry.ID{1}.String()
	for _, tt := range []struct {
		name string
		at   *testCLI
		args []string
		code int
		want string // in what is said
	}{
		{"nothing", p, []string{"job", "list"}, exitOK, ""},
		{"an unknown command", p, []string{"sevre"}, exitUsage, "belfry: unknown command \"sevre\" for belfry; did you mean serve?\nSee: belfry --help\n"},
		{"an unknown command of a group", p, []string{"job", "lst"}, exitUsage, `belfry: job: unknown command "lst" for belfry job; did you mean list?`},
		{"an unknown command of a group with a flag", p, []string{"job", "lst", "--limit", "5"}, exitUsage, `belfry: job: unknown command "lst" for belfry job; did you mean list?`},
		{"an unknown group", p, []string{"jbo", "list", "--limit", "5"}, exitUsage, `belfry: unknown command "jbo" for belfry; did you mean job?`},
		{"an unknown topic of a group", p, []string{"help", "job", "lst"}, exitUsage, `unknown command "lst" for belfry job; did you mean list?`},
		{"two names of a new job", p, []string{"job", "create", "report", "--name", "reports", "--handler", "h"}, exitUsage, `belfry: job create: the job is named "report" and, by --name, "reports"; use one of them`},
		{"two arguments for a new job", p, []string{"job", "create", "report", "x"}, exitUsage, "accepts at most 1 arg(s), received 2"},
		{"a name beside a file", p, []string{"job", "create", "report", "-f", "x"}, exitUsage, "use either --file or NAME"},
		{"an unknown topic", p, []string{"help", "nothing"}, exitUsage, "unknown command"},
		{"an unknown shell", p, []string{"completion", "tcsh"}, exitUsage, "name one shell: bash, zsh"},
		{"an unknown flag", p, []string{"job", "list", "--colour"}, exitUsage, "belfry: job list: unknown flag: --colour\nSee: belfry job list --help\n"},
		{"a flag with a typing error", p, []string{"job", "list", "--serach", "x"}, exitUsage, "belfry: job list: unknown flag: --serach; did you mean --search?\n"},
		{"a flag with another separator", p, []string{"job", "create", "--max_retries", "5"}, exitUsage, "unknown flag: --max_retries; did you mean --max-retries?\n"},
		{"a common flag with a typing error", p, []string{"dead", "list", "--ouptut", "json"}, exitUsage, "unknown flag: --ouptut; did you mean --output?\n"},
		{"a flag of a node with a typing error", p, []string{"serve", "--lisen", ":1"}, exitUsage, "belfry: serve: unknown flag: --lisen; did you mean --listen?\n"},
		{"a long flag with one hyphen", p, []string{"serve", "-listen", ":1"}, exitUsage, "unknown shorthand flag: 'l' in -listen; did you mean --listen?\n"},
		{"a flag of the wrong type", p, []string{"job", "list", "--limit", "many"}, exitUsage, "--limit"},
		{"an argument too few", p, []string{"job", "show"}, exitUsage, "accepts 1 arg(s), received 0"},
		{"an argument too many", p, []string{"job", "list", "x"}, exitUsage, "x"},
		{"a run by a word", p, []string{"run", "show", "latest"}, exitUsage, `"latest" is not an id`},
		{"a run and a job", p, []string{"run", "watch", none, "--job", "a"}, exitUsage, "name a run, or a job with --job"},
		{"a revision by a word", p, []string{"job", "rollback", "a", "first"}, exitUsage, "belfry job revisions a"},
		{"a body that is not JSON", p, []string{"job", "create", "--url", "http://x", "--body", "hello"}, exitUsage, `--body: is not valid JSON: line 1, column 1`},
		{"a body without an address", p, []string{"job", "create", "--body", "1"}, exitUsage, "--body needs --url"},
		{"an address and a handler", p, []string{"job", "create", "--url", "http://x", "--handler", "h"}, exitUsage, "use either --url or --handler"},
		{"half a header", p, []string{"job", "create", "--url", "http://x", "--header", "Accept"}, exitUsage, `"Accept" is not NAME=VALUE`},
		{"half a second", p, []string{"job", "create", "--timeout", "1500ms"}, exitUsage, `--timeout: "1500ms" is not a whole number of seconds`},
		{"flags beside a file", p, []string{"job", "create", "-f", "x", "--name", "y"}, exitUsage, "use either --file or --name"},
		{"nothing to run", p, []string{"job", "create", "--name", "b", "--schedule", "@daily"}, exitUsage, "say what to run: --url for an HTTP request, or --handler"},
		{"flags of a node that are not valid", p, []string{"serve", "--listen", "99", "--concurrency", "0"}, exitUsage, "belfry: serve: --listen: \"99\" is not host:port, such as 127.0.0.1:7070\nbelfry: serve: --concurrency: "},
		{"no files", p, []string{"job", "apply"}, exitUsage, "belfry job apply -f jobs.yaml"},
		{"prune without a tag", p, []string{"job", "apply", "-f", "x", "--prune"}, exitUsage, "--prune needs --tag"},
		{"a tag without prune", p, []string{"job", "apply", "-f", "x", "--tag", "t"}, exitUsage, "--tag needs --prune"},
		{"no such job", p, []string{"job", "show", "nobody"}, exitNotFound, "belfry: job show: "},
		{"no such run", p, []string{"run", "show", none}, exitNotFound, "belfry: run show: "},
		{"no such run to watch", p, []string{"run", "watch", none}, exitNotFound, "belfry: run watch: "},
		{"no such job to watch", p, []string{"run", "watch", "--job", "nobody"}, exitNotFound, "belfry: run watch: "},
		{"no such revision", p, []string{"job", "rollback", "a", "17"}, exitNotFound, "belfry: job rollback: "},
		{"faults", p, []string{"job", "create", "--schedule", "61 * * * *", "--url", "ftp://x"}, exitRefused, "belfry: job create: schedule: column 1: "},
		{"a name that is taken", p, []string{"job", "create", "--name", "a", "--schedule", "@yearly", "--handler", "h"}, exitRefused, "belfry: job create: "},
		{"a filter that there is not", p, []string{"job", "list", "--status", "bored"}, exitRefused, `belfry: job list: status: must be "scheduled", "queued"`},
		{"nobody there", nobody, []string{"job", "list"}, exitUnreachable, "belfry: job list: no answer from http://127.0.0.1:1: connection refused\nIs a server running? Start one with: belfry serve\n"},
	} {
		r := tt.at.run(tt.args...)
		if r.code != tt.code || !strings.Contains(r.err, tt.want) {
			t.Errorf("%s: exit code %d, want %d; it said %q, want %q", tt.name, r.code, tt.code, r.err, tt.want)
		}
		if r.code != exitOK && r.out != "" {
			t.Errorf("%s: it printed %q where data is expected", tt.name, r.out)
		}
		if strings.Contains(r.err, "dial tcp") || strings.Contains(r.err, "Get \"") {
			t.Errorf("%s: it shows internals: %q", tt.name, r.err)
		}
	}
	if r := p.run("job", "create", "--schedule", "61 * * * *", "--url", "ftp://x"); strings.Count(r.err, "belfry: job create: ") != 2 || strings.Count(r.err, "\n") != 2 {
		t.Errorf("two faults are not two lines: %q", r.err)
	}
}

func TestExitCodesOfServerErrors(t *testing.T) {
	status, code := 0, ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("X-Request-Id", "r-17")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"detail": "it said \u001b[31mno", "code": %q, "request_id": "r-17"}`, code)
	}))
	defer server.Close()
	p := &testCLI{t: t, server: server.URL}
	for _, tt := range []struct {
		status int
		code   string
		want   int
		says   string
	}{
		{401, "unauthorized", exitNotAllowed, "Set the API key"},
		{403, "forbidden", exitNotAllowed, ""},
		{404, "not_found", exitNotFound, ""},
		{409, "conflict", exitRefused, ""},
		{412, "changed", exitRefused, "Look at it again"},
		{413, "too_large", exitRefused, ""},
		{400, "bad_request", exitRefused, ""},
		{422, "invalid", exitRefused, ""},
		{429, "rate_limited", exitUnreachable, "Wait a moment and repeat"},
		{503, "unavailable", exitUnreachable, "(request r-17)"},
		{500, "internal", exitOther, "(request r-17)"},
	} {
		status, code = tt.status, tt.code
		r := p.run("job", "show", "x")
		if r.code != tt.want || !strings.Contains(r.err, tt.says) || !strings.HasPrefix(r.err, "belfry: job show: it said") || strings.Contains(r.err, "\x1b") {
			t.Errorf("%d: got %+v, want %d and %q", tt.status, r, tt.want, tt.says)
		}
	}
}

func TestHelp(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "Available Commands:"},
		{[]string{"help", "exit-codes"}, "5   the run that was waited for did not succeed"},
		{[]string{"exit-codes"}, "130   interrupted"},
		{[]string{"job"}, "rollback"},
		{[]string{"help", "job", "apply"}, "--prune"},
		{[]string{"job", "list", "--help"}, "in the list of processes"},
		{[]string{"version"}, "zones"},
		{[]string{"--version"}, "belfry " + version() + " (go1."},
	} {
		var out, err strings.Builder
		if code := execute(t.Context(), tt.args, strings.NewReader(""), &out, &err); code != exitOK || !strings.Contains(out.String(), tt.want) || err.String() != "" {
			t.Errorf("%q: exit code %d, printed %q and %q", tt.args, code, out.String(), err.String())
		}
	}
}

func TestServerAnswersAreEscaped(t *testing.T) {
	const nasty = `"a\u001b[31m\u202e\u009b\n"`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		job := `{"job_id":"` + belfry.ID{1}.String() + `","name":` + nasty + `,"tags":[` + nasty + `],"schedule":` + nasty + `,"type":` + nasty + `,"payload":{"x":` + nasty + `}}`
		run := `{"run_id":"` + belfry.ID{2}.String() + `","status":"succeeded","output":` + nasty + `,"error":` + nasty + `,"attempts":[{"attempt":1,"outcome":` + nasty + `,"output":` + nasty + `}]}`
		letter := strings.Replace(run, "{", `{"job_name":`+nasty+`,"fingerprint":`+nasty+`,"reason":`+nasty+`,"payload":{"x":`+nasty+`},`, 1)
		switch {
		case strings.HasSuffix(r.URL.Path, "/jobs"):
			fmt.Fprintf(w, "[%s]", job)
		case strings.HasSuffix(r.URL.Path, "/why"):
			fmt.Fprintf(w, `{"sentence":%[1]s,"decision":%[1]s,"run":%[2]s,"rule":{"schedule":%[1]s,"timezone":%[1]s},"waits_for":{"what":%[1]s}}`, nasty, run)
		case strings.HasSuffix(r.URL.Path, "/events"):
			fmt.Fprintf(w, `[{"kind":%[1]s,"message":%[1]s}]`, nasty)
		case strings.HasSuffix(r.URL.Path, "/groups"):
			fmt.Fprintf(w, `[{"fingerprint":%[1]s,"error":%[1]s}]`, nasty)
		case strings.HasSuffix(r.URL.Path, "/dead-letters"):
			fmt.Fprintf(w, "[%s]", letter)
		case strings.Contains(r.URL.Path, "/dead-letters/"):
			fmt.Fprint(w, letter)
		case strings.Contains(r.URL.Path, "/runs"):
			fmt.Fprint(w, run)
		default:
			fmt.Fprint(w, job)
		}
	}))
	defer server.Close()
	p := &testCLI{t: t, server: server.URL}
	for _, args := range [][]string{
		{"job", "list"}, {"job", "show", "x"}, {"job", "pause", "x"}, {"run", "show", belfry.ID{2}.String()}, {"run", "watch", belfry.ID{2}.String()},
		{"job", "why", "x"}, {"event", "list"}, {"dead", "list"}, {"dead", "list", "--group"}, {"dead", "show", belfry.ID{2}.String()},
	} {
		for _, format := range formats {
			r := p.ok(append(args, "-o", format)...)
			if strings.ContainsFunc(r.out, func(c rune) bool { return c != '\n' && !isPrintable(c) }) || !strings.Contains(r.out, "31m") {
				t.Errorf("belfry %s -o %s printed %q", strings.Join(args, " "), format, r.out)
			}
		}
	}
}
