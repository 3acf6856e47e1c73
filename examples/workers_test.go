//go:build unix

package examples

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestGoWorker(t *testing.T) {
	t.Parallel()
	s := serve(t)
	worker := start(t, s.env(), "worker-go")
	worker.says(`serving \[send-report\]`)
	s.create(job{"name": "weekly-report", "schedule": "0 9 * * MON", "handler": "send-report", "max_retries": 0,
		"payload": job{"report": "weekly", "to": []string{"ops@example.com", "boss@example.com"}}})

	run := s.trigger("weekly-report", nil)
	if run.Status != "succeeded" || run.Output != "sent to 2" {
		t.Errorf("the run is %+v", run)
	}
	if log := s.log(run.ID); log != "sending to 2 people\n" {
		t.Errorf("the log is %q", log)
	}
	worker.says(`attempt 1: weekly report of \d{4}-\d\d-\d\d to ops@example.com, boss@example.com, once for ` + run.Key)
	for _, tt := range []struct {
		name    string
		payload any
		reason  string
		want    []string
	}{
		{"a field of the wrong type", job{"report": 7}, "out_of_retries", []string{"report", "string"}},
		{"nobody to send to", job{"report": "weekly"}, "permanent", []string{"nobody to send the weekly report to"}},
	} {
		run := s.trigger("weekly-report", tt.payload)
		for _, word := range tt.want {
			if run.Status != "dead" || run.Reason != tt.reason || !strings.Contains(run.Error, word) {
				t.Errorf("%s: the run is %s (%s) with the error %q, want %q in it", tt.name, run.Status, run.Reason, run.Error, word)
			}
		}
	}
	embargo := time.Now().Add(time.Second)
	run = s.trigger("weekly-report", job{"report": "secret", "to": []string{"ops@example.com"}, "not_before": embargo})
	if run.Status != "succeeded" || run.Attempt != 2 || time.Now().Before(embargo) {
		t.Errorf("the run that had to wait is %+v", run)
	}
	if code := worker.end(syscall.SIGTERM); code != 0 {
		t.Errorf("after SIGTERM it ended with %d", code)
	}
}

// The program in docs/workers.md is complete, and the module and the version of Go are
// those of this module.
func TestDocumentedGoWorkerCompiles(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/workers.md")
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	facts := regexp.MustCompile(`(?s)^module (\S+)\n.*?\ngo (\d+\.\d+)`).FindSubmatch(module)
	if want := fmt.Sprintf("module `%s`, which needs Go %s or newer", facts[1], facts[2]); !strings.Contains(string(doc), want) {
		t.Errorf("docs/workers.md does not have %q", want)
	}
	program := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindSubmatch(doc)
	if program == nil {
		t.Fatal("docs/workers.md has no complete program in Go")
	}
	dir := t.TempDir()
	source, overlay := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json")
	place, err := filepath.Abs("worker-go/main.go") // which it replaces
	if err != nil {
		t.Fatal(err)
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{place: source}})
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{source: program[1], overlay: replace} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "go", "vet", "-overlay", overlay, "./worker-go").CombinedOutput(); err != nil {
		t.Errorf("go vet: %v\n%s", err, out)
	}
	if formatted, err := format.Source(program[1]); err != nil || !bytes.Equal(formatted, program[1]) {
		t.Errorf("the program is not formatted: %v", err)
	}
}

// A language is one in which there is an example of a worker, all with the same handlers.
type language struct {
	name  string
	start func(t *testing.T, s *server) *program
	error string // of a payload that the handler greet cannot use
}

var languages = []language{
	{"Python", startPython, "KeyError: 'who'"},
	{"TypeScript", startTypeScript, "TypeError: who is missing"},
}

func startPython(t *testing.T, s *server) *program {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skipf("THE PYTHON WORKER IS NOT TESTED: %v", err)
	}
	env := append(s.env(), "PYTHONPATH=../sdk/python", "PYTHONDONTWRITEBYTECODE=1")
	return start(t, env, python, "-S", "worker-python/worker.py") // -S: nothing but the standard library and the SDK
}

