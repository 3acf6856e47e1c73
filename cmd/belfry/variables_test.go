package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestExpandVariables(t *testing.T) {
	environment := map[string]string{"A": "one", "B_2": "${A}", "EMPTY": "", "YAML": "x\"\n- y: {"}
	lookup := func(name string) (string, bool) {
		value, ok := environment[name]
		return value, ok
	}
	for _, tt := range []struct{ text, want, wrong string }{
		{"no variable, $A and $(A)", "no variable, $A and $(A)", ""},
		{"${A}", "one", ""},
		{"a${A}b${A}c", "aonebonec", ""},
		{"${B_2}", "${A}", ""},
		{"[${EMPTY}]", "[]", ""},
		{"${YAML}", "x\"\n- y: {", ""},
		{"$${A}", "${A}", ""},
		{"$$${A} $$", "$${A} $$", ""},
		{"$${", "${", ""},
		{"${NONE}", "", "the environment variable NONE is not set; for the text ${NONE} itself write $${NONE}"},
		{"${A:-b}", "A:-b}", "after ${ there must be the name of an environment variable and }, as in ${TOKEN}; write $${ for the text ${ itself"},
		{"${}", "}", "after ${ there must be"},
		{"${1}", "1}", "after ${ there must be"},
	} {
		got, wrong := expand(tt.text, lookup)
		if got != tt.want || (len(wrong) == 0) != (tt.wrong == "") || len(wrong) > 0 && !strings.HasPrefix(wrong[0], tt.wrong) {
			t.Errorf("%q: got %q and %q, want %q and %q", tt.text, got, wrong, tt.want, tt.wrong)
		}
	}
}

const jobWithVariables = `name: report
schedule: "@daily"
max_retries: ${RETRIES}
tags: [z, "${TEAM}"]
payload:
  url: https://example.com/${TEAM}
  headers: {X-Trace: "${TRACE}", Accept: text/csv}
  body: {digits: "${DIGITS}", text: "$${TOKEN}", list: ["${TOKEN}"]}
`

func TestJobApplySubstitutesVariables(t *testing.T) {
	p := withServer(t)
	file := p.file("jobs.yaml", jobWithVariables)
	t.Setenv("TEAM", "billing")
	t.Setenv("RETRIES", "7")
	t.Setenv("DIGITS", "0123")
	r := p.run("job", "apply", "-f", file, "--env")
	if r.code != exitRefused || strings.Count(r.err, "\n") != 2 || !strings.Contains(r.err, "jobs.yaml:7: payload.headers.X-Trace: the environment variable TRACE is not set") ||
		!strings.Contains(r.err, "jobs.yaml:8: payload.body.list[0]: the environment variable TOKEN is not set") {
		t.Errorf("a variable that is not set: %+v", r)
	}

	const token = "q\"w\n- name: evil"
	t.Setenv("TOKEN", token)
	t.Setenv("TRACE", "abcdef")
	for _, format := range []string{"table", "json"} {
		r = p.ok("job", "apply", "-f", file, "--env", "--dry-run", "-o", format)
		if regexp.MustCompile("evil|billing|0123|abcdef").MatchString(r.out+r.err) || !strings.Contains(r.out, "text/csv") {
			t.Errorf("the dry run printed a value of a variable:\n%s%s", r.out, r.err)
		}
	}
	if r = p.ok("job", "apply", "-f", file, "--env"); r.out != "created    report\n" || r.err != "1 created.\n" {
		t.Errorf("it printed %+v", r)
	}
	job := p.job("report")
	quoted, _ := json.Marshal(token)
	want := `{"url":"https://example.com/billing","headers":{"X-Trace":"abcdef","Accept":"text/csv"},"body":{"digits":"0123","text":"${TOKEN}","list":[` + string(quoted) + `]}}`
	if got := compactJSON(job.Payload); got != compactJSON(json.RawMessage(want)) {
		t.Errorf("the payload is %s, want %s", got, want)
	}
	if job.MaxRetries.Value() != 7 || strings.Join(job.Tags, " ") != "billing z" {
		t.Errorf("the job is %+v", job)
	}

	t.Setenv("TOKEN", "another")
	t.Setenv("TEAM", "secrets")
	r = p.ok("job", "apply", "-f", file, "--env", "--dry-run")
	if regexp.MustCompile("evil|another|billing|secrets").MatchString(r.out) || !strings.Contains(r.out, `    ~ payload.url: "***" -> "***" (a secret)`) {
		t.Errorf("the dry run of a change printed\n%s", r.out)
	}

	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p.stdin = strings.NewReader(string(content))
	if r = p.ok("job", "apply", "-f", "-", "--env"); r.out != "updated    report   tags (a secret), payload (a secret)\n" {
		t.Errorf("from standard input it printed %+v", r)
	}
	asJSON := p.file("job.json", `{"name": "report", "schedule": "@daily", "max_retries": "${RETRIES}", "payload": {"url": "https://example.com/${TEAM}"}}`)
	p.ok("job", "apply", "-f", asJSON, "--env")
	if job := p.job("report"); compactJSON(job.Payload) != `{"url":"https://example.com/secrets"}` || job.MaxRetries.Value() != 7 {
		t.Errorf("from JSON the job is %+v", job)
	}
}

func TestVariablesAreNotedWithoutEnv(t *testing.T) {
	p := withServer(t)
	t.Setenv("TOKEN", "evil")
	file := p.file("jobs.yaml", "name: a\nschedule: '@daily'\npayload:\n  url: https://example.com\n  headers:\n    X-Api: a ${TOKEN} b\n")
	for _, command := range []string{"apply", "create"} {
		r := p.ok("job", command, "-f", file)
		if want := "jobs.yaml:6: payload.headers.X-Api: ${TOKEN} is not substituted; substitute environment variables with: belfry job apply --env\n"; !strings.Contains(r.err, want) || !strings.HasPrefix(r.err, "Note: ") {
			t.Errorf("job %s said %q, want %q", command, r.err, want)
		}
		if payload := p.job("a").Payload; !strings.Contains(string(payload), "a ${TOKEN} b") {
			t.Errorf("the payload is %s", payload)
		}
		p.ok("job", "delete", "a", "--yes")
	}
}
