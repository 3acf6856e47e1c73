package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// serving runs `belfry serve` in this process and gives its greeting.
func serving(t *testing.T, args ...string) (greeting []string) {
	t.Helper()
	out, in := io.Pipe()
	cmd := rootCommand()
	cmd.SetArgs(append([]string{"serve", "--listen", "127.0.0.1:0", "--data", t.TempDir()}, args...))
	cmd.SetOut(in)
	cmd.SetErr(io.Discard)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- cmd.ExecuteContext(ctx)
		in.Close()
	}()
	lines := bufio.NewScanner(out)
	for len(greeting) < 5 && lines.Scan() {
		greeting = append(greeting, lines.Text())
	}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve ended with %v", err)
		}
	})
	if len(greeting) < 5 {
		t.Fatalf("the greeting is %q", greeting)
	}
	return greeting
}

func TestServeGreetingHasAWorkingCommand(t *testing.T) {
	greeting := serving(t)
	parts := regexp.MustCompile(`curl (\S+) -H 'Content-Type: application/json' -d '(.*)'$`).FindStringSubmatch(greeting[4])
	if parts == nil {
		t.Fatalf("the last line is %q", greeting[4])
	}
	answer, err := http.Post(parts[1], "application/json", strings.NewReader(parts[2]))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusCreated || !strings.Contains(string(body), `"next_run_at":"20`) {
		t.Errorf("got %s: %s", answer.Status, body)
	}
	for i, word := range []string{"is running", "http://127.0.0.1:", "SQLite", "api, scheduler, worker"} {
		if !strings.Contains(greeting[i], word) {
			t.Errorf("line %d is %q and does not say %q", i+1, greeting[i], word)
		}
	}
}

func TestServeFlagErrors(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		env  string
		want string
	}{
		{"an unknown flag", []string{"--shard", "3"}, "", "unknown flag: --shard"},
		{"a variable of the wrong type", nil, "BELFRY_CONCURRENCY=many", `BELFRY_CONCURRENCY: "many" is not a whole number`},
		{"an argument too many", []string{"now"}, "", "unknown command"},
		{"a port without a host", []string{"--listen", "7070"}, "", "--listen: \"7070\" is not host:port"},
		{"every interface without keys", []string{"--listen", ":0"}, "", "--api-key-file"},
		{"another machine's address without keys", []string{"--listen", "192.0.2.1:7070"}, "", "--api-key-file"},
		{"an unknown role", []string{"--roles", "api,boss"}, "", `"boss" is not a role`},
		{"split roles on SQLite", []string{"--roles", "api"}, "", "--database-url"},
		{"no slots", []string{"--concurrency", "0"}, "", "--concurrency"},
		{"a bad network", []string{"--allow-target", "10.0.0.0/99"}, "", "--allow-target"},
		{"a window in the future", []string{"--catch-up-window", "-1s"}, "", "--catch-up-window"},
		{"ageing in no time", []string{"--priority-ageing", "1ms"}, "", "--priority-ageing"},
		{"less than no catch-up", nil, "BELFRY_LARGE_CATCH_UP=-1", "--large-catch-up"},
		{"a bad log format", []string{"--log-format", "xml"}, "", "--log-format"},
		{"a key file that is not there", []string{"--api-key-file", "nowhere"}, "", "nowhere"},
		{"a database that is not there", []string{"--database-wait", "0", "--database-url", "postgres://127.0.0.1:1/x?sslmode=disable"}, "", "cannot connect to PostgreSQL at 127.0.0.1:1"},
		{"a wait for less than no time", []string{"--database-wait", "-1s"}, "", "--database-wait"},
		{"several at once", []string{"--concurrency", "0", "--roles", "boss"}, "", "--concurrency"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if name, value, ok := strings.Cut(tt.env, "="); ok {
				t.Setenv(name, value)
			}
			cmd := rootCommand()
			cmd.SetArgs(append([]string{"serve", "--data", t.TempDir()}, tt.args...))
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			err := cmd.ExecuteContext(ctx)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want something with %q", err, tt.want)
			}
		})
	}
}

func TestServeWithoutItsDatabase(t *testing.T) {
	p := &testCLI{t: t}
	r := p.run("serve", "--listen", "127.0.0.1:0", "--database-wait", "0", "--database-url", "postgres://ann:secret@127.0.0.1:1/jobs")
	want := `belfry: serve: --database-url: cannot connect to PostgreSQL at 127.0.0.1:1, database "jobs", user "ann": connection refused` + "\n"
	if r.code != exitUnreachable || r.err != want || r.out != "" {
		t.Errorf("exit code %d, output %q\ngot  %q\nwant %q", r.code, r.out, r.err, want)
	}
}

