package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"github.com/belfry-sh/belfry"
)

const (
	leastPause    = 200 * time.Millisecond // before the first repetition; then twice as long each
	mostPause     = 5 * time.Second
	maxRetryAfter = 30 * time.Second // a server that asks for more is not waited for
)

// do makes a call, and repeats it while that makes sense.
func (c *Client) do(ctx context.Context, q *call) (*answer, error) {
	unknown := false // an earlier try may have been carried out
	for try := 0; ; try++ {
		a, err := c.try(ctx, q)
		if err == nil {
			return a, nil
		}
		var failed *Error
		if errors.As(err, &failed) && unknown {
			if failed.Status == http.StatusNotFound && q.method == http.MethodDelete {
				return &answer{status: http.StatusNoContent}, nil
			}
			failed.maybeDone = failed.Status == http.StatusPreconditionFailed || q.consumes && failed.Status == http.StatusNotFound
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s: %w", q.what, err)
		}
		pause, sensible := again(err, try)
		if !sensible || q.once || try >= c.retries || !outlasts(ctx, pause) || q.stream != nil && !q.stream.rewind() {
			return nil, fmt.Errorf("%s: %w", q.what, err)
		}
		unknown = unknown || failed == nil || failed.Status != http.StatusTooManyRequests
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: %w: the last try: %w", q.what, context.Cause(ctx), err)
		}
	}
}

// again says whether what failed may work a little later, and when.
func again(err error, try int) (time.Duration, bool) {
	pause := min(leastPause<<min(try, 10), mostPause)
	pause = time.Duration(float64(pause) * (0.5 + rand.Float64())) // so that clients that failed together do not return together
	var failed *Error
	var never *permanentError
	switch {
	case errors.As(err, &never):
		return 0, false
	case !errors.As(err, &failed):
		return pause, belfry.CodeOf(err) == belfry.Unavailable
	}
	switch failed.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return max(pause, failed.RetryAfter), failed.RetryAfter <= maxRetryAfter
	default:
		return 0, false
	}
}

// outlasts tells whether ctx lives longer than a pause, as far as is known.
func outlasts(ctx context.Context, pause time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > pause
}

// newTransport makes the connections of one Client. It speaks HTTP/1.1: a call
// that is given up closes its connection, so that one that fell silent is not
// used again.
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAliveConfig: keepAlive}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if tcp, ok := conn.(*net.TCPConn); ok {
				tcp.SetLinger(0) // what was given up must not arrive later
			}
			return conn, err
		},
		TLSHandshakeTimeout:    5 * time.Second,
		ResponseHeaderTimeout:  5 * time.Minute, // of the longest import; other calls have shorter limits
		ExpectContinueTimeout:  time.Second,
		IdleConnTimeout:        30 * time.Second,
		MaxIdleConns:           64,
		MaxIdleConnsPerHost:    16,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// keepAlive notices a peer that is gone for good within about ten seconds.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}
