package main

import (
	"bufio"
	"bytes"
	"context"
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
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
	"github.com/belfry-sh/belfry/internal/oidctest"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/store/postgres"
	"github.com/belfry-sh/belfry/worker"
)

// publicURL is the address of the node for browsers.
const publicURL = "http://belfry.test"

// canaryServer is a node in a process of its own, and what is known of it.
type canaryServer struct {
	*client.Client
	t        *testing.T
	secrets  *canaries
	data     string // its directory
	database string // its URL; empty with SQLite
	server   string // its address
	key      string // of an admin
	keyFile  string // with it
	issuer   *oidctest.Issuer
	log      *screen
	signal   func(os.Signal) // ends the process

	answers recorder          // of the API to all requests
	alerts  recorder          // that a channel got
	traces  recorder          // that the collector got
	texts   map[string]string // by where they are from
}

// recorder is a text that grows.
type recorder struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// awaitText waits until a text has words.
func (s *canaryServer) awaitText(what string, r *recorder, words ...string) string {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		text, missing := r.String(), ""
		for _, word := range words {
			if !strings.Contains(printable(text), word) {
				missing = word
			}
		}
		if missing == "" {
			return text
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: %q is missing in %q", what, missing, text)
		}
	}
}

// printable drops what binary forms have between texts.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return -1
		}
		return r
	}, text)
}

// serveProcess is `belfry serve` at level debug in a process of its own.
func serveProcess(t *testing.T, environment []string, args ...string) (log *screen, end func()) {
	t.Helper()
	log, stop := startProcess(t, environment, args...)
	return log, func() { stop(syscall.SIGTERM) }
}

// startProcess starts `belfry serve`, which a signal ends.
func startProcess(t *testing.T, environment []string, args ...string) (log *screen, stop func(os.Signal)) {
	t.Helper()
	log = &screen{news: make(chan struct{}, 1)}
	cmd := exec.Command(os.Args[0], append([]string{"serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--log-level", "debug"}, args...)...)
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	stop = func(signal os.Signal) {
		once.Do(func() {
			cmd.Process.Signal(signal)
			cmd.Wait()
		})
	}
	t.Cleanup(func() { stop(syscall.SIGTERM) })
	return log, stop
}

func (s *canaryServer) start(environment []string, args ...string) {
	s.log, s.signal = startProcess(s.t, environment, args...)
	s.log.await(s.t, "  Try ")
	s.server = serverOf(strings.Split(s.log.String(), "\n"))
	s.Client = s.connect(s.key)
}

// crash ends the process as a panic does: it prints all that its goroutines do.
func (s *canaryServer) crash() { s.signal(syscall.SIGQUIT) }

func (s *canaryServer) connect(key string) *client.Client {
	c, err := client.New(s.server, client.WithKey(key), client.WithHTTPClient(&http.Client{Transport: &recordedTransport{to: &s.answers}}))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

// recordedTransport records answers, except those to workers, who get the secrets of their runs.
type recordedTransport struct {
	http.Transport
	to io.Writer
}

func (r *recordedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := r.Transport.RoundTrip(request)
	if err != nil || strings.HasSuffix(request.URL.Path, "/claim") {
		return answer, err
	}
	answer.Header.Write(r.to)
	answer.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(answer.Body, r.to), answer.Body}
	return answer, nil
}

// collect starts a collector of traces and returns its address.
func (s *canaryServer) collect() string {
	return s.serve(func(_ http.ResponseWriter, r *http.Request) { io.Copy(&s.traces, r.Body) })
}

func (s *canaryServer) serve(handle http.HandlerFunc) string { return serveHTTP(s.t, handle) }

func serveHTTP(t *testing.T, handle http.HandlerFunc) string {
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	return server.URL
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

// redirector answers with a redirect to what it was sent, and a body.
func redirector(output string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		w.Header().Set("Location", "/login/"+token+"/"+r.Header.Get("X-Api-Key"))
		w.WriteHeader(http.StatusFound)
		io.WriteString(w, output+token)
	}
}

