package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"math/big"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/belfry-sh/belfry/internal/encrypt"
	"github.com/belfry-sh/belfry/internal/oidctest"
)

// Where secrets are searched for.
const (
	theAPI      = "the API"
	thePages    = "the pages"
	theExports  = "the exports"
	theDatabase = "the database"
	theBackup   = "the backup"
	theLog      = "the log of the node"
	theTraces   = "the traces"
	theMetrics  = "the metrics"
	theAlerts   = "the alerts"
	theWorker   = "the log of the worker"
)

// visible is where everybody who may read a job sees what is no secret.
var visible = []string{theAPI, thePages, theExports, theDatabase, theBackup}

// canary is a secret that is found wherever it appears.
type canary struct {
	place string   // where it enters
	value string   // which may be binary
	in    []string // where it must be found, because it is not secret there; elsewhere it must not
	may   []string // where it may be found, and is not looked for
}

// canaries are secrets by where they are put.
type canaries struct {
	mu   sync.Mutex
	list []canary
}

// put makes a secret, or returns the one that is there.
func (c *canaries) put(place string, in ...string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.list, func(k canary) bool { return k.place == place }); i >= 0 {
		return c.list[i].value
	}
	sum := sha256.Sum256([]byte(place))
	value := fmt.Sprintf("c%02d%.30s", len(c.list), new(big.Int).SetBytes(sum[:]).Text(62))
	c.list = append(c.list, canary{place: place, value: value, in: in})
	return value
}

// add adds a secret that something else has made.
func (c *canaries) add(k canary) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, k)
	return k.value
}

// signingKey makes a key for signatures: its text and its bytes are secrets.
func (c *canaries) signingKey(place string) string {
	raw := c.put(place + ", decoded")
	return "whsec_" + c.add(canary{place: place, value: base64.StdEncoding.EncodeToString([]byte(raw))})
}

// window is some bytes in a row of a secret in one of its forms, and whose they are.
type window struct {
	text   string
	canary int
}

