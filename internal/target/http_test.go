package target

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/worker"
)

var _ worker.Handler = (*HTTP)(nil)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// localHTTP makes a handler that may reach this machine.
func localHTTP(t *testing.T) *HTTP {
	t.Helper()
	return handler(t, HTTPOptions{Guard: NewGuard(false, prefixes("127.0.0.0/8"))})
}

func TestRequestHeadersOfARun(t *testing.T) {
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer server.Close()
	h := localHTTP(t)
	at := time.Date(2026, 3, 1, 10, 0, 0, 0, time.FixedZone("CET", 3600))
	run := &belfry.Run{ID: belfry.NewID(at), JobID: belfry.NewID(at), Attempt: 3, ScheduledAt: at, Kind: belfry.KindManual,
		Payload: json.RawMessage(fmt.Sprintf(`{"url":%q,"headers":{"x-own":"a b","Authorization":"Bearer x"}}`, server.URL))}
	if err := h.Handle(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"Idempotency-Key":     run.Key(),
		"Belfry-Job-Id":       run.JobID.String(),
		"Belfry-Run-Id":       run.ID.String(),
		"Belfry-Attempt":      "3",
		"Belfry-Scheduled-At": "2026-03-01T09:00:00Z",
		"User-Agent":          "belfry",
		"X-Own":               "a b",
		"Authorization":       "Bearer x",
		"Content-Length":      "0",
	} {
		if v := got[name]; len(v) != 1 || v[0] != want {
			t.Errorf("%s is %q, want %q", name, v, want)
		}
	}
	for _, name := range []string{"Accept-Encoding", "Cookie", "Content-Type"} {
		if v, ok := got[name]; ok {
			t.Errorf("%s is %q, want none", name, v)
		}
	}
	run.ScheduledAt = at.Add(250 * time.Millisecond)
	if err := h.Handle(t.Context(), run); err != nil || got.Get("Belfry-Scheduled-At") != "2026-03-01T09:00:00.25Z" {
		t.Errorf("with a fraction: %q, %v", got.Get("Belfry-Scheduled-At"), err)
	}
}

func TestRequestBodies(t *testing.T) {
	var method, body, kind string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		method, body, kind = r.Method, string(raw), r.Header.Get("Content-Type")
	}))
	defer server.Close()
	h := localHTTP(t)
	for _, tt := range []struct{ name, rest, method, body, kind string }{
		{"nothing", `"method":"get"`, "GET", "", ""},
		{"an object", `"body":{"b":[1, 2.0]}`, "POST", `{"b":[1, 2.0]}`, "application/json"},
		{"a list", `"method":"PUT","body":[]`, "PUT", `[]`, "application/json"},
		{"a boolean", `"body":false`, "POST", `false`, "application/json"},
		{"a text", `"method":"patch","body":"a=b&c"`, "PATCH", `a=b&c`, "text/plain; charset=utf-8"},
		{"a form", `"headers":{"content-type":"application/x-www-form-urlencoded"},"body":"a=b"`, "POST", `a=b`, "application/x-www-form-urlencoded"},
		{"JSON of another kind", `"headers":{"Content-Type":"application/cloudevents+json"},"body":{}`, "POST", `{}`, "application/cloudevents+json"},
	} {
		run := &belfry.Run{Payload: json.RawMessage(fmt.Sprintf(`{"url":%q,%s}`, server.URL, tt.rest))}
		if err := h.Handle(t.Context(), run); err != nil || method != tt.method || body != tt.body || kind != tt.kind {
			t.Errorf("%s: %s of %q as %q, %v", tt.name, method, body, kind, err)
		}
	}
}

func TestResponseStatusDecides(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var status int
		fmt.Sscanf(r.URL.Path, "/%d", &status)
		w.WriteHeader(status)
		if status != 204 && status != 304 {
			fmt.Fprintf(w, "says %d", status)
		}
	}))
	defer server.Close()
	h := localHTTP(t)
	for status, want := range map[int]string{
		200: "", 201: "", 202: "", 204: "", 299: "",
		304: "the target answered 304 Not Modified",
		400: "the target answered 400 Bad Request",
		404: "the target answered 404 Not Found",
		429: "the target answered 429 Too Many Requests",
		500: "the target answered 500 Internal Server Error",
		503: "the target answered 503 Service Unavailable",
		599: "the target answered 599",
	} {
		run, err := call(t, h, map[string]any{"url": fmt.Sprintf("%s/%d", server.URL, status)})
		if got := fmt.Sprint(err); got != want && !(want == "" && err == nil) {
			t.Errorf("%d gave %v, want %q", status, err, want)
		}
		output := fmt.Sprintf("says %d", status)
		if status == 204 || status == 304 {
			output = ""
		}
		if run.Report.HTTPStatus != status || string(run.Report.Output) != output {
			t.Errorf("%d was reported as %d with %q", status, run.Report.HTTPStatus, run.Report.Output)
		}
	}
}

