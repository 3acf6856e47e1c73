package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/store/postgres"
	"github.com/belfry-sh/belfry/worker"
)

// canaries are secrets by where they are put. None may appear in a log.
type canaries map[string]string

// put makes a secret that is found wherever it appears.
func (c canaries) put(place string) string {
	if c[place] == "" {
		c[place] = fmt.Sprintf("cAnArY%02dq7Zx9LmP2vR8tK4wY6sB3nD5", len(c))
	}
	return c[place]
}

// check expects a log to have some words and no secret.
func (c canaries) check(t *testing.T, what, log string, words ...string) {
	t.Helper()
	for place, secret := range c {
		if at := strings.Index(log, secret); at >= 0 {
			t.Errorf("%s has the secret of %s: …%s…", what, place, log[max(at-200, 0):min(at+100, len(log))])
		}
	}
	for _, word := range words {
		if !strings.Contains(log, word) {
			t.Errorf("%s does not have %q", what, word)
		}
	}
	if t.Failed() {
		t.Logf("%s:\n%s", what, log)
	}
}

// serveProcess is `belfry serve` at level debug in a process of its own.
func serveProcess(t *testing.T, environment []string, args ...string) (log *screen, end func()) {
	t.Helper()
	log = &screen{news: make(chan struct{}, 1)}
	cmd := exec.Command(os.Args[0], append([]string{"serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--log-level", "debug"}, args...)...)
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	end = func() {
		once.Do(func() {
			cmd.Process.Signal(syscall.SIGTERM)
			cmd.Wait()
		})
	}
	t.Cleanup(end)
	return log, end
}

// echoTarget repeats secrets of its requests: where it redirects to, in a status line that
// is none, and in its body.
func echoTarget(t *testing.T, output string) (redirects, malformed string) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		w.Header().Set("Location", "/login/"+token+"/"+r.Header.Get("X-Api-Key"))
		w.WriteHeader(http.StatusFound)
		io.WriteString(w, output+token)
	}))
	t.Cleanup(server.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			request := make([]byte, 4096)
			n, _ := conn.Read(request)
			_, token, _ := strings.Cut(string(request[:n]), "token=")
			token, _, _ = strings.Cut(token, " ")
			fmt.Fprintf(conn, "HTTP/1.1 %s no\r\n\r\n", token)
			conn.Close()
		}
	}()
	return server.URL, "http://" + listener.Addr().String()
}

// Logs at level debug have no secret, of a node with either database and of a worker.
func TestLogsHaveNoSecrets(t *testing.T) {
	for name, postgresql := range map[string]bool{"SQLite": false, "PostgreSQL": true} {
		t.Run(name, func(t *testing.T) {
			secrets := canaries{}
			environment := []string{"AWS_SECRET_ACCESS_KEY=" + secrets.put("the environment"), "BELFRY_API_TOKEN=" + secrets.put("an unknown variable")}
			if postgresql {
				environment = append(environment, "BELFRY_DATABASE_URL="+databaseWithPassword(t, secrets.put("the database URL")))
			} else {
				environment = append(environment, "BELFRY_DATABSE_URL=postgres://belfry:"+secrets.put("a misspelled database URL")+"@db/belfry")
			}
			key := secrets.put("an API key")
			keys := writeFile(t, filepath.Join(t.TempDir(), "keys"), "# "+secrets.put("a comment of the key file")+"\nops:"+key+"\nother:"+secrets.put("another API key")+"\n")
			log, end := serveProcess(t, environment, "--api-key-file", keys, "--allow-target", "127.0.0.1")
			log.await(t, "  Try ")
			server := serverOf(strings.Split(log.String(), "\n"))
			workerLog := runCanaries(t, secrets, server, key)
			end()
			secrets.check(t, "the log of the node", log.String(), "level=DEBUG", "msg=request", `msg="an attempt starts"`, `msg="an attempt ended"`,
				`error="the target answered 302 Found to /login/***/***; redirects are not followed"`, `malformed HTTP status code \"***\"`)
			secrets.check(t, "the log of the worker", workerLog, `msg="an attempt ended"`, `panic="panic: cannot log in with ***"`, `error="panic: cannot log in with ***"`, `error="the server answered: *** is not valid for ***"`, "outcome=succeeded")
			if len(secrets) < 20 {
				t.Errorf("there are %d secrets, want 20", len(secrets))
			}
		})
	}
}

// databaseWithPassword is a new database and a user with a password.
func databaseWithPassword(t *testing.T, password string) string {
	t.Helper()
	u, err := url.Parse(pgtest.Database(t, postgres.Migrate))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	const user = "belfry_canary"
	_, err = conn.Exec(t.Context(), `DROP ROLE IF EXISTS `+user+`; CREATE ROLE `+user+` SUPERUSER LOGIN PASSWORD '`+password+`'`)
	if err := errors.Join(err, conn.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, password)
	return u.String()
}

