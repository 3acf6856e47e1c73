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
	minDelay      = 200 * time.Millisecond // before the first retry; it doubles
	maxDelay      = 5 * time.Second
	maxRetryAfter = 30 * time.Second // beyond which a call fails instead
)

// do makes a call and retries it.
func (c *Client) do(ctx context.Context, q *call) (*answer, error) {
	unknown := false // an earlier try may have been executed
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
		delay, retryable := retryDelay(err, try)
		if !retryable || q.once || try >= c.retries || !hasTime(ctx, delay) || q.stream != nil && !q.stream.rewind() {
			return nil, fmt.Errorf("%s: %w", q.what, err)
		}
		unknown = unknown || failed == nil || failed.Status != http.StatusTooManyRequests
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: %w: the last try: %w", q.what, context.Cause(ctx), err)
		}
	}
}

// retryDelay is the delay before the next try, if a failure is temporary.
func retryDelay(err error, try int) (time.Duration, bool) {
	delay := min(minDelay<<min(try, 10), maxDelay)
	delay = time.Duration(float64(delay) * (0.5 + rand.Float64())) // so that clients that failed together do not retry together
	var failed *Error
	var permanent *permanentError
	switch {
	case errors.As(err, &permanent):
		return 0, false
	case !errors.As(err, &failed):
		return delay, belfry.CodeOf(err) == belfry.Unavailable
	}
	switch failed.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return max(delay, failed.RetryAfter), failed.RetryAfter <= maxRetryAfter
	default:
		return 0, false
	}
}

// hasTime reports whether the deadline of ctx is later than a delay.
func hasTime(ctx context.Context, delay time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > delay
}

// newTransport makes the connections of one Client. It uses HTTP/1.1: a call that is
// aborted closes its connection, so that a dead connection is not used again.
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAliveConfig: keepAlive}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if tcp, ok := conn.(*net.TCPConn); ok {
				tcp.SetLinger(0) // An aborted request must not arrive later.
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

// keepAlive detects a dead peer within about ten seconds.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}