func TestInvalidPayloadNamesItsFields(t *testing.T) {
	run := &belfry.Run{Payload: json.RawMessage(`{"url":"ftp://u:s3cret@h/?token=s3cret","method":"FLY"}`)}
	err := handler(t, HTTPOptions{}).Handle(t.Context(), run)
	if err == nil || belfry.CodeOf(err) != belfry.Invalid || !strings.Contains(err.Error(), "payload.url") || !strings.Contains(err.Error(), "payload.method") {
		t.Errorf("got %v", err)
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error shows a secret: %v", err)
	}
}

func TestErrorsShowNoSecrets(t *testing.T) {
	closed, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	rude := rawServer(t, func(conn net.Conn, r *bufio.Reader) {
		readRequest(r)
		fmt.Fprint(conn, "this is not HTTP\r\n\r\n")
	})
	cut := rawServer(t, func(_ net.Conn, r *bufio.Reader) { readRequest(r) })
	short := rawServer(t, func(conn net.Conn, r *bufio.Reader) {
		readRequest(r)
		fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
	})
	names := resolver(t, func(string) []netip.Addr { return nil })
	h := handler(t, HTTPOptions{Guard: NewGuard(true, nil), Resolver: names})
	for name, tt := range map[string]struct{ url, want string }{
		"a closed port":      {"http://" + closed.Addr().String(), "call the target: dial " + closed.Addr().String() + ": connect: connection refused"},
		"an unknown name":    {"http://nowhere.example", `look up the target's name "nowhere.example": no such host`},
		"another protocol":   {"http://" + rude, "call the target: net/http: HTTP/1.x transport connection broken: malformed HTTP"},
		"no answer":          {"http://" + cut, "call the target: EOF"},
		"half a response":    {"http://" + short, "call the target: the response ended early: unexpected EOF"},
		"TLS with a deaf":    {"https://" + cut, "call the target: "},
		"a metadata service": {"http://169.254.169.254", "the address of the target is not allowed"},
	} {
		run, err := call(t, h, map[string]any{"url": tt.url + "/p?token=s3cret#s3cret", "headers": map[string]string{"Authorization": "s3cret"}, "body": "s3cret"})
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", name, err, tt.want)
		}
		if strings.Contains(fmt.Sprintf("%v %+v", err, run.Report), "s3cret") {
			t.Errorf("%s: the error shows a secret: %v", name, err)
		}
	}
}

// rawServer serves connections by hand and returns its address.
func rawServer(t *testing.T, serve func(net.Conn, *bufio.Reader)) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				serve(conn, bufio.NewReader(conn))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

func readRequest(r *bufio.Reader) bool {
	req, err := http.ReadRequest(r)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, req.Body)
	return true
}

// One attempt is one request, also when a connection that was used before
// breaks after the request was written.
func TestBrokenConnectionIsNotRetried(t *testing.T) {
	for _, body := range []any{nil, "text"} {
		requests := make(chan int, 10)
		addr := rawServer(t, func(conn net.Conn, r *bufio.Reader) {
			for n := 1; readRequest(r); n++ {
				requests <- n
				if n == 2 {
					return
				}
				fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			}
		})
		h := localHTTP(t)
		payload := map[string]any{"url": "http://" + addr, "body": body, "headers": map[string]string{"X-Idempotency-Key": "mine"}}
		if _, err := call(t, h, payload); err != nil {
			t.Fatal(err)
		}
		if _, err := call(t, h, payload); err == nil {
			t.Error("the second call succeeded without an answer")
		}
		if len(requests) != 2 {
			t.Errorf("the target got %d requests, want 2", len(requests))
		}
	}
}

