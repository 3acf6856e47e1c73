package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	stdlog "log"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/store/postgres"
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
	for lines.Scan() {
		if greeting = append(greeting, lines.Text()); strings.HasPrefix(lines.Text(), "  Try") {
			break
		}
	}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve ended with %v", err)
		}
	})
	if len(greeting) < 4 {
		t.Fatalf("the greeting is %q", greeting)
	}
	return greeting
}

// runGreeting runs the commands of a greeting as they are printed.
func runGreeting(t *testing.T, greeting []string) string {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	script := "set -e\n"
	for _, line := range greeting {
		if label, command, _ := strings.Cut(strings.TrimSpace(line), " "); label == "Key" || label == "Try" {
			script += strings.TrimSpace(command) + "\n"
		}
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(script, "curl ", "curl -sSf ")).CombinedOutput()
	if err != nil {
		t.Fatalf("%s%v: %s", script, err, out)
	}
	return string(out)
}

// The command of the greeting works where it is printed: it creates a job that succeeds,
// or, if jobs may not call the server itself, does something else.
func TestServeGreetingHasAWorkingCommand(t *testing.T) {
	const key = "9f8Kq27ZtR4mWx8LbVn3JcYd6HsPeuTA"
	keys := writeFile(t, filepath.Join(t.TempDir(), "it's the keys"), "# people\n\nann: "+key+"\n")
	for _, tt := range []struct {
		name     string
		database bool
		args     []string
		creates  bool
		says     string
	}{
		{"on SQLite", false, nil, true, "SQLite"},
		{"on SQLite with keys", false, []string{"--api-key-file", keys}, false, "--allow-target 127.0.0.1"},
		{"on SQLite with keys and the target", false, []string{"--api-key-file", keys, "--allow-target", "127.0.0.1"}, true, "export BELFRY_KEY="},
		{"on PostgreSQL", true, nil, false, "--allow-target 127.0.0.1"},
		{"on PostgreSQL with keys on all interfaces", true, []string{"--api-key-file", keys, "--listen", ":0", "--insecure-plain-http"}, false, "PostgreSQL, 60 shards"},
		{"on PostgreSQL with TLS on all interfaces", true, []string{"--api-key-file", keys, "--listen", ":0", "--tls-auto"}, false, "SHA256:"},
		{"on SQLite with TLS", false, []string{"--tls-auto"}, false, "SHA256:"},
		{"on PostgreSQL with keys and the target", true, []string{"--api-key-file", keys, "--allow-target", "127.0.0.0/8"}, true, "PostgreSQL, 60 shards"},
		{"on PostgreSQL without the API", true, []string{"--roles", "scheduler,worker"}, false, "scheduler, worker"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.database {
				tt.args = append(tt.args, "--database-url", pgtest.Database(t, postgres.Migrate))
			}
			greeting := serving(t, tt.args...)
			text := strings.Join(greeting, "\n")
			if !strings.Contains(text, "is running") || !regexp.MustCompile(`https?://127.0.0.1:`).MatchString(text) || !strings.Contains(text, tt.says) {
				t.Errorf("the greeting does not say %q:\n%s", tt.says, text)
			}
			runGreeting(t, greeting)
			answer := runGreeting(t, greeting) // also when it was tried before
			if !tt.creates {
				return
			}
			var job belfry.Job
			if err := json.Unmarshal([]byte(answer), &job); err != nil || job.NextRunAt == nil || len(job.Warnings) != 0 {
				t.Fatalf("got %s (%v)", answer, err)
			}
			t.Setenv("BELFRY_KEY", key)
			p := &testCLI{t: t, server: serverOf(greeting)}
			p.ok("job", "trigger", "hello", "--wait")
		})
	}
}

