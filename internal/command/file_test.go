package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

func TestAFileAndItsDefaults(t *testing.T) {
	f, err := Parse("commands.yaml", []byte(`
namespaces: [default, team-a]
commands:
  plain: {argv: [/bin/sh], sandbox: none}
  full:
    argv: [/bin/sh, -c, "echo"]
    directory: /tmp
    environment: {LANG: C.UTF-8}
    job_environment: [CUSTOMER]
    arguments: ["--full", '--since=\d{4}-\d{2}-\d{2}']
    max_arguments: 3
    stdin: {text: "yes\n"}
    limits: {cpu: 10m, memory: 512MiB, processes: 64, files: 300, file_size: 1GiB}
    sandbox: none
    write: [/tmp]
    read: [/etc]
    network: true
    exit: {retry: [75, 76], permanent: []}
`))
	if err != nil {
		t.Fatal(err)
	}
	plain, full := f.Commands[0], f.Commands[1]
	if len(f.Namespaces) != 2 || plain.Name != "plain" || plain.MaxArguments != 20 || plain.Limits.Processes != defaultProcesses || plain.Limits.Files != defaultFiles ||
		plain.Exit.Retry[0] != 75 || plain.Exit.Permanent[0] != 65 {
		t.Errorf("got %+v, %+v", f, plain)
	}
	if full.Stdin.Text != "yes\n" || time.Duration(full.Limits.CPU) != 10*time.Minute || full.Limits.Memory != 512<<20 || full.Limits.FileSize != 1<<30 ||
		len(full.Exit.Permanent) != 0 || !full.Network || full.MaxArguments != 3 {
		t.Errorf("got %+v", full)
	}
}

func TestErrorsOfAFile(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", "commands.yaml:1: must have the key commands"},
		{"commands:\n  a: {argv: [/bin/sh]}\n bad", "commands.yaml: line "},
		{"command:\n  a: {argv: [/bin/sh]}", `commands.yaml:2: command is unknown; did you mean "commands"?`},
		{"commands: 3", "commands.yaml:1: commands: must have from 1 to 200 names"},
		{"commands:\n  a/b: {argv: [/bin/sh]}", `commands.yaml:2: the name "a/b" must have 1 to 80 letters`},
		{"commands:\n  a:\n    argv: [/bin/sh]\n    timeout: 3", "commands.yaml:4: command a: timeout is unknown"},
		{"commands:\n  a:\n    user: root", "command a: argv is required"},
		{"commands:\n  a:\n    argv: [sh]", "commands.yaml:3: command a: argv[0] must be the absolute path of a program"},
		{"commands:\n  a:\n    argv:\n    - /nonexistent/x", "commands.yaml:4: command a: argv[0] /nonexistent/x is not a program on this machine"},
		{"commands:\n  a:\n    argv: [/bin/sleep, 5]", "commands.yaml:3: command a: argv[1] must be a string, not a number; quote it"},
		{"commands:\n  a:\n    argv: [/bin/sh]\n    arguments:\n    - x\n    - '('", "commands.yaml:6: command a: arguments[1] is not a regular expression"},
		{"commands:\n  a:\n    argv: [/bin/sh]\n    limits: {cpu: soon}", "commands.yaml:4: command a: limits.cpu must be a duration"},
		{"commands:\n  a:\n    argv: [/bin/sh]\n    limits:\n      memory: 5MB", "commands.yaml:5: command a: limits.memory must be a size such as"},
		{"commands:\n  a:\n    argv: [/bin/sh]\n    limits: {memory: 1MiB}", "limits.memory must be at least 32MiB"},
		{"commands:\n  a:\n    argv: [/bin/sh]\n    limits: {processes: 2}", "limits.processes must be from 8 to 100000"},
		{"commands:\n  a:\n    argv: [/bin/sh]\n    sandbox: tight", `commands.yaml:4: command a: sandbox must be "none", "basic" or "strict"`},
		{"commands:\n  a:\n    argv: [/bin/sh]\n    user: no-such-user", `user "no-such-user" does not exist`},
		{"commands:\n  a:\n    argv: [/bin/sh]\n    directory: /nonexistent", "commands.yaml:4: command a: directory must be"},
		{"commands:\n  a:\n    argv: [/bin/sh]\n    write: [/etc/passwd]", "write[0] must be"},
		{"commands:\n  a:\n    argv: [/bin/sh]\n    stdin: given", `stdin must be "job"`},
		{"commands:\n  a:\n    argv: [/bin/sh]\n    stdin: {text: a, file: b}", `stdin must be "job"`},
		{"commands:\n  a:\n    argv: [/bin/sh]\n    exit: {retry: [0]}", "exit.retry must be a list of numbers from 1 to 255"},
		{"commands:\n  a:\n    argv: [/bin/sh]\n    exit: {retry: [65]}", "exit has 65 in both lists"},
		{"commands:\n  a:\n    argv: [/bin/sh]\n    job_environment: [BELFRY_RUN_ID]", "job_environment[0] must be"},
		{"commands:\n  a:\n    argv: [/bin/sh]\n    environment: {A-B: x}", "environment.A-B is not the name"},
		{"commands:\n  a: {argv: [/bin/sh]}\n  a: {argv: [/bin/sh]}", "already defined at line 2"},
		{"namespaces: default\ncommands: {}", "namespaces must be an array"},
	} {
		f, err := Parse("commands.yaml", []byte(tt.text))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q:\n got %v, %+v\nwant %s", tt.text, err, f, tt.want)
		}
	}
}

func TestAFileThatOthersMayChangeIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "commands.yaml")
	if err := os.WriteFile(path, []byte("commands:\n  a: {argv: [/bin/sh], sandbox: none}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
		t.Errorf("got %v", err)
	}
}

// A worker refuses what its file does not allow, whatever a server sent.
func TestRefusals(t *testing.T) {
	f, err := Parse("commands.yaml", []byte(`
commands:
  backup:
    argv: [/bin/false]
    job_environment: [CUSTOMER]
    arguments: ["--full", '--since=\d+']
    max_arguments: 2
    sandbox: none
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ payload, field, words string }{
		{`{"command":"backup","args":["--full; rm -rf /"]}`, "payload.args[0]", "matches none of the patterns"},
		{`{"command":"backup","args":["--full\n"]}`, "payload.args[0]", "matches none"},
		{`{"command":"backup","args":["--full","--since=1","--full"]}`, "payload.args", "allows 2"},
		{`{"command":"backup","args":["--since=$(id)"]}`, "payload.args[0]", "matches none"},
		{`{"command":"backup","env":{"LD_PRELOAD":"/tmp/x"}}`, "payload.env.LD_PRELOAD", "job_environment"},
		{`{"command":"backup","stdin":"x"}`, "payload.stdin", "stdin of the command"},
		{`{"command":"restore"}`, "payload.command", `must be "backup"`},
		{`{"shell":"id"}`, "payload.command", `must be "backup"`},
		{`{"command":"backup","args":["\u0000"]}`, "payload.args[0]", "zero bytes"},
		{`[]`, "payload", "JSON object"},
		{``, "payload", "JSON object"},
	} {
		run := &belfry.Run{Payload: []byte(tt.payload)}
		err := f.Commands[0].Handle(t.Context(), run)
		var r belfry.Result
		if r.ApplyError(err); err == nil || !r.Permanent || !strings.Contains(err.Error(), tt.field+": ") && !strings.Contains(err.Error(), tt.field+" ") || !strings.Contains(err.Error(), tt.words) {
			t.Errorf("%s: got %v", tt.payload, err)
		}
	}
	if err := Shell().Handle(t.Context(), &belfry.Run{Payload: []byte(`{"command":"backup"}`)}); err == nil || !strings.Contains(err.Error(), "not known to this worker") {
		t.Errorf("the shell runs commands: %v", err)
	}
}
