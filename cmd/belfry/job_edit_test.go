package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

func jsonInto(text string, into any) error { return json.Unmarshal([]byte(text), into) }

// editor makes a shell script the editor. It is given the file as $1, and has the
// number of times it was called in $n.
func editor(t *testing.T, script string) (calls func() int) {
	t.Helper()
	dir := t.TempDir()
	counter := filepath.Join(dir, "calls")
	path := writeFile(t, filepath.Join(dir, "editor"), "set -e\necho x >> '"+counter+"'\nn=$(wc -l < '"+counter+"')\n"+script+"\n")
	t.Setenv("TMPDIR", dir)
	t.Setenv("EDITOR", "sh '"+path+"'")
	return func() int {
		content, err := os.ReadFile(counter)
		if err != nil {
			return 0
		}
		return strings.Count(string(content), "\n")
	}
}

// left lists the texts that an edit left behind.
func left(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "belfry-edit-*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func withReport(t *testing.T) *testCLI {
	p := withServer(t)
	p.ok("job", "create", "--name", "report", "--schedule", "0 9 * * *", "--url", "https://example.com", "--header", "Authorization=Bearer abc", "--tag", "on")
	return p
}

func TestJobEditInAnEditor(t *testing.T) {
	p := withReport(t)
	copied := filepath.Join(t.TempDir(), "copy")
	calls := editor(t, `cp "$1" '`+copied+`'; sed 's/0 9 \* \* \*/30 9 * * */; /max_retries/d' "$1" > "$1.new"; mv "$1.new" "$1"`)
	r := p.ok("job", "edit", "report")
	if !strings.HasPrefix(r.out, "updated    report   schedule   next 20") || calls() != 1 || len(left(t)) != 0 {
		t.Errorf("it printed %q after %d calls, and left %q", r.out, calls(), left(t))
	}
	content, err := os.ReadFile(copied)
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"#| Job report, revision 1.", "#| *** stands for a secret", "name: report\n", "tags:\n  - \"on\"\n", "schedule: 0 9 * * *\n", "max_retries: 3\n", "Authorization: '***'\n", "status: active\n"} {
		if !strings.Contains(string(content), words) {
			t.Errorf("the editor did not show %q:\n%s", words, content)
		}
	}
	if j := p.job("report"); j.Schedule != "30 9 * * *" || j.Revision != 2 || j.MaxRetries.Value() != 3 {
		t.Errorf("the job is %+v", j)
	}
}

func TestJobEditWithoutAChange(t *testing.T) {
	p := withReport(t)
	calls := editor(t, `true`)
	r := p.ok("job", "edit", "report")
	if r.out != "" || r.err != "Nothing was changed.\n" || calls() != 1 || len(left(t)) != 0 || p.job("report").Revision != 1 {
		t.Errorf("it printed %+v after %d calls, and left %q", r, calls(), left(t))
	}
}

func TestJobEditIsCorrectedInTheEditor(t *testing.T) {
	p := withReport(t)
	seen := filepath.Join(t.TempDir(), "seen")
	calls := editor(t, `cp "$1" '`+seen+`'$n
case $n in
1) sed 's/0 9 \* \* \*/61 9 * * */; s/^queue:.*/queue: a b/' "$1" ;;
2) sed 's/61 9 \* \* \*/1 9 * * */; s/^queue:.*/queue: [/' "$1" ;;
3) sed 's/^queue:.*/quue: q/' "$1" ;;
4) sed 's/^quue:/queue:/' "$1" ;;
esac > "$1.new"; mv "$1.new" "$1"`)
	r := p.ok("job", "edit", "report")
	if !strings.HasPrefix(r.out, "updated    report   schedule, queue   next") || calls() != 4 || len(left(t)) != 0 {
		t.Errorf("it printed %+v after %d calls, and left %q", r, calls(), left(t))
	}
	for n, want := range map[string][]string{
		"2": {"#| ERROR: line 5: schedule: ", "#| ERROR: line 8: queue: ", "#| Correct it"},
		"3": {"#| ERROR: line "},
		"4": {"quue: is unknown; did you mean \"queue\"?"},
	} {
		content, err := os.ReadFile(seen + n)
		if err != nil {
			t.Fatal(err)
		}
		for _, words := range want {
			if !strings.Contains(string(content), words) {
				t.Errorf("call %s did not show %q:\n%s", n, words, content)
			}
		}
		if strings.Count(string(content), "revision 1.") != 1 {
			t.Errorf("call %s shows the preface more than once:\n%s", n, content)
		}
	}
}

func TestJobEditThatIsNotCorrectedIsKept(t *testing.T) {
	p := withReport(t)
	calls := editor(t, `if [ $n = 1 ]; then sed 's/0 9 \* \* \*/never/' "$1" > "$1.new"; mv "$1.new" "$1"; fi`)
	r := p.run("job", "edit", "report")
	if r.code != exitRefused || calls() != 2 || !strings.Contains(r.err, "Your text is in ") || len(left(t)) != 1 || p.job("report").Revision != 1 {
		t.Errorf("it printed %+v after %d calls, and left %q", r, calls(), left(t))
	}
}