// The commands of the README start a cluster: nodes that other machines can reach under
// their names, with the same jobs.
func TestClusterOfTheREADME(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "## A cluster")
	script := regexp.MustCompile("(?s)```sh\n(.*?)\nbelfry serve (.*?)\n```").FindStringSubmatch(section)
	if script == nil {
		t.Fatalf("the section is %s", section)
	}
	t.Chdir(t.TempDir())
	if out, err := exec.CommandContext(t.Context(), "sh", "-ec", script[1]).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", script[1], err, out)
	}
	if !strings.Contains(script[1], "export BELFRY_DATABASE_URL=postgres://belfry:PASSWORD@db/belfry") {
		t.Errorf("the database is missing from\n%s", script[1])
	}
	t.Setenv("BELFRY_DATABASE_URL", pgtest.Database(t, postgres.Migrate))
	args := strings.Fields(strings.ReplaceAll(script[2], " :7070 ", " :0 ")) // both run on this machine
	const autoCertificate = "belfry-data/tls-cert.pem"
	args = append(args, "--data", filepath.Dir(autoCertificate)) // the default
	first, second := withServer(t, args...), withServer(t, args...)
	keys, err := os.ReadFile("keys")
	if err != nil {
		t.Fatal(err)
	}
	_, key, _ := strings.Cut(strings.TrimSpace(string(keys)), ":")
	t.Setenv("BELFRY_KEY", key)
	t.Setenv("BELFRY_TLS_CA", autoCertificate)
	if r := first.ok("job", "create", "--name", "hello", "--schedule", "@daily", "--url", "http://10.1.2.3/"); strings.Contains(r.err, "Warning") {
		t.Errorf("the network is not allowed: %s", r.err)
	}
	if second.job("hello").Name != "hello" {
		t.Error("the other node does not have the job")
	}
	for _, p := range []*testCLI{first, second} {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", p.server+"/api/v1/jobs", nil)
		r.Host = "node3:7070"
		r.Header.Set("Authorization", "Bearer "+key)
		answer, err := trusting(t, autoCertificate).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("under the name of a node: %s", answer.Status)
		}
	}
}

