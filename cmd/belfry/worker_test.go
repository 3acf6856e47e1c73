package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWorkersThatDoNotStart(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	valid := write("valid.yaml", "commands:\n  a: {argv: [/bin/sh], sandbox: none}\n")
	for _, tt := range []struct {
		args string
		want string
	}{
		{"", "--commands is required"},
		{"--commands /nonexistent/commands.yaml", "no such file"},
		{"--commands " + write("wrong.yaml", "commands:\n  a:\n    argv: [sh]\n"), "wrong.yaml:3: command a: argv[0] must be the absolute path"},
		{"--commands " + valid + " --namespace other", `do not have "other"`},
		{"--commands " + valid + " --queue a/b", "--queue: must have"},
		{"--commands " + valid + " --concurrency 0", "--concurrency: must be from 1"},
		{"--commands " + valid + " --server ftp://x", "does not start with http"},
	} {
		var out, errOut bytes.Buffer
		code := execute(t.Context(), append([]string{"worker"}, strings.Fields(tt.args)...), strings.NewReader(""), &out, &errOut)
		if code == exitOK || !strings.Contains(errOut.String(), tt.want) {
			t.Errorf("worker %s: code %d, %s%s", tt.args, code, &out, &errOut)
		}
	}
}
