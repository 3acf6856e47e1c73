package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

// TestMain makes the test binary the program that runs the stages of a command. It must be
// where other users may execute it.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Subcommand {
		os.Exit(Main(os.Args[2:]))
	}
	const copied = "BELFRY_TEST_COPIED"
	if os.Getenv(copied) != "" || os.Geteuid() != 0 {
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("/tmp", "belfry-test-")
	path := filepath.Join(dir, "command.test")
	content, readErr := os.ReadFile("/proc/self/exe")
	if err = errors.Join(err, readErr, os.Chmod(dir, 0o755), os.WriteFile(path, content, 0o755)); err != nil {
		panic(err)
	}
	cmd := exec.Command(path, os.Args[1:]...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = append(os.Environ(), copied+"=1"), os.Stdin, os.Stdout, os.Stderr
	_ = cmd.Run()
	_ = os.RemoveAll(dir)
	os.Exit(cmd.ProcessState.ExitCode())
}

// output is the log of an attempt.
type output struct {
	mu    sync.Mutex
	text  bytes.Buffer
	total int64
	wrote chan struct{}
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.total += int64(len(b))
	if o.text.Len() < 1<<16 {
		o.text.Write(b)
	}
	select {
	case o.wrote <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// await waits until the command has written a text.
func (o *output) await(t *testing.T, text string) {
	t.Helper()
	for !strings.Contains(o.String(), text) {
		select {
		case <-o.wrote:
		case <-time.After(time.Minute):
			t.Fatalf("the command did not write %q but %q", text, o)
		}
	}
}

// attempt is a run of a command in a test.
type attempt struct {
	run    *belfry.Run
	out    *output
	report belfry.CommandReport
	err    error
}

func newAttempt(payload any) *attempt {
	at := time.Date(2027, 3, 1, 9, 0, 0, 0, time.UTC)
	a := &attempt{out: &output{wrote: make(chan struct{}, 1)}}
	a.run = &belfry.Run{ID: belfry.NewID(at), JobID: belfry.NewID(at), JobName: "nightly", Namespace: "default", Attempt: 2, ScheduledAt: at, Payload: belfry.MustJSON(payload), LogTo: a.out}
	return a
}

func (a *attempt) do(t *testing.T, ctx context.Context, c *Command) *attempt {
	t.Helper()
	a.err = c.Handle(ctx, a.run)
	if len(a.run.Report.Output) > 0 {
		if err := json.Unmarshal(a.run.Report.Output, &a.report); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// parse makes the command test of a file.
func parse(t *testing.T, text string) *Command {
	t.Helper()
	f, err := Parse("commands.yaml", []byte("commands:\n  test:\n    "+strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ")+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	return f.Commands[0]
}

// script makes a command that runs a shell script.
func script(t *testing.T, text, more string) *Command {
	t.Helper()
	return parse(t, fmt.Sprintf("argv: [/bin/sh, -c, %q]\n%s", text, more))
}

var test = map[string]any{"command": "test"}

func TestACommandRunsInAPrivateDirectoryWithACleanEnvironment(t *testing.T) {
	t.Setenv("SECRET_OF_THE_WORKER", "hidden")
	c := script(t, `pwd; env | sort; echo "args: $*"; cat; umask; ls /proc/self/fd; echo to-stderr >&2`, `
environment: {LANG: C.UTF-8}
job_environment: [CUSTOMER]
arguments: ["--since=\\d{4}"]
stdin: job`)
	c.Argv = append(c.Argv, "sh")
	a := newAttempt(map[string]any{"command": "test", "args": []string{"--since=2027"}, "env": map[string]string{"CUSTOMER": "7"}, "stdin": "given\n"}).do(t, t.Context(), c)
	if a.err != nil || a.report.ExitStatus != 0 {
		t.Fatal(a.err, a.report, a.out)
	}
	text := a.out.String()
	for _, want := range []string{"LANG=C.UTF-8", "CUSTOMER=7", "args: --since=2027", "given\n", "0022\n", "BELFRY_ATTEMPT=2",
		"BELFRY_SCHEDULED_AT=2027-03-01T09:00:00Z", "BELFRY_IDEMPOTENCY_KEY=" + a.run.Key(), "to-stderr"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "hidden") || strings.Contains(text, "GOMAXPROCS") {
		t.Errorf("the environment of the worker is visible:\n%s", text)
	}
	if strings.Contains(text, "\n4\n") { // ls itself has 3
		t.Errorf("the command has files of the worker:\n%s", text)
	}
	private := strings.SplitN(text, "\n", 2)[0]
	if _, err := os.Stat(private); !strings.HasPrefix(filepath.Base(private), "belfry-command-") || !os.IsNotExist(err) {
		t.Errorf("the directory %s was not removed: %v", private, err)
	}
	for _, controller := range []string{"pids", "memory"} {
		if dir := filepath.Join(cgroupRoot, controller, ownCgroup(controller), filepath.Base(private)); ownCgroup(controller) != "" {
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("%s is left", dir)
			}
		}
	}
	for _, want := range []string{"session", "environment", "directory", "rlimits", "no_new_privs", "seccomp"} {
		if !strings.Contains(strings.Join(a.report.Layers, ","), want) {
			t.Errorf("layer %s is missing in %q", want, a.report.Layers)
		}
	}
	t.Log(a.report)
}

func TestTheExampleRuns(t *testing.T) {
	content, err := os.ReadFile("../../examples/commands.yaml")
	if err != nil {
		t.Fatal(err)
	}
	f, err := Parse("commands.yaml", content)
	if err != nil {
		t.Fatal(err)
	}
	payloads := map[string]map[string]any{
		"report": {"args": []string{"--full", "--since=2027-03-01"}, "env": map[string]string{"CUSTOMER": "7"}, "stdin": "a\nb\n"},
	}
	for _, c := range f.Commands {
		payload := payloads[c.Name]
		if payload == nil {
			payload = map[string]any{}
		}
		payload["command"] = c.Name
		if a := newAttempt(payload).do(t, t.Context(), c); a.err != nil || c.Name == "report" && a.out.String() != "report for 7: --full --since=2027-03-01\n2\n" {
			t.Errorf("%s: %v, output %s", c.Name, a.err, a.out)
		}
	}
}