func startTypeScript(t *testing.T, s *server) *program {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skipf("THE TYPESCRIPT WORKER IS NOT TESTED: %v", err)
	}
	sdk, err := filepath.Abs("../sdk/typescript")
	if err != nil {
		t.Fatal(err)
	}
	if !exists(sdk+"/dist/index.js") || !exists(sdk+"/node_modules/typescript") {
		t.Skip("THE TYPESCRIPT WORKER IS NOT TESTED: make sdks builds what it needs")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("worker-typescript")); err != nil {
		t.Fatal(err)
	}
	os.RemoveAll(dir + "/node_modules")
	for name, target := range map[string]string{"@belfry/sdk": sdk, "@types": sdk + "/node_modules/@types"} {
		link := filepath.Join(dir, "node_modules", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o700), os.Symlink(target, link)); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), node, sdk+"/node_modules/typescript/bin/tsc", "-p", dir).CombinedOutput(); err != nil {
		t.Fatalf("tsc: %v\n%s", err, out)
	}
	return start(t, s.env(), node, dir+"/worker.js")
}

func TestWorkerExamples(t *testing.T) {
	t.Parallel()
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			testWorkerExample(t, l)
		})
	}
}

func testWorkerExample(t *testing.T, l language) {
	s := serve(t)
	worker := l.start(t, s)
	worker.says(`serving greet`)
	s.create(job{"name": "greet", "schedule": "*/15 8-18 * * MON-FRI", "max_retries": 1, "retry_base_seconds": 0.1,
		"payload": job{"who": "world"}})

	run := s.trigger("greet", nil)
	if want := "hello, world; key " + run.Key; run.Status != "succeeded" || run.Output != want || run.Key == "" {
		t.Errorf("the run is %+v, want the output %q", run, want)
	}
	failed := s.trigger("greet", job{"whom": "nobody"})
	if failed.Status != "dead" || failed.Attempt != 2 || failed.Error != l.error {
		t.Errorf("the run that has to fail is %+v", failed)
	}
	permanent := s.trigger("greet", job{"who": ""})
	if permanent.Status != "dead" || permanent.Attempt != 1 || permanent.Reason != "permanent" || permanent.Error != "nobody to greet" {
		t.Errorf("the run with a permanent failure is %+v", permanent)
	}
	early := time.Now().Add(time.Second)
	waited := s.trigger("greet", job{"who": "world", "not_before": float64(early.UnixMilli()) / 1000})
	if waited.Status != "succeeded" || waited.Attempt != 2 || time.Now().Before(early.Truncate(time.Millisecond)) {
		t.Errorf("the run that had to wait is %+v", waited)
	}
	since := time.Now()
	if code := worker.end(syscall.SIGTERM); code != 0 {
		t.Errorf("after SIGTERM it ended with %d", code)
	}
	t.Logf("it ended %v after SIGTERM", time.Since(since))

	l.start(t, s)
	if run := s.trigger("greet", job{"who": "again"}); run.Status != "succeeded" || !strings.Contains(run.Output, "hello, again") {
		t.Errorf("the run after a restart is %+v", run)
	}
}

func TestWorkerExampleCancellation(t *testing.T) {
	t.Parallel()
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			testWorkerExampleCancellation(t, l)
		})
	}
}

func testWorkerExampleCancellation(t *testing.T, l language) {
	s := serve(t)
	worker := l.start(t, s)
	s.create(job{"name": "crawl", "schedule": "@monthly", "timeout_seconds": 3600, "payload": job{"pages": 3000}})

	running := s.startTrigger("crawl", nil)
	worker.says(running + ` crawls page 0`)
	eventually(t, "the log of the running run is there", func() bool { return strings.HasPrefix(s.log(running), "page 0\n") })
	since := time.Now()
	s.request("POST", "/runs/"+running+"/cancel", nil, nil)
	if run := s.settled(running); run.Status != "cancelled" || run.Attempt != 1 || run.Error != "the run was cancelled" {
		t.Errorf("the run that was cancelled is %+v", run)
	}
	t.Logf("it ended %v after it was cancelled", time.Since(since))
	if log := s.log(running); !strings.HasPrefix(log, "page 0\n") {
		t.Errorf("the log is %q", log)
	}

	// The handler requests an hour, and the policy of the job is seconds.
	busy := s.startTrigger("crawl", job{"pages": 2, "busy": 0})
	run := s.until(busy, "to be tried again", func(run runStatus) bool { return run.Status == "retry" })
	if wait := time.Until(run.ReadyAt); wait < 50*time.Minute || wait > time.Hour || run.last() != "the site is busy" {
		t.Errorf("the run waits for %v: %+v", wait, run)
	}
	s.request("POST", "/runs/"+busy+"/cancel", nil, nil)
	if run := s.settled(busy); run.Status != "cancelled" {
		t.Errorf("the run that waited is %+v", run)
	}
}