// A node that is stopped while it waits for its database ends like one that runs.
func TestServeIsStoppedWhileItWaitsForItsDatabase(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	args := []string{"serve", "--listen", "127.0.0.1:0", "--database-wait", "1h", "--database-url", "postgres://127.0.0.1:1/jobs"}
	var log strings.Builder
	code := execute(ctx, args, strings.NewReader(""), io.Discard, writerFunc(func(p []byte) (int, error) {
		cancel()
		return log.Write(p)
	}))
	if code != exitOK || strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "waiting for the database") {
		t.Errorf("exit code %d, the log is\n%s", code, &log)
	}
}

// writerFunc is a writer that is a function.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestUnknownCommandSuggestsTheNearest(t *testing.T) {
	cmd := rootCommand()
	cmd.SetArgs([]string{"serv"})
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	err := cmd.ExecuteContext(t.Context())
	if err == nil || !strings.Contains(err.Error(), `unknown command "serv"`) || !strings.Contains(err.Error(), "serve") {
		t.Errorf("got %v", err)
	}
}

func TestServeFlagsFromTheEnvironment(t *testing.T) {
	t.Setenv("BELFRY_CONCURRENCY", "7")
	t.Setenv("BELFRY_SHARDS", "3")
	t.Setenv("BELFRY_KEY", "a client's, which is no mistake")
	greeting := strings.Join(serving(t, "--shards", "5"), "\n")
	if !strings.Contains(greeting, "7 runs at once") || !strings.Contains(greeting, "5 shards") {
		t.Errorf("the variable for concurrency and the flag for shards should count:\n%s", greeting)
	}
}

// Kubernetes sets variables for each Service in every pod. A mistake of somebody is worth a
// warning, but no reason to stay down.
func TestUnknownVariables(t *testing.T) {
	for pair, want := range map[string]string{
		"BELFRY_SERVICE_HOST=10.96.0.17":             "",
		"BELFRY_SERVICE_PORT=7070":                   "",
		"BELFRY_SERVICE_PORT_HTTP=7070":              "",
		"BELFRY_PORT=tcp://10.96.0.17:7070":          "",
		"BELFRY_PORT_7070_TCP=tcp://10.96.0.17:7070": "",
		"BELFRY_PORT_7070_TCP_PROTO=tcp":             "",
		"BELFRY_PORT_7070_TCP_PORT=7070":             "",
		"BELFRY_PORT_7070_TCP_ADDR=fd00::17":         "",
		"BELFRY_API_SERVICE_HOST=10.96.0.17":         "",
		"BELFRY_API_PORT_53_UDP=udp://10.96.0.17:53": "",
		"BELFRY_KEY=of a client":                     "",
		"OTHER_LISTENN=x":                            "",
		"BELFRY_LISTENN=:7070":                       "BELFRY_LISTENN is unknown and ignored; did you mean BELFRY_LISTEN?",
		"BELFRY_API_KEYFILE=keys":                    "did you mean BELFRY_API_KEY_FILE?",
		"BELFRY_PORT=7070":                           "BELFRY_PORT is unknown and ignored",
		"BELFRY_SERVICE_HOST=belfry.example":         "BELFRY_SERVICE_HOST is unknown and ignored",
		"BELFRY_COLOUR=blue":                         "belfry serve --help",
	} {
		warnings, err := setFromEnvironment(serveCommand(), []string{pair})
		got := strings.Join(warnings, "\n")
		if err != nil || (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, error %v, want %q", pair, got, err, want)
		}
	}
}

func TestServeStartsDespiteUnknownVariables(t *testing.T) {
	t.Setenv("BELFRY_PORT", "tcp://10.96.0.17:7070")
	t.Setenv("BELFRY_LISTENN", ":7070")
	serving(t)
}

func TestServeHelpNamesVariables(t *testing.T) {
	var serve *cobra.Command
	for _, c := range rootCommand().Commands() {
		if c.Name() == "serve" {
			serve = c
		}
	}
	usage := serve.Flags().FlagUsages()
	for _, name := range []string{"listen", "data", "database-url", "database-wait", "roles", "shards", "concurrency", "drain-timeout", "log-format", "api-key-file", "rate-limit", "allow-target", "catch-up-window", "priority-ageing", "large-catch-up"} {
		if !strings.Contains(usage, "--"+name) || !strings.Contains(usage, "["+environmentName(name)+"]") {
			t.Errorf("--%s or its variable is missing from the help", name)
		}
	}
}