// echoAll answers with all that it is sent, in several encodings, so that the output ends within
// a secret.
func echoAll(w http.ResponseWriter, r *http.Request) {
	raw, _ := httputil.DumpRequest(r, true)
	w.WriteHeader(http.StatusBadRequest)
	named, path := []byte(r.Header.Get("X-Named")), []byte(strings.Trim(r.URL.Path, "/"))
	for _, text := range []string{string(raw), string(path), base64.StdEncoding.EncodeToString(raw), base64.URLEncoding.EncodeToString(named), hex.EncodeToString(path), url.QueryEscape(string(named)), fmt.Sprintf("%q", path)} {
		fmt.Fprintln(w, text)
	}
	io.WriteString(w, strings.Repeat(string(named)+"\n", belfry.MaxOutput/(len(named)+1)+1))
}

// listen handles each connection to a new address.
func listen(t *testing.T, handle func(net.Conn)) (address string) {
	t.Helper()
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
			handle(conn)
			conn.Close()
		}
	}()
	return listener.Addr().String()
}

// malformed is a target whose status line is the token of the request.
func malformed(conn net.Conn) {
	request := make([]byte, 4096)
	n, _ := conn.Read(request)
	_, token, _ := strings.Cut(string(request[:n]), "token=")
	token, _, _ = strings.Cut(token, " ")
	fmt.Fprintf(conn, "HTTP/1.1 %s no\r\n\r\n", token)
}

// echoRedis is a Redis whose error repeats the user name and the password.
func echoRedis(t *testing.T) string {
	return listen(t, func(conn net.Conn) {
		lines := bufio.NewScanner(conn) // *3 $4 AUTH $6 belfry $22 password
		var words []string
		for len(words) < 3 && lines.Scan() {
			if word := lines.Text(); word != "" && word[0] != '*' && word[0] != '$' {
				words = append(words, word)
			}
		}
		if len(words) == 3 {
			fmt.Fprintf(conn, "-ERR cannot log in as %s with %s\r\n", words[1], words[2])
		}
	})
}

func (s *canaryServer) create(name string, m belfry.Manifest, payload any, options ...client.CallOption) {
	s.t.Helper()
	m.Name, m.Payload = name, belfry.MustJSON(payload)
	m.Schedule, m.RetryBaseSeconds = "@yearly", belfry.Some(0.1)
	if _, err := s.CreateJob(s.t.Context(), m, options...); err != nil {
		s.t.Fatalf("%s: %v", name, err)
	}
}

// request is a payload with secrets.
func (s *canaryServer) request(address, token string) map[string]any {
	return map[string]any{"url": address, "method": "POST", "body": map[string]any{"password": s.secrets.put("a body")},
		"headers": map[string]string{"Authorization": "Bearer " + token, "X-Api-Key": s.secrets.put("a header"), "Cookie": "session=" + s.secrets.put("a cookie")}}
}