// windows are all of them, by their first eight bytes.
func (c *canaries) windows() map[uint64][]window {
	found := map[uint64][]window{}
	for i, k := range c.list {
		add := func(form string, size int) {
			for at := 0; at+size <= len(form); at++ {
				key := binary.LittleEndian.Uint64([]byte(form[at:]))
				if w := (window{form[at : at+size], i}); !slices.Contains(found[key], w) {
					found[key] = append(found[key], w)
				}
			}
		}
		quoted, encoded := strconv.Quote(k.value), must(json.Marshal(k.value))
		for _, form := range []string{k.value, url.QueryEscape(k.value), url.PathEscape(k.value), html.EscapeString(k.value), quoted[1 : len(quoted)-1], string(encoded[1 : len(encoded)-1])} {
			add(form, 8)
		}
		digits := hex.EncodeToString([]byte(k.value))
		add(digits, 16) // Fewer digits are found by accident.
		add(strings.ToUpper(digits), 16)
		for before := range 3 { // bytes of something else that are encoded with it
			padded := append(make([]byte, before), k.value...)
			start, end := (before*8+5)/6, len(padded)*8/6 // the characters that depend on the secret alone
			add(base64.StdEncoding.EncodeToString(padded)[start:end], 8)
			add(base64.URLEncoding.EncodeToString(padded)[start:end], 8)
		}
	}
	return found
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// check expects each text to have no part of a secret in any form, except those that belong
// there, and words that show that it is what it should be.
func (c *canaries) check(t *testing.T, texts map[string]string, words map[string][]string) {
	t.Helper()
	windows := c.windows()
	var first [1 << 16]bool // whether a window begins with these two bytes
	for key := range windows {
		first[uint16(key)] = true
	}
	for where, text := range texts {
		found := map[int]string{} // what is around a secret
		for at := range max(len(text)-7, 0) {
			if !first[uint16(text[at])|uint16(text[at+1])<<8] {
				continue
			}
			for _, w := range windows[binary.LittleEndian.Uint64([]byte(text[at:at+8]))] {
				if found[w.canary] == "" && strings.HasPrefix(text[at:], w.text) {
					found[w.canary] = text[max(at-150, 0):min(at+100, len(text))]
				}
			}
		}
		for i, k := range c.list {
			around, belongs := found[i], slices.Contains(k.in, where)
			switch {
			case around != "" && !belongs && !slices.Contains(k.may, where):
				t.Errorf("%s: the secret of %s is in it: …%q…", where, k.place, around)
			case around == "" && belongs:
				t.Errorf("%s: %s is not in it, so the search proves nothing", where, k.place)
			}
		}
		for _, word := range words[where] {
			if !strings.Contains(text, word) {
				t.Errorf("%s: it does not have %q", where, word)
			}
		}
		if words[where] == nil {
			t.Errorf("%s: nothing shows that it is what it should be", where)
		}
	}
}

// Secrets that enter by every way that there is are nowhere that a person or a program can look,
// in no encoding: not in what the server stores, logs, shows and sends, nor in that of a worker.
func TestSecretsAppearNowhere(t *testing.T) {
	for name, postgresql := range map[string]bool{"SQLite": false, "PostgreSQL": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startCanaries(t, postgresql)
			s.useSecrets()
			s.refuseRequests()
			s.runJobs()
			s.texts[theAPI] = s.answers.String() + s.readAPI()
			s.texts[thePages] = s.readPages()
			s.texts[theExports] = s.readExports()
			s.texts[theMetrics] = s.get("/metrics") + s.readMetricsListener()
			s.texts[theAlerts] = s.awaitText("an alert", &s.alerts, "alert.firing")
			s.texts[theTraces] = s.awaitText("the spans of all runs", &s.traces, "belfry.run.statusdead", "listed", "published", "plain")
			s.texts[theDatabase], s.texts[theBackup] = s.dump(), s.backup()
			s.crash()
			s.texts[theLog] = s.log.String()
			s.secrets.check(t, s.texts, map[string][]string{
				theAPI: {`"job_id"`}, thePages: {"<html"}, theExports: {"schedule: "}, theMetrics: {"belfry_worker_pool_held_back_total", "goroutine "}, theAlerts: {"died"}, theTraces: {"belfry.job.name"},
				theDatabase: {"redirected"}, theBackup: {"redirected"},
				theLog: {"level=DEBUG", "msg=request", `msg="an attempt starts"`, `msg="an attempt ended"`, "goroutine ",
					`error="the target answered 302 Found to /login/***/***; redirects are not followed"`, `malformed HTTP status code \"***\"`, "cannot log in as belfry with ***"},
				theWorker: {`msg="an attempt ended"`, `panic="panic: cannot log in with ***"`, `error="panic: cannot log in with ***"`, `error="the server answered: *** is not valid for ***"`, "outcome=succeeded"},
			})
			if n := len(s.secrets.list); n < 20 {
				t.Errorf("there are %d secrets, want 20", n)
			}
		})
	}
}

