package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

const twoJobs = `jobs:
  - name: report
    schedule: 0 9 * * MON-FRI
    timezone: Europe/Paris
    tags: [team-a, on]
    payload:
      url: https://example.com/report
      headers:
        Authorization: Bearer abc
        Accept: text/csv
  - name: cleanup
    schedule: "@daily"
    handler: clean
    tags: [team-a]
    payload: {days: 30, big: 12345678901234567890}
`

func TestJobApply(t *testing.T) {
	p := withServer(t)
	file := p.file("jobs.yaml", twoJobs)

	r := p.ok("job", "apply", "-f", file, "--dry-run")
	for _, words := range []string{"create     report\n", `    + schedule: "0 9 * * MON-FRI"`, "+ payload: {", `"Authorization":"***"`, "create     cleanup\n"} {
		if !strings.Contains(r.out, words) {
			t.Errorf("the dry run does not have %q:\n%s", words, r.out)
		}
	}
	if strings.Contains(r.out, "abc") || r.err != "Dry run: 2 to create.\n" || p.ok("job", "list").out != "" {
		t.Errorf("the dry run printed\n%s%s", r.out, r.err)
	}

	r = p.ok("job", "apply", "-f", file)
	if r.out != "created    report\ncreated    cleanup\n" || r.err != "2 created.\n" {
		t.Errorf("the first time printed\n%s%s", r.out, r.err)
	}
	job := p.job("report")
	if job.Schedule != "0 9 * * MON-FRI" || !slices.Equal(job.Tags, []string{"on", "team-a"}) || job.Type != belfry.TypeHTTP {
		t.Errorf("the job is %+v", job)
	}
	if payload := p.job("cleanup").Payload; compactJSON(payload) != `{"days":30,"big":12345678901234567890}` {
		t.Errorf("the payload is %s", payload)
	}

	r = p.ok("job", "apply", "-f", file)
	if r.out != "unchanged  report\nunchanged  cleanup\n" || r.err != "2 unchanged.\n" {
		t.Errorf("the second time printed\n%s%s", r.out, r.err)
	}
	r = p.ok("job", "apply", "-f", file, "--dry-run")
	if r.out != "unchanged  report\nunchanged  cleanup\n" {
		t.Errorf("a dry run of the same printed\n%s", r.out)
	}

	changed := strings.NewReplacer("0 9 *", "0 10 *", "Accept: text/csv", "X-Other: b", "days: 30", "days: 31", `    timezone: Europe/Paris`+"\n", "").Replace(twoJobs)
	writeFile(t, file, changed)
	r = p.ok("job", "apply", "-f", file, "--dry-run")
	want := `update     report
    ~ schedule: "0 9 * * MON-FRI" -> "0 10 * * MON-FRI"
    ~ timezone: "Europe/Paris" -> "UTC"
    - payload.headers.Accept: "text/csv"
    + payload.headers.X-Other: "b"
update     cleanup
    ~ payload.days: 30 -> 31
`
	if r.out != want || r.err != "Dry run: 2 to update.\n" || p.job("report").Revision != 1 {
		t.Errorf("the dry run of a change printed\n%s%swant\n%s", r.out, r.err, want)
	}
	r = p.ok("job", "apply", "-f", file)
	if r.out != "updated    report   schedule, timezone, payload\nupdated    cleanup   payload\n" || p.job("report").Revision != 2 {
		t.Errorf("the change printed\n%s%s", r.out, r.err)
	}

	writeFile(t, file, strings.Replace(changed, "Bearer abc", "Bearer xyz", 1))
	r = p.ok("job", "apply", "-f", file)
	if r.out != "updated    report   payload (a secret)\nunchanged  cleanup\n" {
		t.Errorf("another secret printed\n%s%s", r.out, r.err)
	}
}