// trusting is an HTTP client that trusts the certificates of a file.
func trusting(t *testing.T, file string) *http.Client {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// The first job of the README warns where it cannot run, and says what to do.
func TestTargetsThatAreNotAllowedAreWarnedOf(t *testing.T) {
	const key = "9f8Kq27ZtR4mWx8LbVn3JcYd6HsPeuTA"
	p := withServer(t, "--api-key-file", writeFile(t, filepath.Join(t.TempDir(), "keys"), key))
	t.Setenv("BELFRY_KEY", key)
	file := p.file("jobs.yaml", "name: applied\nschedule: '@daily'\npayload: {url: 'http://127.0.0.1/'}\n")
	const flag = "--allow-target 127.0.0.1"
	for _, tt := range []struct {
		args []string
		warn string
	}{
		{[]string{"job", "create", "--name", "hello", "--schedule", "* * * * *", "--url", "http://localhost:7070/livez", "--method", "GET"}, "Warning: hello: payload.url: "},
		{[]string{"job", "show", "hello"}, "Warning: hello: "},
		{[]string{"job", "create", "-f", p.file("job.json", `{"name": "from-file", "schedule": "@daily", "payload": {"url": "http://127.0.0.1/"}}`), "-o", "json"}, "Warning: from-file: "},
		{[]string{"job", "apply", "-f", file, "--dry-run"}, "Warning: applied: "},
		{[]string{"job", "apply", "-f", file}, "Warning: applied: "},
		{[]string{"job", "edit", "hello", "--set", "payload.url=https://example.com"}, ""},
		{[]string{"job", "edit", "hello", "--set", "payload.url=http://127.0.0.1"}, "Warning: hello: "},
		{[]string{"job", "rollback", "hello", "1"}, "Warning: hello: "},
	} {
		r := p.ok(tt.args...)
		if n := strings.Count(r.err, "Warning: "); tt.warn == "" && n != 0 || tt.warn != "" && (n != 1 || !strings.Contains(r.err, tt.warn) || !strings.Contains(r.err, flag)) {
			t.Errorf("%q: got %q", tt.args, r.err)
		}
	}
}

// decodeLog decodes lines of a log, all of which must be JSON.
func decodeLog(t *testing.T, text string) (lines []map[string]any) {
	t.Helper()
	for line := range strings.Lines(text) {
		var decoded map[string]any
		if err := json.Unmarshal([]byte(line), &decoded); err != nil || decoded["msg"] == "" {
			t.Errorf("%q is not JSON: %v", line, err)
		}
		lines = append(lines, decoded)
	}
	return lines
}

func TestServePrintsOnlyJSONWithLogFormatJSON(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, said := &screen{news: make(chan struct{}, 1)}, &screen{news: make(chan struct{}, 1)}
	code := make(chan int, 1)
	go func() {
		code <- execute(ctx, []string{"serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--log-format", "json"}, strings.NewReader(""), out, said)
	}()
	said.await(t, "belfry is running")
	stdlog.Print("a library has something to say")
	cancel()
	if got := <-code; got != exitOK || out.String() != "" {
		t.Errorf("it ended with %d and printed %q", got, out)
	}
	lines := decodeLog(t, said.String())
	if !slices.ContainsFunc(lines, func(line map[string]any) bool {
		address, _ := line["address"].(string)
		return line["msg"] == "belfry is running" && strings.HasPrefix(address, "http://127.0.0.1:") && line["version"] == version()
	}) || !strings.Contains(said.String(), "a library has something to say") {
		t.Errorf("the log is\n%s", said)
	}
}

func TestServeErrorsAreJSONWithLogFormatJSON(t *testing.T) {
	for _, tt := range []struct {
		args []string
		env  string
		want []string
	}{
		{[]string{"--log-format", "json", "--listen", "99", "--concurrency", "0"}, "", []string{`--listen: "99" is not host:port`, "--concurrency: "}},
		{[]string{"--listne", ":1", "--log-format=json"}, "", []string{"unknown flag: --listne; did you mean --listen?"}},
		{[]string{"--concurrency", "many"}, "json", []string{`--concurrency: "many" is not a whole number`}},
		{[]string{"--api-key-file", "nowhere"}, "json", []string{"nowhere"}},
	} {
		t.Setenv("BELFRY_LOG_FORMAT", tt.env)
		if tt.env == "" {
			os.Unsetenv("BELFRY_LOG_FORMAT")
		}
		var out, said strings.Builder
		code := execute(t.Context(), append([]string{"serve", "--data", t.TempDir()}, tt.args...), strings.NewReader(""), &out, &said)
		lines := decodeLog(t, said.String())
		if code == exitOK || out.String() != "" || len(lines) != len(tt.want) {
			t.Errorf("%q: it ended with %d, printed %q and said %q", tt.args, code, out.String(), said.String())
			continue
		}
		for i, want := range tt.want {
			if got, _ := lines[i]["msg"].(string); !strings.Contains(got, want) || lines[i]["level"] != "ERROR" {
				t.Errorf("%q: line %d is %v, want %q", tt.args, i, lines[i], want)
			}
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
		{"every interface without TLS", []string{"--listen", ":0", "--api-key-file", "keys"}, "", "set --tls-cert and --tls-key (or --tls-auto), name a proxy that ends TLS with --trusted-proxy, or accept it with --insecure-plain-http"},
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
		{"an address that is none", []string{"--public-url", "belfry.example.com"}, "", "--public-url: must be an address such as"},
		{"an address with a query", []string{"--public-url", "https://belfry.example.com/?a=b"}, "", "--public-url: must be an address such as https://belfry.example.com, without ? and #"},
		{"an unknown election", []string{"--election", "raft"}, "", `--election: "raft" is not one of database, etcd, zookeeper`},
		{"an election of one process", []string{"--election", "etcd", "--etcd-endpoints", "a:1"}, "", "--election: the embedded database is for one process"},
		{"etcd without an address", []string{"--election", "etcd"}, "", "--etcd-endpoints: is needed with --election etcd"},
		{"an address of another election", []string{"--zookeeper-servers", "a:1"}, "", "--zookeeper-servers: is for --election zookeeper"},
		{"an address with a password", []string{"--election", "etcd", "--etcd-endpoints", "https://u:p@a:1"}, "", "--etcd-endpoints: "},
		{"an address without a port", []string{"--election", "zookeeper", "--zookeeper-servers", "a"}, "", `--zookeeper-servers: "a" is not host:port`},
		{"a certificate without its key", []string{"--etcd-cert-file", "x"}, "", "--etcd-cert-file: and --etcd-key-file need each other"},
		{"a user without a password", []string{"--etcd-username", "x"}, "", "--etcd-username: and --etcd-password-file need each other"},
		{"a root that is no path", []string{"--election", "zookeeper", "--zookeeper-root", "x"}, "", "--zookeeper-root: must be a path"},
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
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
