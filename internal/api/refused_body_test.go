package api_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry/internal/api"
)

// refusedBodies are requests that are refused although all or much of a large body is not
// read yet.
var refusedBodies = []struct {
	name, method, path, headers string
	size                        int
	status                      int
}{
	{"too large", "POST", "/api/v1/jobs", keyed + "Content-Type: application/json\r\n", 5 << 20, 413},
	{"too large for an edit", "PATCH", "/api/v1/jobs/x", keyed + "Content-Type: application/json\r\n", 5 << 20, 413},
	{"too large an import", "POST", importPath, keyed + "Content-Type: application/x-ndjson\r\n", api.MaxBulk + 1<<20, 413},
	{"too large for a worker", "POST", "/api/v1/workers/" + unknownID + "/finish", keyed + "Content-Type: application/json\r\n", api.MaxFinishBody + 1<<20, 413},
	{"no key", "POST", "/api/v1/jobs", "", 5 << 20, 401},
	{"no route", "POST", "/api/v1/nothing", keyed, 5 << 20, 404},
	{"no such method", "PUT", "/api/v1/jobs", keyed, 5 << 20, 405},
	{"another media type", "POST", "/api/v1/jobs", keyed + "Content-Type: text/plain\r\n", 5 << 20, 415},
	{"another host", "POST", "/api/v1/jobs", keyed + "Host: elsewhere.example\r\n", 5 << 20, 421},
	{"another origin", "POST", "/api/v1/jobs", keyed + "Sec-Fetch-Site: cross-site\r\n", 5 << 20, 403},
	{"too many requests", "POST", "/api/v1/jobs", keyed, 5 << 20, 429},
	{"wrong parameters", "POST", "/api/v1/jobs?dry_run=perhaps", keyed, 5 << 20, 400},
}

const keyed = "Authorization: Bearer " + testKey + "\r\n"

// exchange sends a request as urllib does: all of it before it reads anything.
func exchange(conn net.Conn, head string, body io.Reader) (*http.Response, error) {
	if _, err := io.WriteString(conn, head); err != nil {
		return nil, err
	}
	if _, err := io.Copy(conn, body); err != nil {
		return nil, fmt.Errorf("sending the body: %w", err)
	}
	return http.ReadResponse(bufio.NewReader(conn), nil)
}

// A client that sends all of its body first can read why it is refused.
func TestRefusedClientReadsTheAnswerAfterItsBody(t *testing.T) {
	open := newService(t, withKeys(t)).listen(nil)
	limited := newService(t, withKeys(t), func(o *api.Options) { o.RateLimit = 1e-9 })
	limited.send("GET", "/api/v1/jobs", "", strings.TrimSpace(keyed)) // the only one
	for _, tt := range refusedBodies {
		server := open
		if tt.status == http.StatusTooManyRequests {
			server = limited.listen(nil)
		}
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, chunked %v", tt.name, chunked), func(t *testing.T) {
				conn, err := net.Dial("tcp", server.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				head := fmt.Sprintf("%s %s HTTP/1.1\r\n%s", tt.method, tt.path, tt.headers)
				if !strings.Contains(head, "Host:") {
					head += "Host: localhost\r\n"
				}
				body := bytes.Repeat([]byte(" "), tt.size)
				if chunked {
					head += "Transfer-Encoding: chunked\r\n\r\n"
					body = append(fmt.Appendf(nil, "%x\r\n", tt.size), body...)
					body = append(body, "\r\n0\r\n\r\n"...)
				} else {
					head += fmt.Sprintf("Content-Length: %d\r\n\r\n", tt.size)
				}
				a, err := exchange(conn, head, bytes.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				var problem struct{ Status int }
				if err := json.NewDecoder(a.Body).Decode(&problem); err != nil || a.StatusCode != tt.status || problem.Status != tt.status {
					t.Errorf("got %s, %+v, %v; want %d", a.Status, problem, err, tt.status)
				}
			})
		}
	}
}

// A connection with little left of its body serves the next request.
func TestRefusedClientKeepsItsConnection(t *testing.T) {
	s := newService(t, withKeys(t))
	server := s.listen(nil)
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 3 {
		a, err := exchange(conn, "POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000\r\n\r\n", strings.NewReader(strings.Repeat(" ", 2000)))
		if err != nil || a.StatusCode != http.StatusUnauthorized || a.Close {
			t.Fatalf("got %v, %v", a, err)
		}
		io.Copy(io.Discard, a.Body)
	}
}

// pipeListener hands out the ends of pipes, whose time is that of a bubble.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { close(l.closed); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// What a refused client sends is dropped for a bounded time, and a bounded number of
// bytes.
func TestRefusedClientCannotHoldItsConnection(t *testing.T) {
	for _, tt := range []struct {
		name  string
		piece int
		pause time.Duration
		most  int64 // bytes
	}{
		{"slow", 1, 100 * time.Millisecond, 100},
		{"silent", 1, time.Minute, 2},
		{"fast and endless", 1 << 20, 0, 2*api.MaxBulk + 4<<20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t, withKeys(t))
				server := api.NewServer(s)
				l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
				go server.Serve(l)
				defer server.Close()
				client, end := net.Pipe()
				l.conns <- end
				start := time.Now()
				io.WriteString(client, "POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000000\r\n\r\n")
				a, err := http.ReadResponse(bufio.NewReader(client), nil)
				if err != nil || a.StatusCode != http.StatusUnauthorized {
					t.Fatalf("got %v, %v", a, err)
				}
				var sent atomic.Int64
				var sender sync.WaitGroup
				defer sender.Wait()
				sender.Go(func() {
					for piece, err := make([]byte, tt.piece), error(nil); err == nil; time.Sleep(tt.pause) {
						var n int
						n, err = client.Write(piece)
						sent.Add(int64(n))
					}
				})
				io.Copy(io.Discard, client) // until the server closes it
				if took := time.Since(start); sent.Load() > tt.most || took > 7*time.Second {
					t.Errorf("%d bytes were taken in %v", sent.Load(), took)
				}
			})
		})
	}
}

// Python's urllib gets the answer too.
func TestUrllibReadsThatABodyIsTooLarge(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	server := newService(t).listen(nil)
	for path, size := range map[string]int{"/api/v1/jobs": 5 << 20, importPath: api.MaxBulk + 1<<20} {
		out, err := exec.Command(python, "-c", `
import sys, urllib.error, urllib.request
request = urllib.request.Request(sys.argv[1], data=b" " * int(sys.argv[2]), headers={"Content-Type": "application/json"})
try:
    urllib.request.urlopen(request)
except urllib.error.HTTPError as e:
    print(e.code, e.read().decode())
`, server.URL+path, fmt.Sprint(size)).CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), "413 ") || !strings.Contains(string(out), "the body is too large") {
			t.Errorf("%s: got %s, %v", path, out, err)
		}
	}
}