func TestJobApplyKeepsPausedJobs(t *testing.T) {
	p := withServer(t)
	const job = "name: a\nschedule: '@yearly'\nhandler: h\n"
	file := p.file("a.yaml", job)
	p.ok("job", "apply", "-f", file)
	p.ok("job", "pause", "a")
	for _, tt := range []struct{ add, out, status string }{
		{"", "unchanged  a\n", "paused"},
		{"queue: other\n", "updated    a   queue\n", "paused"},
		{"queue: other\nstatus: ACTIVE\n", "updated    a   status\n", "scheduled"},
		{"queue: other\nstatus: paused\n", "updated    a   status\n", "paused"},
	} {
		writeFile(t, file, job+tt.add)
		dry := p.ok("job", "apply", "-f", file, "--dry-run").out
		if strings.HasPrefix(dry, "unchanged") != strings.HasPrefix(tt.out, "unchanged") {
			t.Errorf("with %q the dry run printed %q", tt.add, dry)
		}
		if r := p.ok("job", "apply", "-f", file); r.out != tt.out || string(p.job("a").Status) != tt.status {
			t.Errorf("with %q it printed %q, want %q, and is %s", tt.add, r.out, tt.out, p.job("a").Status)
		}
	}
}

func TestJobApplyPrune(t *testing.T) {
	p := withServer(t)
	dir := t.TempDir()
	file := writeFile(t, filepath.Join(dir, "jobs.yaml"), twoJobs)
	writeFile(t, filepath.Join(dir, "notes.txt"), "not a job")
	p.ok("job", "apply", "-f", dir, "--prune", "--tag", "team-a")
	p.ok("job", "create", "--name", "foreign", "--schedule", "@yearly", "--handler", "h", "--tag", "team-b")
	p.ok("job", "create", "--schedule", "@yearly", "--handler", "nameless", "--tag", "team-a")

	report := twoJobs[:strings.Index(twoJobs, "  - name: cleanup")]
	writeFile(t, file, report)
	r := p.ok("job", "apply", "-f", dir, "--prune", "--tag", "team-a", "--dry-run")
	if !strings.Contains(r.out, "delete     cleanup\n") || r.err != "Dry run: 1 unchanged, 2 to delete.\n" || p.job("cleanup").Name == "" {
		t.Errorf("the dry run printed\n%s%s", r.out, r.err)
	}
	r = p.ok("job", "apply", "-f", dir, "--prune", "--tag", "team-a")
	if !strings.Contains(r.out, "deleted    cleanup\n") || r.err != "1 unchanged, 2 deleted.\n" {
		t.Errorf("it printed\n%s%s", r.out, r.err)
	}
	if r := p.run("job", "show", "cleanup"); r.code != exitNotFound {
		t.Errorf("cleanup: %+v", r)
	}
	p.job("foreign")

	for _, tt := range []struct {
		name, content string
		code          int
		want          string
	}{
		{"an empty file", "", exitRefused, "jobs.yaml:1: has no jobs; --prune would delete"},
		{"a file of comments", "# nothing\n---\n", exitRefused, "use --yes"},
		{"an empty list", "jobs: []\n", exitRefused, "has no jobs"},
		{"a broken file", "jobs: [\n", exitRefused, "jobs.yaml:"},
		{"a job without the tag", "name: b\nschedule: '@daily'\nhandler: h\ntags:\n  - c\n", exitRefused, "jobs.yaml:4: tags: b does not have the tag team-a"},
		{"a job that is refused", "name: b\nschedule: never\nhandler: h\ntags: [team-a]\n", exitRefused, "jobs.yaml:2: schedule: "},
	} {
		writeFile(t, file, tt.content)
		r := p.run("job", "apply", "-f", dir, "--prune", "--tag", "team-a")
		if r.code != tt.code || !strings.Contains(r.err, tt.want) {
			t.Errorf("%s: got %+v, want %d and %q", tt.name, r, tt.code, tt.want)
		}
		p.job("report") // is still there
	}
	if r := p.run("job", "apply", "-f", dir, "--prune", "--tag", "team-a", "--yes"); r.code != exitRefused {
		t.Errorf("--yes does not make a refused job right: %+v", r)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if r := p.run("job", "apply", "-f", dir, "--prune", "--tag", "team-a"); r.code != exitRefused || !strings.Contains(r.err, "has no jobs") {
		t.Errorf("an empty folder: %+v", r)
	}
	if r := p.ok("job", "apply", "-f", dir, "--prune", "--tag", "team-a", "--yes"); r.out != "deleted    report\n" {
		t.Errorf("an empty folder that is meant: %+v", r)
	}
}

func TestJobApplyRefusedWhole(t *testing.T) {
	p := withServer(t)
	file := p.file("jobs.yaml", `- name: a
  schedule: 61 * * * *
  payload:
    url: https://example.com
    headers:
      Accept: text/csv
      Host: example.com
- name: good
  schedule: "@daily"
  handler: h
- name: b
  schedule: "@daily"
  handler: h
  timeout_seconds: "60"
`)
	r := p.run("job", "apply", "-f", file)
	lines := strings.Split(strings.TrimSpace(r.err), "\n")
	if r.code != exitRefused || r.out != "" || len(lines) != 5 || lines[0] != "2 refused, 1 skipped." || lines[1] != "Nothing was changed. To apply the valid jobs, use --keep-going." {
		t.Fatalf("it ended with %d:\n%s%s", r.code, r.out, r.err)
	}
	for i, want := range []string{":2: schedule: ", ":7: payload.headers.Host: ", ":14: timeout_seconds: "} {
		if !strings.HasPrefix(lines[i+2], "belfry: job apply: "+file+want) {
			t.Errorf("line %d is %q, want %q", i+2, lines[i+2], want)
		}
	}
	if r := p.ok("job", "list"); r.out != "" {
		t.Errorf("a refused apply created\n%s", r.out)
	}
	r = p.run("job", "apply", "-f", file, "--dry-run")
	if r.code != exitRefused || !strings.HasPrefix(r.out, "create     good\n") || !strings.HasPrefix(r.err, "Dry run: 1 to create, 2 refused.\n") || strings.Count(r.err, "\n") != 4 {
		t.Errorf("the dry run ended with %+v", r)
	}
	r = p.run("job", "apply", "-f", file, "--keep-going")
	if r.code != exitRefused || r.out != "created    good\n" || !strings.HasPrefix(r.err, "1 created, 2 refused.\n") || strings.Count(r.err, "\n") != 4 {
		t.Errorf("--keep-going ended with %+v", r)
	}
	var results []applyResult
	for flag, want := range map[string]string{"": resultSkipped, "--keep-going": resultUnchanged} {
		args := []string{"job", "apply", "-f", file, "-o", "json"}
		if flag != "" {
			args = append(args, flag)
		}
		r = p.run(args...)
		if err := jsonInto(r.out, &results); err != nil || r.code != exitRefused || len(results) != 3 {
			t.Fatalf("as JSON: %+v, error %v", r, err)
		}
		if results[0].Result != resultRefused || len(results[0].Errors) != 2 || results[1].Result != want || results[1].JobID == "" || results[2].Name != "b" {
			t.Errorf("as JSON: %+v, want %s", results, want)
		}
	}
	two := p.file("two.yaml", "- name: c\n  schedule: '@daily'\n  handler: h\n- name: d\n  schedule: never\n  handler: h\n")
	if r := p.run("job", "create", "-f", two); r.code != exitRefused || r.out != "" || !strings.Contains(r.err, "two.yaml:5: schedule: ") {
		t.Errorf("create from a file of two: %+v", r)
	}
	if r := p.run("job", "show", "c"); r.code != exitNotFound {
		t.Errorf("one of two jobs was created: %+v", r)
	}
	r = p.run("job", "create", "-f", p.file("one.json", "{\n\"name\": \"c\",\n\"schedule\": \"never\",\n\"handler\": \"h\"}"))
	if r.code != exitRefused || !strings.Contains(r.err, "one.json:3: schedule: ") {
		t.Errorf("create from a file: %+v", r)
	}
}

func TestManifestFileErrors(t *testing.T) {
	p := &testCLI{t: t, server: "http://127.0.0.1:1"} // Nobody is there.
	good := p.file("good.yaml", "name: good\nschedule: '@daily'\n")
	for _, tt := range []struct {
		name, file, content string
		want                []string
	}{
		{"no name", "x.yaml", "- schedule: '@daily'\n- name: b\n- name: ''\n", []string{"x.yaml:1: name: is required", "x.yaml:3: name: is required"}},
		{"a name twice", "x.yaml", "name: a\n---\nname: a\n", []string{"x.yaml:3: name: a is duplicated; first at ", "x.yaml:1"}},
		{"a name of another file", "x.yaml", "schedule: '@daily'\nname: good\n", []string{"x.yaml:2: name: good is duplicated", "good.yaml:1"}},
		{"all that is wrong", "x.yaml", "- nme: a\n- b\n- name: [c]\n- name: d\n  tags: e\n- name: f\n  max_retries: .inf\n",
			[]string{"x.yaml:2: must be a job", "x.yaml:7: max_retries: .inf is not a JSON number"}},
		{"a key beside jobs", "x.yaml", "jobs: []\nname: a\n", []string{"x.yaml:2: name is not allowed next to jobs"}},
		{"jobs that are no list", "x.yaml", "jobs: 5\n", []string{"x.yaml:1: jobs must be a list"}},
		{"a text", "x.yaml", "hello\n", []string{"x.yaml:1: must be a job, a list of jobs, or the key jobs with a list"}},
		{"broken YAML", "x.yaml", "name: a\nschedule: b: c\n", []string{"x.yaml:2: mapping values are not allowed"}},
		{"broken JSON", "x.json", "{\"name\": \"a\",\n}", []string{"x.json:2: is not JSON"}},
		{"JSON with a key twice", "x.json", "{\"name\": \"a\",\n\"name\": \"b\"}", []string{"x.json:2: name is duplicated"}},
		{"a name with an escape sequence", "x.yaml", "name: \"a\\e[31m\"\n---\nname: \"a\\e[31m\"\n", []string{`x.yaml:3: name: a\x1b[31m is duplicated`}},
	} {
		path := p.file(tt.file, tt.content)
		r := p.run("job", "apply", "-f", good, "-f", path)
		if r.code != exitRefused || r.out != "" || strings.Contains(r.err, "\x1b") {
			t.Errorf("%s: got %+v", tt.name, r)
		}
		for _, want := range tt.want {
			if !strings.Contains(r.err, want) {
				t.Errorf("%s: it does not say %q:\n%s", tt.name, want, r.err)
			}
		}
	}
	if r := p.run("job", "apply", "-f", "nowhere.yaml"); r.code != exitOther || !strings.Contains(r.err, "belfry: job apply: read nowhere.yaml: no such file") {
		t.Errorf("a file that is not there: %+v", r)
	}
}

func TestManifestFileShapes(t *testing.T) {
	p := withServer(t)
	p.stdin = strings.NewReader("name: from-stdin\nschedule: '@daily'\nhandler: h\n")
	r := p.ok("job", "apply", "-f", "-",
		"-f", p.file("documents.yaml", "---\nname: d1\nschedule: '@daily'\nhandler: h\n---\n# nothing\n---\nname: d2\nschedule: 2126-12-01T09:00:00Z\nhandler: h\n"),
		"-f", p.file("list.json", `[{"name": "l1", "schedule": "@daily", "handler": "h", "payload": {"text": "\ud83d\ude00"}}]`),
		"-f", p.file("merged.yaml", "- &base\n  name: m1\n  schedule: '@daily'\n  handler: h\n  queue: 1e3\n- <<: *base\n  name: m2\n"),
	)
	if got := strings.Count(r.out, "created "); got != 6 {
		t.Errorf("it printed\n%s", r.out)
	}
	if j := p.job("m2"); j.Queue != "1e3" || j.Handler != "h" {
		t.Errorf("the merged job is %+v", j)
	}
	if j := p.job("d2"); j.Schedule != "2126-12-01T09:00:00Z" {
		t.Errorf("an instant became %q", j.Schedule)
	}
	if j := p.job("l1"); compactJSON(j.Payload) != `{"text":"😀"}` {
		t.Errorf("the text became %s", j.Payload)
	}

	shown := p.file("shown.yaml", p.ok("job", "show", "l1", "-o", "yaml").out)
	if r := p.ok("job", "apply", "-f", shown); r.out != "unchanged  l1\n" {
		t.Errorf("what was shown and applyResult printed %q", r.out)
	}
	all := p.file("all.json", p.ok("job", "list", "-o", "json").out)
	if r := p.ok("job", "apply", "-f", all); r.err != "6 unchanged.\n" {
		t.Errorf("what was listed and applyResult printed %q", r.err)
	}
}
