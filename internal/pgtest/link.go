package pgtest

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
)

// link is one client's connection through the proxy.
type link struct {
	proxy  *Proxy
	client net.Conn
	ctx    context.Context // ends when the link is closed
	cancel context.CancelFunc

	mu     sync.Mutex // guards the field below
	server net.Conn   // nil until the startup message of the client

	silent atomic.Bool

	sessionMu sync.Mutex // guards the field below; the proxy's own lock may be taken under it
	session   session
}

func newLink(p *Proxy, client net.Conn) *link {
	l := &link{proxy: p, client: client, session: newSession(p)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// close cuts both sides. It may be called more than once.
func (l *link) close() {
	l.cancel()
	l.client.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.server != nil {
		l.server.Close()
	}
}

// pass waits until bytes may pass, and reports false if the link is closed before.
func (l *link) pass() bool {
	if !l.proxy.pass(l.ctx) {
		return false
	}
	if l.silent.Load() {
		<-l.ctx.Done()
		return false
	}
	return true
}

// run forwards messages until one side closes its connection or the link is closed.
func (l *link) run() {
	defer l.close()
	in := bufio.NewReader(l.client)
	code, startup, err := l.startup(in)
	if !l.pass() || err != nil {
		return
	}
	server, err := l.dial()
	if err != nil {
		return
	}
	if _, err := server.Write(startup); err != nil {
		return
	}
	if code == cancelRequest {
		io.Copy(l.client, server) // it responds by closing the connection
		return
	}
	var responses sync.WaitGroup
	responses.Go(func() {
		defer l.close()
		l.forwardResponses(server)
	})
	l.forwardRequests(in, server)
	l.close()
	responses.Wait()
}

// startup reads the startup message of the client, and declines requests for encryption before it.
func (l *link) startup(in *bufio.Reader) (code uint32, raw []byte, err error) {
	for {
		code, raw, err = readStartup(in)
		if err != nil || (code != sslRequest && code != gssRequest) {
			return code, raw, err
		}
		if !l.pass() {
			return 0, nil, l.ctx.Err()
		}
		if _, err := l.client.Write([]byte{'N'}); err != nil {
			return 0, nil, err
		}
	}
}

// dial connects to the server.
func (l *link) dial() (net.Conn, error) {
	var dialer net.Dialer
	server, err := dialer.DialContext(l.ctx, l.proxy.network, l.proxy.address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.server = server
	if err := l.ctx.Err(); err != nil { // closed meanwhile, without knowing of the server
		server.Close()
		return nil, err
	}
	return server, nil
}

// forwardRequests forwards what the client sends. Messages without a response are held back until one has a response, so
// that it is known whether the response is dropped before the server can begin with it.
func (l *link) forwardRequests(in *bufio.Reader, server net.Conn) {
	var held []byte
	var m message
	for {
		err := m.read(in)
		if !l.pass() || err != nil {
			return // the end of the connection waits for Heal too
		}
		l.sessionMu.Lock()
		forward := l.session.request(m)
		l.sessionMu.Unlock()
		if !forward {
			continue
		}
		held = append(held, m.raw...)
		if strings.IndexByte("PBDEC", m.kind()) >= 0 {
			continue
		}
		if _, err := server.Write(held); err != nil {
			return
		}
		held = held[:0]
	}
}

// forwardResponses forwards what the server sends, until a response is dropped.
func (l *link) forwardResponses(server net.Conn) {
	in, out := bufio.NewReader(server), bufio.NewWriter(l.client)
	var m message
	for {
		err := m.read(in)
		if !l.pass() {
			return
		}
		if err != nil {
			out.Flush()
			return
		}
		l.sessionMu.Lock()
		deliver, last := l.session.response(m)
		l.sessionMu.Unlock()
		if deliver {
			out.Write(m.raw) // an error stays with out and shows in Flush
		}
		if last {
			l.proxy.countDropped() // first, so that a client that sees its connection closed sees the count
		}
		if last || in.Buffered() == 0 {
			if err := out.Flush(); err != nil || last {
				return
			}
		}
	}
}