func TestHugeResponsesCostLittle(t *testing.T) {
	block := bytes.Repeat([]byte("x"), 1<<20)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 1 << 10 { // a gigabyte, if anybody wants it
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	h := localHTTP(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 10 {
		run, err := call(t, h, map[string]any{"url": server.URL})
		if err != nil || len(run.Report.Output) != belfry.MaxOutput {
			t.Errorf("%d bytes kept, %v", len(run.Report.Output), err)
		}
	}
	runtime.ReadMemStats(&after)
	if used := (after.TotalAlloc - before.TotalAlloc) / 10; used > 1<<20 {
		t.Errorf("%d bytes were allocated for an answer", used)
	}
}

func TestConnectionIsReusedAfterALongResponse(t *testing.T) {
	var mu sync.Mutex
	from := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		from[r.RemoteAddr] = true
		mu.Unlock()
		_, _ = w.Write(make([]byte, 500<<10))
	}))
	defer server.Close()
	h := localHTTP(t)
	for range 5 {
		if _, err := call(t, h, map[string]any{"url": server.URL}); err != nil {
			t.Error(err)
		}
	}
	if len(from) != 1 {
		t.Errorf("%d connections for 5 calls", len(from))
	}
}

func TestEndlessResponseHeadersAreLimited(t *testing.T) {
	addr := rawServer(t, func(conn net.Conn, r *bufio.Reader) {
		readRequest(r)
		fmt.Fprint(conn, "HTTP/1.1 200 OK\r\n")
		for i := 0; ; i++ {
			if _, err := fmt.Fprintf(conn, "X-%d: %s\r\n", i, strings.Repeat("x", 1000)); err != nil {
				return
			}
		}
	})
	if _, err := call(t, localHTTP(t), map[string]any{"url": "http://" + addr}); err == nil || !strings.Contains(err.Error(), "headers exceeded 65536 bytes") {
		t.Errorf("got %v", err)
	}
}

func TestSwitchingProtocolsHasNoBody(t *testing.T) {
	addr := rawServer(t, func(conn net.Conn, r *bufio.Reader) {
		readRequest(r)
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
		_, _ = io.Copy(io.Discard, r)
	})
	if _, err := call(t, localHTTP(t), map[string]any{"url": "http://" + addr}); err == nil || err.Error() != "the target answered 101 Switching Protocols" {
		t.Errorf("got %v", err)
	}
}

func TestTLS(t *testing.T) {
	serve := func(max uint16, h2 bool) *httptest.Server {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }))
		s.TLS = &tls.Config{MaxVersion: max, MinVersion: tls.VersionTLS10}
		s.EnableHTTP2 = h2
		s.Config.ErrorLog = nil
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	modern := serve(tls.VersionTLS13, true)
	roots := x509.NewCertPool()
	roots.AddCert(modern.Certificate())
	h := handler(t, HTTPOptions{Guard: NewGuard(true, nil), RootCAs: roots})
	if run, err := call(t, h, map[string]any{"url": modern.URL}); err != nil || string(run.Report.Output) != "HTTP/2.0" {
		t.Errorf("over TLS 1.3: %q, %v", run.Report.Output, err)
	}
	if _, err := call(t, h, map[string]any{"url": serve(tls.VersionTLS12, false).URL}); err != nil {
		t.Errorf("over TLS 1.2: %v", err)
	}
	if _, err := call(t, h, map[string]any{"url": serve(tls.VersionTLS11, false).URL}); err == nil {
		t.Error("TLS 1.1 was accepted")
	}
	if _, err := call(t, localHTTP(t), map[string]any{"url": modern.URL}); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("with an unknown certificate: %v", err)
	}
}

func TestEndOfTheContextEndsTheRequest(t *testing.T) {
	arrived := make(chan struct{})
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-release
	}))
	defer server.Close()
	defer close(release)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-arrived
		cancel(worker.ErrInterrupted)
	}()
	run := &belfry.Run{Payload: json.RawMessage(fmt.Sprintf(`{"url":%q}`, server.URL))}
	if err := localHTTP(t).Handle(ctx, run); !errors.Is(err, worker.ErrInterrupted) {
		t.Errorf("got %v", err)
	}
}

// BenchmarkHTTP measures calls of one target on this machine.
func BenchmarkHTTP(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	defer server.Close()
	h := NewHTTP(HTTPOptions{Guard: NewGuard(true, nil)})
	defer h.Close()
	raw := json.RawMessage(fmt.Sprintf(`{"url":%q,"headers":{"X-A":"b"},"body":{"a":1}}`, server.URL))
	b.ReportAllocs()
	b.SetParallelism(50)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := h.Handle(b.Context(), &belfry.Run{Payload: raw, Kind: belfry.KindScheduled}); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}
