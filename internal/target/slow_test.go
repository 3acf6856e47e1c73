package target

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/worker"
)

// Slow targets are tried over pipes, in a bubble where time is free.
func callSlow(t *testing.T, timeout time.Duration, serve func(conn net.Conn)) (run *belfry.Run, took time.Duration, err error) {
	t.Helper()
	h := NewHTTP(HTTPOptions{})
	defer h.Close()
	served := make(chan struct{})
	h.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			defer close(served)
			defer there.Close()
			if readRequest(bufio.NewReader(there)) {
				serve(there)
			}
		}()
		return here, nil
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), timeout, worker.ErrTimedOut)
	defer cancel()
	run = &belfry.Run{Payload: json.RawMessage(`{"url":"http://slow.example","body":1}`)}
	began := time.Now()
	err = h.Handle(ctx, run)
	took = time.Since(began)
	<-served
	return run, took, err
}

// hang holds a connection until the other side closes it.
func hang(conn net.Conn) { _, _ = conn.Read(make([]byte, 1)) }

func TestSlowTargetsTimeOut(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\n"
	for _, tt := range []struct {
		name    string
		timeout time.Duration
		serve   func(net.Conn)
		took    time.Duration
		err     string
		output  int
	}{
		{"no answer ends with the attempt", time.Hour, hang, time.Hour, "call the target: the attempt timed out", 0},
		{"headers that drip end with the attempt", time.Minute, func(conn net.Conn) {
			fmt.Fprint(conn, head)
			writeSlowly(conn, "X")
		}, time.Minute, "call the target: the attempt timed out", 0},
		{"a body that drips ends with the attempt, and what came is kept", time.Minute + 500*time.Millisecond, func(conn net.Conn) {
			fmt.Fprint(conn, head+"Content-Length: 1000\r\n\r\n")
			writeSlowly(conn, "x")
		}, time.Minute + 500*time.Millisecond, "call the target: the attempt timed out", 61},
		{"a body that stalls ends after half a minute", time.Hour, func(conn net.Conn) {
			fmt.Fprint(conn, head+"Content-Length: 1000\r\n\r\nhello")
			hang(conn)
		}, stallTimeout, "call the target: the response stalled for 30s", 5},
		{"a late answer is an answer", time.Hour, func(conn net.Conn) {
			time.Sleep(59 * time.Minute)
			fmt.Fprint(conn, head+"Content-Length: 2\r\n\r\nok")
		}, 59 * time.Minute, "", 2},
		{"a body is slow but lively", time.Hour, func(conn net.Conn) {
			fmt.Fprint(conn, head+"Content-Length: 10\r\n\r\n")
			for range 10 {
				time.Sleep(20 * time.Second)
				fmt.Fprint(conn, "x")
			}
		}, 200 * time.Second, "", 10},
		{"what is not kept is not waited for", time.Hour, func(conn net.Conn) {
			fmt.Fprint(conn, head+"Content-Length: 100000\r\n\r\n"+strings.Repeat("x", belfry.MaxOutput))
			writeSlowly(conn, "x")
		}, drainTimeout, "", belfry.MaxOutput},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				run, took, err := callSlow(t, tt.timeout, tt.serve)
				if took != tt.took {
					t.Errorf("it took %s, want %s", took, tt.took)
				}
				if (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
					t.Errorf("got %v, want %q", err, tt.err)
				}
				if len(run.Report.Output) != tt.output {
					t.Errorf("%d bytes were kept, want %d", len(run.Report.Output), tt.output)
				}
			})
		})
	}
}

// writeSlowly writes for ever, once a second.
func writeSlowly(conn net.Conn, s string) {
	for {
		if _, err := fmt.Fprint(conn, s); err != nil {
			return
		}
		time.Sleep(time.Second)
	}
}
