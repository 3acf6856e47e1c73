package pgtest

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"sync"
)

// link is one client's connection through the proxy.
type link struct {
	proxy  *Proxy
	client net.Conn
	ctx    context.Context // ends when the link is closed
	cancel context.CancelFunc

	mu     sync.Mutex // guards the field below
	server net.Conn   // nil until the client has introduced itself

	talk    sync.Mutex // guards the field below; the proxy's own lock may be taken under it
	session session
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

// run carries messages until one side hangs up or the link is closed.
func (l *link) run() {
	defer l.close()
	in := bufio.NewReader(l.client)
	code, hello, err := l.introduction(in)
	if !l.proxy.pass(l.ctx) || err != nil {
		return
	}
	server, err := l.dial()
	if err != nil {
		return
	}
	if _, err := server.Write(hello); err != nil {
		return
	}
	if code == cancelRequest {
		io.Copy(l.client, server) // it answers by hanging up
		return
	}
	var answers sync.WaitGroup
	answers.Go(func() {
		defer l.close()
		l.carryAnswers(server)
	})
	l.carryQuestions(in, server)
	l.close()
	answers.Wait()
}

// introduction reads the client's first message, having declined any wish for encryption before it.
func (l *link) introduction(in *bufio.Reader) (code uint32, raw []byte, err error) {
	for {
		code, raw, err = readIntroduction(in)
		if err != nil || (code != sslRequest && code != gssRequest) {
			return code, raw, err
		}
		if !l.proxy.pass(l.ctx) {
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

// carryQuestions takes what the client sends to the server. What asks for no answer yet is held back until something does,
// so that it is known whether an answer will be eaten before the server can begin with it.
func (l *link) carryQuestions(in *bufio.Reader, server net.Conn) {
	var held []byte
	var m message
	for {
		err := m.read(in)
		if !l.proxy.pass(l.ctx) || err != nil {
			return // a hang-up is news too, and waits for Heal
		}
		l.talk.Lock()
		forward := l.session.question(m)
		l.talk.Unlock()
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

// carryAnswers takes what the server sends to the client, until an answer had to be eaten.
func (l *link) carryAnswers(server net.Conn) {
	in, out := bufio.NewReader(server), bufio.NewWriter(l.client)
	var m message
	for {
		err := m.read(in)
		if !l.proxy.pass(l.ctx) {
			return
		}
		if err != nil {
			out.Flush()
			return
		}
		l.talk.Lock()
		deliver, last := l.session.answer(m)
		l.talk.Unlock()
		if deliver {
			out.Write(m.raw) // an error stays with out and shows in Flush
		}
		if last {
			l.proxy.count() // first, so that whoever sees the hang-up sees the count
		}
		if last || in.Buffered() == 0 {
			if err := out.Flush(); err != nil || last {
				return
			}
		}
	}
}