// runCanaries does everything with secrets that clients and workers do, and returns the
// log of the worker.
func runCanaries(t *testing.T, secrets canaries, server, key string) (workerLog string) {
	ctx := t.Context()
	connect := func(key string) *client.Client {
		c, err := client.New(server, client.WithKey(key))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := connect(key)
	redirects, malformed := echoTarget(t, secrets.put("the output of a target"))
	request := func(address, token string) map[string]any {
		return map[string]any{"url": address, "method": "POST", "body": map[string]any{"password": secrets.put("a body")},
			"headers": map[string]string{"Authorization": "Bearer " + token, "X-Api-Key": secrets.put("a header"), "Cookie": "session=" + secrets.put("a cookie")}}
	}
	create := func(name string, retries int, payload any) error {
		_, err := c.CreateJob(ctx, belfry.Manifest{Name: name, Payload: belfry.MustJSON(payload),
			Spec: belfry.Spec{Schedule: "@yearly", MaxRetries: belfry.Some(retries), RetryBaseSeconds: belfry.Some(0.1)}})
		return err
	}
	form := request(malformed+"/?token="+secrets.put("a query"), secrets.put("a token"))
	form["body"] = "client_secret=" + secrets.put("a form")
	if err := errors.Join(create("redirected", 0, request(redirects, secrets.put("a token"))), create("malformed", 0, form),
		create("work", 2, map[string]any{"token": secrets.put("the payload of a worker"), "credentials": map[string]string{"key": secrets.put("a nested payload")}})); err != nil {
		t.Fatal(err)
	}
	// What is refused.
	if err := create("refused", 0, request("http://ann:"+secrets.put("user information")+"@127.0.0.1/", "x")); belfry.CodeOf(err) != belfry.Invalid {
		t.Errorf("a URL with a password: %v", err)
	}
	if _, err := connect(secrets.put("a wrong API key")).Job(ctx, "work"); belfry.CodeOf(err) != belfry.Unauthorized {
		t.Errorf("a wrong key: %v", err)
	}
	if err := c.Do(ctx, http.MethodPost, "/api/v1/jobs?token="+secrets.put("the query of a request"), map[string]any{"nonsense": secrets.put("an unknown field")}, nil); err == nil {
		t.Error("a wrong request was accepted")
	}
	if _, err := c.EditJob(ctx, "malformed", map[string]any{"payload": request(malformed+"/?token="+secrets.put("an edited query"), "x"), "description": "edited"}); err != nil {
		t.Error(err)
	}
	// What runs.
	var log bytes.Buffer
	mux := worker.NewMux()
	mux.HandleFunc("work", func(_ context.Context, run *belfry.Run) error {
		run.Log(secrets.put("the log of a run"))
		run.Report.Output = []byte(secrets["the output of a worker"])
		switch run.Attempt {
		case 1:
			panic("cannot log in with " + secrets["the payload of a worker"])
		case 2:
			return fmt.Errorf("the server answered: %s is not valid for %s", secrets["the payload of a worker"], secrets["a nested payload"])
		}
		return nil
	})
	secrets.put("the log of a run")
	secrets.put("the output of a worker")
	ctx, stop := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	pool := worker.New(c, mux, worker.Log(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	go func() { stopped <- pool.Run(ctx) }()
	for _, run := range []struct {
		job     string
		payload any
		status  belfry.RunStatus
	}{
		{"redirected", nil, belfry.RunDead}, {"malformed", nil, belfry.RunDead}, {"work", nil, belfry.RunSucceeded},
		{"redirected", request(redirects, secrets.put("the payload of a trigger")), belfry.RunDead},
	} {
		id, err := c.TriggerJob(ctx, run.job, run.payload)
		if err != nil {
			t.Fatal(err)
		}
		for {
			got, err := c.Run(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			if got.Status == run.status {
				break
			}
			if !got.Status.Live() {
				t.Fatalf("the run of %s is %+v", run.job, got)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	stop()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	return log.String()
}

// A node that cannot use its database says why, without the password.
func TestDatabaseErrorsHaveNoPassword(t *testing.T) {
	secrets := canaries{}
	for _, tt := range []struct{ address, word string }{
		{"postgres://belfry:" + secrets.put("an unreachable database") + "@127.0.0.1:1/belfry", "waiting for the database"},
		{"postgres://belfry:" + secrets.put("a wrong port") + "@127.0.0.1:port/belfry", "--database-url"},
	} {
		log, end := serveProcess(t, []string{"BELFRY_DATABASE_URL=" + tt.address}, "--database-wait", "500ms")
		log.await(t, "--database-url: ")
		end()
		secrets.check(t, "the log", log.String(), tt.word)
	}
}
