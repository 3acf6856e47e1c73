//go:build unix

package chaos

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// wire is a TCP connection between workers and a server that can be made to stall:
// nothing passes, and nobody is told.
type wire struct {
	listener net.Listener
	to       string
	work     sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	ends  map[net.Conn]struct{}
	gate  chan struct{} // closed while bytes pass; nil once the wire is gone
	stale chan struct{} // closed when the connections of now are to be forgotten
}

// newWire gives a wire to the server at base, until tb ends.
func newWire(tb testing.TB, base string) *wire {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("listen for the wire: %v", err)
	}
	w := &wire{listener: listener, to: strings.TrimPrefix(base, "http://"), ends: map[net.Conn]struct{}{},
		gate: make(chan struct{}), stale: make(chan struct{})}
	close(w.gate)
	w.work.Go(w.accept)
	tb.Cleanup(w.close)
	return w
}

// base is the address for workers.
func (w *wire) base() string { return "http://" + w.listener.Addr().String() }

// stall lets nothing pass any more.
func (w *wire) stall() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gate = make(chan struct{})
}

// heal lets everything pass again, what was sent meanwhile first.
func (w *wire) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.gate)
}

// forget lets new connections pass again. Those that were there stay as they are:
// nothing passes and nobody is told, like one that a router on the way has
// forgotten.
func (w *wire) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.stale)
	w.stale = make(chan struct{})
	close(w.gate)
}

func (w *wire) accept() {
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
		if !w.own(near, far) {
			return
		}
		w.mu.Lock()
		stale := w.stale
		w.mu.Unlock()
		w.work.Go(func() { w.pass(far, near, stale) })
		w.work.Go(func() { w.pass(near, far, stale) })
	}
}

// own notes the ends of a connection, which the end of the wire closes.
func (w *wire) own(ends ...net.Conn) bool {
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

// pass copies what comes, and its end, as long as the wire lets it. The gate is
// looked at before anything is written: a copy under way may not slip through.
func (w *wire) pass(to, from net.Conn, stale chan struct{}) {
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

func (w *wire) close() {
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