// useSecrets gives the node secrets of every kind, by the API.
func (s *canaryServer) useSecrets() {
	ctx, put := s.t.Context(), s.secrets.put
	fail := func(_ any, err error) {
		s.t.Helper()
		if err != nil {
			s.t.Fatal(err)
		}
	}
	secret := func(name, place, suffix string, keep int) {
		value := s.secrets.add(canary{place: place, value: put(place+", without its suffix") + suffix})
		fail(s.PutSecret(ctx, belfry.Secret{Name: name, Value: value, KeepPreviousSeconds: keep}))
	}
	secret("named", "a named secret", ` Q"7'k&/é`, 0)
	secret("second", "another named secret", ` Q"7'k&/é`, 0)
	secret("named", "a new value of the named secret", `q"4/z`, 3600)
	secret("broker", "the named password of a broker", "", 0)
	for _, place := range []string{"a signing key", "the next signing key"} {
		fail(s.PutSecret(ctx, belfry.Secret{Name: "hooks", Value: s.secrets.signingKey(place), KeepPreviousSeconds: 3600}))
	}
	echo := s.serve(echoAll)
	receiver := s.serve(func(_ http.ResponseWriter, r *http.Request) { io.Copy(&s.alerts, r.Body) })
	for _, c := range []belfry.Channel{
		{Name: "hook", Type: belfry.ChannelWebhook, URL: receiver + "/" + put("the address of a webhook"), Secret: s.secrets.signingKey("the signing key of a webhook")},
		{Name: "refused", Type: belfry.ChannelWebhook, URL: echo + "/" + put("the address of a webhook that fails") + "?token=" + put("the query of a webhook"), Secret: s.secrets.signingKey("the signing key of a webhook that fails")},
		{Name: "slack", Type: belfry.ChannelSlack, URL: echo + "/services/" + put("the address of a Slack channel")},
		{Name: "mail", Type: belfry.ChannelEmail, URL: "smtp://belfry:" + put("the password of a mail server") + "@127.0.0.1:1", From: "belfry@example.com", To: []string{"ops@example.com"}},
		{Name: "pager", Type: belfry.ChannelPagerDuty, URL: echo, Secret: put("the routing key of PagerDuty")},
	} {
		fail(s.CreateChannel(ctx, c))
		if err := s.TestChannel(ctx, c.Name); (err == nil) != (c.Name == "hook") {
			s.t.Errorf("the test of the channel %s: %v", c.Name, err)
		}
	}
	// The answers that create these show them once.
	recorded := s.Client
	s.Client = must(client.New(s.server, client.WithKey(s.key)))
	key, err := s.CreateKey(ctx, belfry.APIKey{Role: belfry.RoleReader, Name: "reader"})
	fail(key, err)
	next, err := s.RotateKey(ctx, key.ID, time.Hour)
	fail(next, err)
	made, err := s.CreateChannel(ctx, belfry.Channel{Name: "made", Type: belfry.ChannelWebhook, URL: receiver})
	fail(made, err)
	s.secrets.add(canary{place: "the signing key that the server makes", value: strings.TrimPrefix(made.Secret, "whsec_")})
	for _, k := range []belfry.APIKey{key, next} {
		s.secrets.add(canary{place: "an API key of the database", value: strings.TrimPrefix(k.Key, "bf_"+k.ID+"_")})
	}
	s.Client = recorded
	fail(nil, s.connect(key.Key).Do(ctx, http.MethodGet, "/api/v1/jobs", nil, nil))
	monitor, err := s.CreateMonitor(ctx, belfry.Monitor{Name: "backup", EverySeconds: 3600})
	fail(monitor, err)
	token := monitor.PingURL[strings.LastIndex(monitor.PingURL, "/")+1:]
	s.secrets.add(canary{place: "the address of a monitor", value: token, in: []string{theAPI, theExports}, may: []string{theDatabase, theBackup}})
	for _, path := range []string{"/start", "/fail", ""} {
		s.get("/ping/" + token + path)
	}
	s.createJobs(echo)
}

// createJobs creates jobs of every type, with secrets in their payloads.
func (s *canaryServer) createJobs(echo string) {
	put := s.secrets.put
	redirects, bad := s.serve(redirector(put("the output of a target", visible...))), "http://"+listen(s.t, malformed)
	once := belfry.Manifest{Spec: belfry.Spec{MaxRetries: belfry.Some(0)}}
	form := s.request(bad+"/?token="+put("a query"), put("a token"))
	form["body"] = "client_secret=" + put("a form")
	s.create("redirected", once, s.request(redirects, put("a token")))
	s.create("malformed", once, form)
	s.create("echoed", once, map[string]any{"url": echo + `/{{secret "second"}}?q={{secret "named"}}`,
		"headers": map[string]string{"X-Named": `{{secret "named"}}`, "X-Own-Token": put("a header that is echoed")},
		"body":    map[string]any{"a": `{{secret "second"}}`, "text": "a=1&token=" + put("a token in a form")}})
	s.create("signed", once, map[string]any{"url": echo, "sign_with": "hooks"})
	s.create("plain", once, map[string]any{"url": redirects, "body": map[string]string{"customer": put("a field that is no secret", visible...)}}, client.IdempotencyKey(put("an idempotency key")))
	message := belfry.Manifest{Spec: belfry.Spec{Type: belfry.TypeMessage, MaxRetries: belfry.Some(0)}}
	for _, connection := range []string{"secret", "file", "env"} {
		s.create("published-"+connection, message, map[string]any{"connection": connection, "topic": "orders", "headers": map[string]string{"Api-Token": put("a header of a message")}, "body": map[string]string{"password": put("the body of a message")}})
	}
	command := belfry.Manifest{Spec: belfry.Spec{Type: belfry.TypeCommand, MaxRetries: belfry.Some(0)}}
	s.create("listed", command, map[string]any{"command": "show", "env": map[string]string{"API_TOKEN": put("the environment of a job")}})
	s.create("work", belfry.Manifest{Spec: belfry.Spec{MaxRetries: belfry.Some(2)}}, map[string]any{"token": put("the payload of a worker"), "credentials": map[string]string{"key": put("a nested payload")}})
	if _, err := s.EditJob(s.t.Context(), "malformed", map[string]any{"payload": s.request(bad+"/?token="+put("an edited query"), "x"), "description": "edited"}); err != nil {
		s.t.Error(err)
	}
	if _, err := s.DiffJob(s.t.Context(), "plain", map[string]any{"schedule": "@daily", "payload": s.request(redirects, put("the payload of a dry run"))}); err != nil {
		s.t.Error(err)
	}
}