// startCanaries starts a node at level debug in a process of its own, with everything that can be
// configured with a secret.
func startCanaries(t *testing.T, postgresql bool) *canaryServer {
	s := &canaryServer{t: t, secrets: &canaries{}, data: t.TempDir(), texts: map[string]string{}}
	secrets, dir := s.secrets, t.TempDir()
	file := func(name, content string) string { return writeFile(t, filepath.Join(dir, name), content) }
	s.key = secrets.put("an API key in a file")
	s.keyFile = file("key", s.key)
	encryption := filepath.Join(dir, "encryption.key")
	if err := encrypt.CreateKeys(encryption); err != nil {
		t.Fatal(err)
	}
	text := strings.TrimSpace(readText(t, encryption))
	secrets.add(canary{place: "the encryption key", value: string(must(base64.StdEncoding.DecodeString(text)))})
	s.issuer = oidctest.New(t)
	s.issuer.SetSecret(secrets.put("the secret of the OpenID Connect client"))
	bootstrap, broker := filepath.Join(dir, "bootstrap"), echoRedis(t)
	args := []string{"--data", s.data, "--encryption-key-file", encryption, "--bootstrap-key-file", bootstrap, "--allow-target", "127.0.0.1", "--metrics-listen", "127.0.0.1:0",
		"--api-key-file", file("keys", "# "+secrets.put("a comment of the key file")+"\nops:"+s.key+"\nother:"+secrets.put("another API key in a file")+"\n"),
		"--oidc-issuer", s.issuer.URL, "--oidc-client-id", "page", "--oidc-client-secret-file", file("oidc", secrets.put("the secret of the OpenID Connect client")),
		"--oidc-role", "groups=platform:admin", "--public-url", publicURL,
		"--connections", file("connections.yaml", fmt.Sprintf(`connections:
  secret: {url: "redis://%[1]s", username: belfry, password_secret: default/broker}
  file: {url: "redis://%[1]s", username: belfry, password_file: %[2]q}
  env: {url: "redis://%[1]s", username: belfry, password_env: BROKER_PASSWORD}
`, broker, file("broker", secrets.put("the password file of a broker")))),
		"--commands", file("commands.yaml", fmt.Sprintf(`commands:
  show:
    argv: [/bin/sh, -c, 'echo "with $API_TOKEN and $OPERATOR_PASSWORD"; exit 1']
    environment: {OPERATOR_PASSWORD: %q}
    job_environment: [API_TOKEN]
`, secrets.put("the environment of a command")))}
	environment := []string{"AWS_SECRET_ACCESS_KEY=" + secrets.put("the environment"), "BELFRY_API_TOKEN=" + secrets.put("an unknown variable"),
		"BROKER_PASSWORD=" + secrets.put("the password variable of a broker"), "OTEL_EXPORTER_OTLP_ENDPOINT=" + s.collect(), "OTEL_BSP_SCHEDULE_DELAY=200",
		"OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20" + secrets.put("the key of the collector of traces")}
	if postgresql {
		s.database = databaseWithPassword(t, secrets.put("the database URL"))
		environment = append(environment, "BELFRY_DATABASE_URL="+s.database, "DISPATCH_PASSWORD="+secrets.put("the password of the dispatch"))
		args = append(args, "--dispatch", "nats://127.0.0.1:1?username=belfry&password_env=DISPATCH_PASSWORD")
	} else {
		environment = append(environment, "BELFRY_DATABSE_URL=postgres://belfry:"+secrets.put("a misspelled database URL")+"@db/belfry")
	}
	s.start(environment, args...)
	secrets.add(canary{place: "the bootstrap key", value: strings.TrimSpace(readText(t, bootstrap))[len("bf_boot0000_"):]})
	return s
}

// A setting that cannot be used is an error without the password in it.
func TestErrorsOfSettingsHaveNoPassword(t *testing.T) {
	for _, tt := range []struct{ flag, value, word string }{
		{"database-url", "postgres://belfry:%s@127.0.0.1:1/belfry", "waiting for the database"},
		{"database-url", "postgres://belfry:%s@127.0.0.1:port/belfry", "--database-url"},
		{"dispatch", "nats://belfry:%s@127.0.0.1:1", "must not contain a user name or password"},
		{"dispatch", "amqp://127.0.0.1:1?password=%s", "--dispatch"},
		{"connections", "connections: {orders: {url: 'kafka://belfry:%s@127.0.0.1:1'}}", "must not contain a user name or password"},
		{"connections", "connections: {orders: {url: 'nats://127.0.0.1:1', password: '%s'}}", "connections.orders.password is unknown"},
		{"connections", "connections: {orders: %s}", "connections.orders"},
		{"commands", "commands: {show: {argv: [/bin/true], environment: {PASSWORD: '%[1]s', 'NO NAME': '%[1]s'}}}", "NO NAME"},
		{"api-key-file", "ops:%s role=king\n", "line 1"},
		{"encryption-key-file", "%s\n", "line 1"},
		{"bootstrap-key-file", "%s\n", "--bootstrap-key-file"},
	} {
		t.Run(tt.flag, func(t *testing.T) {
			t.Parallel()
			secrets := &canaries{}
			value := strings.ReplaceAll(strings.ReplaceAll(tt.value, "%[1]s", "%s"), "%s", secrets.put(tt.value))
			if !strings.Contains(tt.value, "://") || tt.flag == "connections" {
				value = writeFile(t, filepath.Join(t.TempDir(), "file"), value)
			}
			environment := []string{environmentName(tt.flag) + "=" + value}
			if tt.flag == "dispatch" {
				environment = append(environment, "BELFRY_DATABASE_URL=postgres://belfry:"+secrets.put("a database")+"@127.0.0.1:1/belfry")
			}
			log, end := serveProcess(t, environment, "--database-wait", "300ms")
			log.await(t, "belfry: ")
			end()
			secrets.check(t, map[string]string{theLog: log.String()}, map[string][]string{theLog: {tt.word}})
		})
	}
}
