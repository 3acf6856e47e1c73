package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/command"
)

const oddCrontab = "../../internal/importer/testdata/odd.crontab"

// What an import writes is what apply accepts, and the jobs stay as they are when it is
// applied again.
func TestImportAndApply(t *testing.T) {
	p := withServer(t)
	jobs, commands := filepath.Join(t.TempDir(), "jobs.yaml"), filepath.Join(t.TempDir(), "commands.yaml")
	r := p.ok("import", "crontab", oddCrontab, "--timezone", "Europe/Berlin", "--prefix", "web1-", "--jobs", jobs, "--commands", commands)
	if r.out != "" || !strings.Contains(r.err, "Warning: "+oddCrontab+":5: MAILTO") || !strings.HasSuffix(r.err, " jobs, 113 commands, 26 left out.\n") {
		t.Errorf("the import printed\n%s%s", r.out, r.err)
	}
	content, err := os.ReadFile(jobs)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# line 5: MAILTO: cron mails",
		"  # line 113: weekday \"fri-sun\": ",
		"  # line 92: left out: @reboot has no meaning",
		"\n  - name: web1-skipped-by-the-clock\n    type: command\n    schedule: 30 2 * * *\n    timezone: Europe/Berlin\n    dst_gap: run\n    missed_window: skip\n    overlap: parallel\n    timeout_seconds: 86400\n    max_retries: 0\n    payload:\n      command: web1-skipped-by-the-clock\n",
	} {
		if !strings.Contains(string(content), want) {
			t.Errorf("the jobs do not have %q:\n%s", want, content)
		}
	}
	if r := p.ok("job", "apply", "-f", jobs); r.err != "113 created.\n" {
		t.Errorf("apply printed %s", r.err)
	}
	if r := p.ok("job", "apply", "-f", jobs); r.err != "113 unchanged.\n" {
		t.Errorf("apply printed the second time %s", r.err)
	}
	if job := p.job("web1-mail"); job.Schedule != "0 22 * * 1-5" || compactJSON(job.Payload) != `{"command":"web1-mail"}` || job.Overlap != belfry.OverlapParallel || job.MaxRetries != belfry.Some(0) {
		t.Errorf("the job is %+v", job)
	}

	content, err = os.ReadFile(commands)
	if err != nil {
		t.Fatal(err)
	}
	here := filepath.Join(t.TempDir(), "commands.yaml") // the home of the crontab's user exists on another machine
	writeFile(t, here, strings.ReplaceAll(string(content), "/home/ops", t.TempDir()))
	if f, err := command.Load(here); err != nil || len(f.Commands) != 113 {
		t.Errorf("a worker cannot use the commands: %v", err)
	}
	names := regexp.MustCompile(`(?m)^  ([a-z0-9-]+):$`).FindAllString(string(content), -1)
	slices.Sort(names)
	if n := len(slices.Compact(names)); n != 113 {
		t.Errorf("there are %d names of commands", n)
	}
	if want := "  web1-mail:\n    argv:\n      - /bin/bash\n      - \"-c\"\n      - mail -s \"It's 10pm\" joe\n    directory: /home/ops\n"; !strings.Contains(string(content), want) {
		t.Errorf("the commands do not have %q:\n%s", want, content)
	}
	if info, err := os.Stat(commands); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the commands, which may have secrets, have the mode %v, %v", info.Mode(), err)
	}
	if r := p.run("import", "crontab", oddCrontab, "--jobs", jobs); r.code != exitRefused || !strings.Contains(r.err, "exists; remove it") {
		t.Errorf("an existing file: %+v", r)
	}
}

func TestImportKubernetesFile(t *testing.T) {
	p := &testCLI{t: t, stdin: strings.NewReader(`kind: ConfigMap
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: clean}
spec:
  schedule: "0 0 */2 * 5"
  jobTemplate:
    spec:
      template:
        spec:
          containers:
            - image: busybox
              command: &command [/bin/sh, -c, "echo \e[31m"]
              env: [{name: PORT, value: "80"}]
`)}
	r := p.ok("import", "kubernetes", "-")
	for _, want := range []string{"# line 1: left out: kind \"ConfigMap\" is not imported", "schedule: 0 0 1-31/2 * 5\n", "  # line 3: the image \"busybox\" is not run"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("the jobs do not have %q:\n%s", want, r.out)
		}
	}
	if !strings.Contains(r.err, "Warning: stdin:1: left out: kind") || !strings.HasSuffix(r.err, "Note: the commands are not written; use --commands FILE\n1 job, 1 command, 1 left out.\n") {
		t.Errorf("it printed %s", r.err)
	}
}

func TestImportRefuses(t *testing.T) {
	large := filepath.Join(t.TempDir(), "large")
	writeFile(t, large, strings.Repeat("# comment\n", 110_000))
	for _, tt := range []struct {
		args  []string
		stdin string
		code  int
		want  string
	}{
		{[]string{"crontab"}, "", exitUsage, "accepts 1 arg"},
		{[]string{"crontab", "-", "--timezone", "Mars/Olympus"}, "", exitUsage, "--timezone: there is no time zone"},
		{[]string{"crontab", "-", "--prefix", "Web 1"}, "", exitUsage, "--prefix: must have at most 25"},
		{[]string{"crontab", "/does/not/exist"}, "", exitOther, "no such file"},
		{[]string{"crontab", large}, "", exitRefused, "is larger than 1048576 bytes"},
		{[]string{"crontab", "-"}, "@daily \xff", exitRefused, "stdin:1: is not a text in UTF-8"},
		{[]string{"kubernetes", "-"}, "a: [", exitRefused, "stdin:1: "},
		{[]string{"kubernetes", "-"}, "a: &a [1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]", exitRefused, "aliases"},
		{[]string{"eventbridge", "-"}, "Name: x", exitRefused, "is not the JSON"},
	} {
		p := &testCLI{t: t, stdin: strings.NewReader(tt.stdin)}
		if r := p.run(append([]string{"import"}, tt.args...)...); r.code != tt.code || r.out != "" || !strings.Contains(r.err, tt.want) {
			t.Errorf("%q: %+v, want %q", tt.args, r, tt.want)
		}
	}
	p := &testCLI{t: t, stdin: strings.NewReader("# nothing\n")}
	if r := p.ok("import", "crontab", "-", "--timezone", "UTC"); r.out != "# Imported from stdin. Apply it with: belfry job apply -f FILE\n# There is nothing to import.\njobs: []\n" {
		t.Errorf("an empty crontab became\n%s", r.out)
	}
}