// refuseRequests sends secrets that are refused.
func (s *canaryServer) refuseRequests() {
	ctx, put := s.t.Context(), s.secrets.put
	payload := s.request("http://ann:"+put("user information")+"@127.0.0.1/", "x")
	if _, err := s.CreateJob(ctx, belfry.Manifest{Spec: belfry.Spec{Schedule: "@yearly"}, Payload: belfry.MustJSON(payload)}); belfry.CodeOf(err) != belfry.Invalid {
		s.t.Errorf("a URL with a password: %v", err)
	}
	if _, err := s.connect(put("a wrong API key")).Job(ctx, "work"); belfry.CodeOf(err) != belfry.Unauthorized {
		s.t.Errorf("a wrong key: %v", err)
	}
	for _, name := range []string{"token", "api_key"} {
		if err := s.Do(ctx, http.MethodPost, "/api/v1/jobs?"+name+"="+put("the query of a request"), map[string]any{"nonsense": put("an unknown field")}, nil); err == nil {
			s.t.Error("a wrong request was accepted")
		}
	}
	if err := s.connect(s.issuer.Token(map[string]any{"aud": "page"})).Do(ctx, http.MethodGet, "/api/v1/jobs", nil, nil); err != nil {
		s.t.Errorf("a token of the issuer: %v", err)
	}
}

// runJobs runs all jobs, and a worker that panics, fails and succeeds.
func (s *canaryServer) runJobs() {
	var log recorder
	mux, put := worker.NewMux(), s.secrets.put
	output, line := put("the output of a worker", visible...), put("the log of a run", visible...)
	mux.HandleFunc("work", func(_ context.Context, run *belfry.Run) error {
		run.Log(line)
		run.Report.Output = []byte(output)
		switch run.Attempt {
		case 1:
			panic("cannot log in with " + put("the payload of a worker"))
		case 2:
			return fmt.Errorf("the server answered: %s is not valid for %s", put("the payload of a worker"), put("a nested payload"))
		}
		return nil
	})
	ctx, stop := context.WithCancel(s.t.Context())
	stopped := make(chan error, 1)
	pool := worker.New(s.Client, mux, worker.Log(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	go func() { stopped <- pool.Run(ctx) }()
	runs := map[string]belfry.ID{}
	trigger := func(job string, payload any) {
		id, err := s.TriggerJob(ctx, job, payload, client.IdempotencyKey(put(fmt.Sprintf("the idempotency key of %s %v", job, payload != nil))))
		if err != nil {
			s.t.Fatalf("%s: %v", job, err)
		}
		runs[job] = id
	}
	for _, job := range []string{"echoed", "redirected", "malformed", "signed", "plain", "published-secret", "published-file", "published-env", "listed", "work"} {
		trigger(job, nil)
	}
	s.awaitRuns(runs)
	dead := runs["redirected"]
	clear(runs)
	trigger("malformed", map[string]any{"password": put("the payload of a trigger")})
	s.awaitRuns(runs)
	if _, err := s.RedriveDeadLetter(ctx, dead, belfry.RedriveOptions{Payload: belfry.MustJSON(map[string]string{"secret": put("the payload of a redriven dead letter")})}); err != nil {
		s.t.Fatal(err)
	}
	stop()
	if err := <-stopped; err != nil {
		s.t.Error(err)
	}
	s.texts[theWorker] = log.String()
}

// awaitRuns waits until runs have ended: all but those of the worker die.
func (s *canaryServer) awaitRuns(runs map[string]belfry.ID) {
	s.t.Helper()
	for job, id := range runs {
		want := belfry.RunDead
		if job == "work" {
			want = belfry.RunSucceeded
		}
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			run, err := s.Run(s.t.Context(), id)
			if err != nil {
				s.t.Fatal(err)
			}
			if run.Status == want {
				break
			}
			if !run.Status.Live() || time.Now().After(deadline) {
				s.t.Fatalf("the run of %s is %+v", job, run)
			}
		}
	}
}
