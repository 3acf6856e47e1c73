package api_test

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry/internal/api"
)

// queuedListener accepts connections that are in memory.
type queuedListener struct {
	net.Listener
	queue []*queuedConn
}

type queuedConn struct {
	net.Conn
	from   net.IP
	closed bool
}

func (c *queuedConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: c.from, Port: 1} }

func (c *queuedConn) Close() error {
	c.closed = true
	return nil
}

var errNoneLeft = errors.New("there are no more connections")

func (l *queuedListener) Accept() (net.Conn, error) {
	if len(l.queue) == 0 {
		return nil, errNoneLeft
	}
	c := l.queue[0]
	l.queue = l.queue[1:]
	return c, nil
}

// S16: whoever connects before they show a key has a limit by address, a /64 of IPv6, and all have
// one. What is beyond it is closed, and what has ended makes room.
func TestConnectionsAreLimited(t *testing.T) {
	inner := &queuedListener{}
	l := api.LimitConnections(inner)
	var open []net.Conn
	// connect makes connections from an address and returns how many were accepted; the others
	// must be closed.
	connect := func(from string, n int) (accepted int) {
		t.Helper()
		all := make([]*queuedConn, n)
		for i := range all {
			all[i] = &queuedConn{from: net.ParseIP(from)}
		}
		inner.queue = all
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			open, accepted = append(open, c), accepted+1
		}
		for i, c := range all {
			if c.closed != (i >= accepted) {
				t.Fatalf("%s: connection %d of %d is closed: %t, and %d were accepted", from, i, n, c.closed, accepted)
			}
		}
		return accepted
	}
	expect := func(from string, n, want int) {
		t.Helper()
		if got := connect(from, n); got != want {
			t.Errorf("%s: %d of %d connections were accepted, want %d", from, got, n, want)
		}
	}
	const most = api.MaxAddressConnections
	expect("192.0.2.1", most+5, most)
	expect("192.0.2.2", 10, 10)
	expect("2001:db8::1", most-1, most-1)
	expect("2001:db8::2", 5, 1)
	expect("2001:db8:0:1::2", 5, 5)
	for _, c := range open[:3] {
		c.Close()
		c.Close() // which counts once
	}
	expect("192.0.2.1", 10, 3)

	expect("127.0.0.1", most+10, most+10) // a proxy may be there
	rest := api.MaxConnections - (len(open) - 3)
	expect("::1", rest+5, rest)
	expect("192.0.2.3", 5, 0)
	open[3].Close()
	expect("192.0.2.3", 5, 1)
}

// A path of the API is not one of the page, whatever the method is.
func TestMethodsOfOpenPaths(t *testing.T) {
	s := newService(t, withKeys(t), func(o *api.Options) {
		o.Page = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusNotFound)
		})
	})
	for _, path := range []string{"/livez", "/readyz", "/docs/api", "/api/v1/openapi.json"} {
		for _, method := range []string{"POST", "PUT", "DELETE", "PATCH"} {
			a := s.send(method, path, "", "Accept: text/html")
			if a.status != http.StatusMethodNotAllowed || !strings.HasPrefix(a.header.Get("Content-Type"), "application/problem+json") || !strings.Contains(a.header.Get("Allow"), "GET") {
				t.Errorf("%s %s: %d %v %s", method, path, a.status, a.header, a.body)
			}
		}
	}
	if a := s.send("POST", "/nothing", "", "Accept: text/html"); a.status != http.StatusNotFound || a.header.Get("Content-Type") != "text/html" {
		t.Errorf("what the page has: %d %v", a.status, a.header)
	}
}
