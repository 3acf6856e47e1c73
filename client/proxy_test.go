package client_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// proxy passes connections on to a server, until it is cut.
type proxy struct {
	listener net.Listener
	target   string
	copies   sync.WaitGroup

	mu    sync.Mutex
	open  map[net.Conn]bool
	isCut bool
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: target, open: map[net.Conn]bool{}}
	p.copies.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.cut()
		p.copies.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", p.target)
		if err != nil || !p.take(near, far) {
			near.Close()
			continue
		}
		for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
			p.copies.Go(func() {
				io.Copy(way[0], way[1])
				near.Close()
				far.Close()
			})
		}
	}
}

// take notes a pair of connections, unless the proxy is cut.
func (p *proxy) take(near, far net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isCut {
		far.Close()
		return false
	}
	p.open[near], p.open[far] = true, true
	return true
}

// cut breaks all connections and lets no new ones be.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = true
	for c := range p.open {
		c.Close()
	}
	clear(p.open)
}

func (p *proxy) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = false
}
