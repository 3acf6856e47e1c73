//go:build unix

package chaos

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// tcpProxy is a TCP connection between workers and a server that can stall: nothing
// passes, and neither side is notified.
type tcpProxy struct {
	listener net.Listener
	to       string
	work     sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	ends  map[net.Conn]struct{}
	gate  chan struct{} // closed while bytes pass; nil once the wire is gone
	stale chan struct{} // closed when the connections of now are to be forgotten
}

// newTCPProxy makes a proxy to the server at base, until tb ends.
func newTCPProxy(tb testing.TB, base string) *tcpProxy {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("listen for the wire: %v", err)
	}
	w := &tcpProxy{listener: listener, to: strings.TrimPrefix(base, "http://"), ends: map[net.Conn]struct{}{},
		gate: make(chan struct{}), stale: make(chan struct{})}
	close(w.gate)
	w.work.Go(w.accept)
	tb.Cleanup(w.close)
	return w
}

// base is the address for workers.
func (w *tcpProxy) base() string { return "http://" + w.listener.Addr().String() }

// stall lets nothing pass any more.
func (w *tcpProxy) stall() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gate = make(chan struct{})
}

// resume lets everything pass again, what was sent meanwhile first.
func (w *tcpProxy) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.gate)
}

// dropConnections lets new connections pass again. Existing ones stay stalled, like
// connections that a router has dropped from its table.
func (w *tcpProxy) dropConnections() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.stale)
	w.stale = make(chan struct{})
	close(w.gate)
}

func (w *tcpProxy) accept() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", w.to)
		if err != nil {
			near.Close()
			continue
		}
		if !w.track(near, far) {
			return
		}
		w.mu.Lock()
		stale := w.stale
		w.mu.Unlock()
		w.work.Go(func() { w.copy(far, near, stale) })
		w.work.Go(func() { w.copy(near, far, stale) })
	}
}

// track records the ends of a connection, which close closes.
func (w *tcpProxy) track(ends ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, end := range ends {
		if w.ends == nil {
			end.Close()
		} else {
			w.ends[end] = struct{}{}
		}
	}
	return w.ends != nil
}

// copy copies what comes, and its end, while the proxy allows it. The gate is checked
// before every write, so that a copy under way cannot slip through.
func (w *tcpProxy) copy(to, from net.Conn, stale chan struct{}) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		w.mu.Lock()
		gate := w.gate
		w.mu.Unlock()
		select {
		case <-gate:
		case <-stale:
		}
		select {
		case <-stale:
			io.Copy(io.Discard, from) // swallowed; the end of the test closes it
			return
		default:
		}
		if n > 0 {
			if _, failed := to.Write(buf[:n]); failed != nil {
				err = failed
			}
		}
		if err != nil {
			to.Close()
			from.Close()
			return
		}
	}
}

func (w *tcpProxy) close() {
	w.listener.Close()
	w.mu.Lock()
	ends := w.ends
	w.ends = nil
	select {
	case <-w.gate:
	default:
		close(w.gate)
	}
	w.mu.Unlock()
	for end := range ends {
		end.Close()
	}
	w.work.Wait()
}
