package pgtest

import (
	"context"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// Proxy is between clients and a PostgreSQL server, and makes the network between them fail on demand. It reads the
// protocol, so TLS is not possible: its clients use URL, and the server must accept them without.
// Its methods may be called from several goroutines.
type Proxy struct {
	listener net.Listener
	network  string // of the server
	address  string
	url      string
	work     sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	links   map[*link]struct{}
	gate    chan struct{} // closed while bytes may pass
	cut     bool
	closed  bool
	rules   []*dropRule
	dropped int
}

// dropRule says which replies are dropped.
type dropRule struct {
	match    string // in lower case
	left     int
	onCommit bool // drop the reply of the commit, not that of the statement itself
}

// NewProxy returns a proxy in front of the server of upstreamURL, until tb ends.
func NewProxy(tb testing.TB, upstreamURL string) *Proxy {
	tb.Helper()
	u, err := parseURL(upstreamURL)
	if err != nil {
		tb.Fatal(err)
	}
	config, err := pgconn.ParseConfig(upstreamURL)
	if err != nil {
		tb.Fatalf("read the address of PostgreSQL: %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("listen for the proxy: %v", err)
	}
	p := &Proxy{
		listener: listener,
		url:      replaceHost(u, listener.Addr().String()),
		links:    map[*link]struct{}{},
		gate:     make(chan struct{}),
	}
	p.network, p.address = pgconn.NetworkAddress(config.Host, config.Port)
	close(p.gate)
	p.work.Go(p.accept)
	tb.Cleanup(p.Close)
	return p
}

// replaceHost returns u with another host and without TLS.
func replaceHost(u *url.URL, host string) string {
	v := *u
	v.Host = host
	q := v.Query()
	q.Del("host")
	q.Del("port")
	q.Set("sslmode", "disable")
	v.RawQuery = q.Encode()
	return v.String()
}

// URL is the address for clients: that of the server, with the proxy's host and port.
func (p *Proxy) URL() string { return p.url }

// EatReplies drops the replies to the next n executions of a statement whose text contains match, ignoring case: the
// server executes the statement, with everything that was sent in the same round trip, and is ready again, but the client
// receives nothing and finds its connection closed. A statement on its own is committed by then; one inside an explicit
// transaction is rolled back with it. Preparing a statement is not executing it.
// The match "commit" is for the commits of explicit transactions, and for any other statement that has the word in it.
func (p *Proxy) EatReplies(match string, n int) {
	p.addRule(&dropRule{match: strings.ToLower(match), left: n})
}

// EatCommits does the same to the next n commits of explicit transactions in which a statement was executed whose text
// contains match. The transaction's statements have to arrive one by one, not as one text with semicolons.
func (p *Proxy) EatCommits(match string, n int) {
	p.addRule(&dropRule{match: strings.ToLower(match), left: n, onCommit: true})
}

func (p *Proxy) addRule(o *dropRule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, o)
}

// Eaten returns how many replies were dropped so far. It includes that of a client that has seen its connection closed.
func (p *Proxy) Eaten() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropped
}

// matching returns the unused rules of a kind whose text is in sql.
func (p *Proxy) matching(sql string, commits bool) []*dropRule {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []*dropRule
	for _, o := range p.rules {
		if o.onCommit == commits && o.left > 0 && strings.Contains(sql, o.match) {
			found = append(found, o)
		}
	}
	return found
}

// useRule uses the first of the rules that has replies left, and reports whether there was one.
func (p *Proxy) useRule(rules []*dropRule) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range rules {
		if o.left > 0 {
			o.left--
			return true
		}
	}
	return false
}

func (p *Proxy) countDropped() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropped++
}

// Cut closes all connections, on both sides, and every new one at once, until Heal.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	p.closeLinks()
}

// Stall lets nothing pass until Heal and closes nothing: neither side notices anything, not even that the other has
// closed its connection. What was sent meanwhile arrives after Heal.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open() {
		p.gate = make(chan struct{})
	}
}

// Silence lets nothing more pass on the connections that there are, for good, and closes none of them: as a firewall
// that forgets them. New ones work.
func (p *Proxy) Silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.silent.Store(true)
	}
}

// Heal ends Cut and Stall.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
	if !p.open() {
		close(p.gate)
	}
}

// open reports whether bytes may pass. It needs mu.
func (p *Proxy) open() bool {
	select {
	case <-p.gate:
		return true
	default:
		return false
	}
}

// Close ends the proxy and all its connections. It returns when nothing of them is left.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.listener.Close()
	p.closeLinks()
	p.mu.Unlock()
	p.work.Wait()
}

// closeLinks needs mu.
func (p *Proxy) closeLinks() {
	for l := range p.links {
		l.close()
	}
}

// pass waits until bytes may pass, and reports false if ctx ends before.
func (p *Proxy) pass(ctx context.Context) bool {
	p.mu.Lock()
	gate := p.gate
	p.mu.Unlock()
	select {
	case <-gate:
		return true
	case <-ctx.Done():
		return false
	}
}

// accept accepts clients until the proxy is closed.
func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.addLink(conn)
	}
}

func (p *Proxy) addLink(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut || p.closed {
		conn.(*net.TCPConn).SetLinger(0) // the client sees a reset
		conn.Close()
		return
	}
	l := newLink(p, conn)
	p.links[l] = struct{}{}
	p.work.Go(func() {
		l.run()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	})
}
