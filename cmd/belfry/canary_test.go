package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
	"github.com/belfry-sh/belfry/internal/encrypt"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/secret"
	"github.com/belfry-sh/belfry/internal/store/postgres"
	"github.com/belfry-sh/belfry/worker"
)

// canaries are secrets by where they are put. None may appear in a log.
type canaries map[string]string

// put makes a secret that is found wherever it appears.
func (c canaries) put(place string) string {
	if c[place] == "" {
		c[place] = fmt.Sprintf("cAnArY%02d%.13X", len(c), sha256.Sum256([]byte(place)))
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

// echoAll is a target that answers with all that it is sent, in several encodings, so that the
// output ends within a secret.
func echoAll(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := httputil.DumpRequest(r, true)
		w.WriteHeader(http.StatusBadRequest)
		named, path := []byte(r.Header.Get("X-Named")), []byte(strings.Trim(r.URL.Path, "/"))
		for _, text := range []string{string(raw), string(path), base64.StdEncoding.EncodeToString(raw), base64.URLEncoding.EncodeToString(named), hex.EncodeToString(path), url.QueryEscape(string(named)), fmt.Sprintf("%q", path)} {
			fmt.Fprintln(w, text)
		}
		io.WriteString(w, strings.Repeat(string(named)+"\n", belfry.MaxOutput/len(named)+1))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// unknowable are the places of what no server can know to be secrets.
var unknowable = []string{"the output of a target", "the output of a worker", "the log of a run"}

// checkEncoded expects a text to have no secret in any encoding, and not eight bytes of one.
func (c canaries) checkEncoded(t *testing.T, what, text string) {
	t.Helper()
	for place, value := range c {
		if slices.Contains(unknowable, place) {
			continue
		}
		if at := strings.Index(text, value[:8]); at >= 0 { // with its number
			t.Errorf("%s has the beginning of the secret of %s: …%q…", what, place, text[max(at-200, 0):min(at+100, len(text))])
		}
		erased := []byte(text)
		if secret.NewRedactor(nil, value).Erase(erased); string(erased) != text {
			at := 0
			for erased[at] == text[at] {
				at++
			}
			t.Errorf("%s has the secret of %s encoded: …%q…", what, place, text[max(at-100, 0):min(at+100, len(text))])
		}
	}
	if len(text) < 1000 {
		t.Errorf("%s is only %q", what, text)
	}
}

// readEverything reads what the API and the page show.
func readEverything(t *testing.T, server, key string) string {
	t.Helper()
	var all strings.Builder
	get := func(path string) string {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+key)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s, %v", path, response.Status, body, err)
		}
		all.Write(body)
		return string(body)
	}
	for _, path := range []string{"/api/v1/jobs", "/api/v1/runs", "/api/v1/dead-letters/groups", "/api/v1/channels", "/api/v1/secrets", "/api/v1/secrets/named", "/api/v1/events", "/api/v1/alerts", "/metrics",
		"/api/v1/jobs/redirected/revisions", "/api/v1/jobs/malformed/revisions", "/api/v1/jobs/echoed", "/api/v1/jobs/echoed/runs"} {
		get(path)
	}
	for _, id := range regexp.MustCompile(`"id":\s*"([0-9a-f-]{36})"`).FindAllStringSubmatch(get("/api/v1/dead-letters"), -1) {
		get("/api/v1/dead-letters/" + id[1])
		get("/api/v1/runs/" + id[1])
	}
	return all.String()
}

// dump is all that a database has: of PostgreSQL by pg_dump, of SQLite its files.
func dump(t *testing.T, data, database string) string {
	t.Helper()
	if address, ok := strings.CutPrefix(database, "BELFRY_DATABASE_URL="); ok {
		out, err := exec.Command("pg_dump", "--dbname", address, "--data-only").Output()
		if err != nil {
			t.Fatalf("pg_dump: %v", err)
		}
		return string(out)
	}
	var all strings.Builder
	files, err := filepath.Glob(filepath.Join(data, "belfry.db*"))
	for _, file := range files {
		text, failed := os.ReadFile(file)
		err = errors.Join(err, failed)
		all.Write(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
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
			data, encryption := t.TempDir(), filepath.Join(t.TempDir(), "encryption.key")
			if err := encrypt.CreateKeys(encryption); err != nil {
				t.Fatal(err)
			}
			log, end := serveProcess(t, environment, "--data", data, "--encryption-key-file", encryption, "--api-key-file", keys, "--allow-target", "127.0.0.1")
			log.await(t, "  Try ")
			server := serverOf(strings.Split(log.String(), "\n"))
			workerLog := runCanaries(t, secrets, server, key)
			secrets.checkEncoded(t, "the API and the page", readEverything(t, server, key))
			end()
			secrets.checkEncoded(t, "the database", dump(t, data, environment[len(environment)-1]))
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
	for _, name := range []string{"named", "second"} {
		if _, err := c.PutSecret(ctx, belfry.Secret{Name: name, Value: secrets.put("the named secret "+name) + " \"'&/é"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.PutSecret(ctx, belfry.Secret{Name: "named", Value: secrets.put("a new value of the named secret") + "\"/", KeepPreviousSeconds: 3600}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateChannel(ctx, belfry.Channel{Name: "hook", Type: belfry.ChannelWebhook, URL: redirects + "/" + secrets.put("the address of a channel"), Secret: "whsec_" + base64.StdEncoding.EncodeToString([]byte(secrets.put("the secret of a channel")))}); err != nil {
		t.Fatal(err)
	}
	echoes := map[string]any{"url": echoAll(t) + `/{{secret "second"}}?q={{secret "named"}}`, "headers": map[string]string{"X-Named": `{{secret "named"}}`, "X-Own-Token": secrets.put("a header that is echoed")},
		"body": map[string]any{"a": `{{secret "second"}}`, "text": "a=1&token=" + secrets.put("a token in a form")}}
	form := request(malformed+"/?token="+secrets.put("a query"), secrets.put("a token"))
	form["body"] = "client_secret=" + secrets.put("a form")
	if err := errors.Join(create("redirected", 0, request(redirects, secrets.put("a token"))), create("malformed", 0, form), create("echoed", 0, echoes),
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
		{"echoed", nil, belfry.RunDead}, {"redirected", nil, belfry.RunDead}, {"malformed", nil, belfry.RunDead}, {"work", nil, belfry.RunSucceeded},
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
