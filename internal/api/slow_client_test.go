package api_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/api"
)

// listen serves over real connections, with the limits of the real server but for
// what is changed.
func (s *service) listen(change func(*http.Server)) *httptest.Server {
	server := httptest.NewUnstartedServer(nil)
	server.Config = api.NewServer(s)
	if change != nil {
		change(server.Config)
	}
	server.Start()
	s.t.Cleanup(server.Close)
	return server
}

// listenTLS is listen over TLS.
func (s *service) listenTLS(change func(*http.Server)) *httptest.Server {
	server := httptest.NewUnstartedServer(nil)
	server.Config, server.EnableHTTP2 = api.NewServer(s), true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	if change != nil {
		change(server.Config)
	}
	server.StartTLS()
	s.t.Cleanup(server.Close)
	return server
}

// halfHello is the beginning of a TLS handshake.
const halfHello = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"

// openSlowConnections opens connections that each send the beginning of a request at once and
// the rest byte by byte, one a second, until it is stopped.
func openSlowConnections(t testing.TB, address string, n int, overTLS bool) (stop func()) {
	t.Helper()
	heads := []string{
		"GET /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
		"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{",
		"POST /api/v1/jobs/bulk HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\nContent-Length: 1000000\r\n\r\n",
		"POST /api/v1/workers/" + unknownID + "/finish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 5000000\r\n\r\n{",
	}
	if overTLS {
		heads = []string{halfHello, ""}
	}
	connections := make([]net.Conn, n)
	for i := range connections {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		connections[i] = c
		io.WriteString(c, heads[i%len(heads)])
	}
	end := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			for _, c := range connections {
				c.Write([]byte(" ")) // an error means that the server closed it
			}
			select {
			case <-tick.C:
			case <-end:
				return
			}
		}
	})
	return func() {
		close(end)
		done.Wait()
		for _, c := range connections {
			c.Close()
		}
	}
}

// latencies asks for a job and a list in turn, and gives the median and the slowest
// of a hundred.
func latencies(t testing.TB, server *httptest.Server, path string) (median, p99 time.Duration) {
	t.Helper()
	var took []time.Duration
	for i := range 400 {
		start := time.Now()
		response, err := server.Client().Get(server.URL + []string{path, "/api/v1/jobs?limit=1"}[i%2])
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Fatalf("got %s", response.Status)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)*99/100]
}

func TestSlowClientsDoNotSlowOthers(t *testing.T) {
	s := newService(t)
	s.serveBesideSlowClients(s.listen(nil))
}

func TestHalfHandshakesDoNotSlowOthers(t *testing.T) {
	s := newService(t)
	s.serveBesideSlowClients(s.listenTLS(nil))
}

func (s *service) serveBesideSlowClients(server *httptest.Server) {
	t := s.t
	path := "/api/v1/jobs/" + s.create(validJob).ID.String()
	latencies(t, server, path) // to warm up
	median, p99 := latencies(t, server, path)
	stop := openSlowConnections(t, server.Listener.Addr().String(), 1000, server.TLS != nil)
	defer stop()
	slowMedian, slowP99 := latencies(t, server, path)
	t.Logf("the median was %v and is %v, of a hundred the slowest was %v and is %v", median, slowMedian, p99, slowP99)
	// Who had to wait for a slow client would wait for as long as that is put up
	// with, which is seconds. A busy machine may hold up one in a hundred, too.
	if slowMedian > 5*median+20*time.Millisecond || slowP99 > 10*p99+3*time.Second {
		t.Errorf("the median was %v and is %v, of a hundred the slowest was %v and is %v", median, slowMedian, p99, slowP99)
	}
	created, err := server.Client().Post(server.URL+importPath, "application/x-ndjson", strings.NewReader(jobLine("quick")))
	if err != nil || created.StatusCode != http.StatusCreated {
		t.Fatalf("an import meanwhile: %v, error %v", created, err)
	}
	created.Body.Close()
}

func TestSlowClientGetsRequestTimeout(t *testing.T) {
	s := newService(t)
	server := s.listen(func(c *http.Server) { c.ReadHeaderTimeout, c.ReadTimeout = 200*time.Millisecond, 200*time.Millisecond })
	for _, head := range []string{
		"GET /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\n",
		"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{",
		"PATCH /api/v1/jobs/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{",
	} {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, head)
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if head[0] != 'G' {
			response, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || response.StatusCode != http.StatusRequestTimeout || response.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%.20s: got %v, error %v", head, response, err)
			}
		} else if n, err := io.Copy(io.Discard, c); err != nil {
			t.Errorf("%.20s: got %d bytes, error %v", head, n, err)
		}
		c.Close()
	}
}

func TestSlowHandshakeIsClosed(t *testing.T) {
	server := newService(t).listenTLS(func(c *http.Server) { c.ReadHeaderTimeout = 200 * time.Millisecond })
	for _, head := range []string{"", halfHello} {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, head)
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a handshake that stops after %d bytes stays open", len(head))
		}
		c.Close()
	}
}

// slowReader is a body that comes in pieces, with a pause before each.
type slowReader struct {
	pieces []string
	pause  time.Duration
}

func (b *slowReader) Read(p []byte) (int, error) {
	if len(b.pieces) == 0 {
		return 0, io.EOF
	}
	time.Sleep(b.pause)
	n := copy(p, b.pieces[0])
	if b.pieces[0] = b.pieces[0][n:]; b.pieces[0] == "" {
		b.pieces = b.pieces[1:]
	}
	return n, nil
}

func TestImportsAndClaimsOutlastServerTimeouts(t *testing.T) {
	s := newService(t)
	server := s.listen(func(c *http.Server) { c.ReadTimeout, c.WriteTimeout = 100*time.Millisecond, 150*time.Millisecond })
	var pieces []string
	for i := range 8 {
		pieces = append(pieces, jobLine(fmt.Sprint(i))+strings.Repeat("\n", 30<<10))
	}
	response, err := server.Client().Post(server.URL+importPath, "application/x-ndjson", &slowReader{pieces, 50 * time.Millisecond})
	if err != nil || response.StatusCode != http.StatusCreated {
		t.Fatalf("a slow import: got %v, error %v", response, err)
	}
	response.Body.Close()
	path := s.registerWorker()
	start := time.Now()
	response, err = server.Client().Post(server.URL+path+"/claim", "application/json", strings.NewReader(`{"handlers": ["send"], "wait_seconds": 0.5}`))
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("a long poll: got %v, error %v", response, err)
	}
	text, err := io.ReadAll(response.Body)
	response.Body.Close()
	if took := time.Since(start); err != nil || string(text) != `{"runs":[]}`+"\n" || took < 500*time.Millisecond {
		t.Errorf("a long poll: got %q after %v, error %v", text, took, err)
	}
}