func TestJobEditAndApplyDoNotOverwriteAnotherChange(t *testing.T) {
	p := withReport(t)
	server, err := url.Parse(p.server)
	if err != nil {
		t.Fatal(err)
	}
	somebody, edits := *p, 0
	pass := httputil.NewSingleHostReverseProxy(server)
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			edits++
			somebody.ok("job", "edit", "report", "--set", "max_retries="+strconv.Itoa(6+edits))
		}
		pass.ServeHTTP(w, r)
	}))
	defer between.Close()
	p.server = between.URL

	editor(t, `sed 's/0 9 \* \* \*/1 1 * * */' "$1" > "$1.new"; mv "$1.new" "$1"`)
	r := p.run("job", "edit", "report")
	if r.code != exitRefused || !strings.Contains(r.err, "Somebody else changed it") || len(left(t)) != 1 {
		t.Errorf("it printed %+v and left %q", r, left(t))
	}
	if j := p.job("report"); j.MaxRetries.Value() != 7 || j.Schedule != "0 9 * * *" {
		t.Errorf("the job is %+v", j)
	}
	r = p.run("job", "apply", "-f", p.file("x.yaml", "name: report\nschedule: '@daily'\nhandler: h\n"))
	if r.code != exitRefused || !strings.Contains(r.err, "x.yaml:1: report was changed by somebody else at the same time; apply again") || p.job("report").MaxRetries.Value() != 8 {
		t.Errorf("apply: %+v", r)
	}
}

func TestJobEditWithAFailingEditor(t *testing.T) {
	p := withReport(t)
	editor(t, `exit 3`)
	if r := p.run("job", "edit", "report"); r.code != exitOther || !strings.Contains(r.err, "ended with code 3; your text is in ") || p.job("report").Revision != 1 {
		t.Errorf("it printed %+v", r)
	}
	t.Setenv("EDITOR", "")
	if r := p.run("job", "edit", "report"); r.code != exitUsage || !strings.Contains(r.err, "there is no terminal for an editor: use --set") {
		t.Errorf("without a terminal: %+v", r)
	}
}

func TestJobEditSet(t *testing.T) {
	p := withReport(t)
	for _, tt := range []struct {
		sets []string
		out  string // how it begins
	}{
		{[]string{"schedule=0 9 * * *"}, "unchanged  report\n"},
		{[]string{"queue=1e3", "tags=[\"a\", \"b\"]"}, "updated    report   tags, queue   next"},
		{[]string{"payload.headers.Accept=text/csv", `payload.body={"a": {"b": 1}}`}, "updated    report   payload   next"},
		{[]string{"payload.body.a.b=null", "payload.body.a.c=true", "payload.body.d=007"}, "updated    report   payload   next"},
		{[]string{"status=paused"}, "updated    report   status   paused\n"},
		{[]string{"tags=null", "status=active"}, "updated    report   tags, status   next"},
		{[]string{"name=42"}, "updated    42   name   next"},
	} {
		args := []string{"job", "edit", p.jobID()}
		for _, s := range tt.sets {
			args = append(args, "--set", s)
		}
		if r := p.ok(args...); !strings.HasPrefix(r.out, tt.out) {
			t.Errorf("%q printed %q, want %q", tt.sets, r.out, tt.out)
		}
	}
	job := p.job("42")
	if want := `{"body":{"a":{"c":true},"d":"007"},"headers":{"Accept":"text/csv","Authorization":"***"},"url":"https://example.com"}`; !sameJSON(job.Payload, json.RawMessage(want)) || job.Queue != "1e3" {
		t.Errorf("the job is %+v with %s", job, job.Payload)
	}
	for _, tt := range []struct {
		set  string
		code int
		want string
	}{
		{"schedule", exitUsage, `"schedule" is not FIELD=VALUE`},
		{"shedule=x", exitUsage, "shedule is unknown; did you mean schedule?"},
		{"schedule.x=1", exitUsage, "schedule has no members"},
		{"payload.url.x=1", exitUsage, "x cannot be set in a string"},
		{"payload..x=1", exitUsage, "the path has an empty name"},
		{"max_retries=many", exitRefused, "belfry: job edit: max_retries: "},
	} {
		if r := p.run("job", "edit", "42", "--set", tt.set); r.code != tt.code || !strings.Contains(r.err, tt.want) {
			t.Errorf("%s: got %+v, want %d and %q", tt.set, r, tt.code, tt.want)
		}
	}
}

// jobID is the id of the only job.
func (p *testCLI) jobID() string {
	p.t.Helper()
	var jobs []belfry.Job
	p.json(&jobs, "job", "list")
	return jobs[0].ID.String()
}
