package api

import (
	"net"
	"sync"

	"github.com/belfry-sh/belfry/internal/auth"
)

// How many connections a listener has at once. Those of this machine count in total alone: a proxy
// may be on it.
const (
	maxConnections        = 20_000
	maxAddressConnections = 2_000
)

// LimitConnections closes connections beyond the most that an address, or all of them, may have.
func LimitConnections(l net.Listener) net.Listener {
	return &limitedListener{Listener: l, from: map[string]int{}}
}

type limitedListener struct {
	net.Listener
	mu    sync.Mutex
	total int
	from  map[string]int
}

// Accept waits for a connection that is allowed.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := ""
		if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
			address = auth.Network(tcp.IP.String())
		}
		if l.add(address) {
			return &limitedConn{Conn: c, close: sync.OnceFunc(func() { l.remove(address) })}, nil
		}
		c.Close()
	}
}

func (l *limitedListener) add(address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= maxConnections || address != "" && l.from[address] >= maxAddressConnections {
		return false
	}
	l.total++
	l.from[address]++
	return true
}

func (l *limitedListener) remove(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if l.from[address]--; l.from[address] == 0 {
		delete(l.from, address)
	}
}

type limitedConn struct {
	net.Conn
	close func()
}

// Close frees the place of the connection.
func (c *limitedConn) Close() error {
	c.close()
	return c.Conn.Close()
}
