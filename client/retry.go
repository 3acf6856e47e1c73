package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
		var told *Error
		if errors.As(err, &told) && unknown {
			if told.Status == http.StatusNotFound && q.method == http.MethodDelete {
				return &answer{status: http.StatusNoContent}, nil
			}
			told.doubt = told.Status == http.StatusPreconditionFailed || q.moves && told.Status == http.StatusNotFound
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s: %w", q.what, err)
		}
		pause, sensible := again(err, try)
		if !sensible || q.once || try >= c.retries || !outlasts(ctx, pause) || q.stream != nil && !q.stream.rewind() {
			return nil, fmt.Errorf("%s: %w", q.what, err)
		}
		unknown = unknown || told == nil || told.Status != http.StatusTooManyRequests
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
	var told *Error
	var never *hopeless
	switch {
	case errors.As(err, &never):
		return 0, false
	case !errors.As(err, &told):
		return pause, belfry.CodeOf(err) == belfry.Unavailable
	}
	switch told.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return max(pause, told.RetryAfter), told.RetryAfter <= maxRetryAfter
	default:
		return 0, false
	}
}

// outlasts tells whether ctx lives longer than a pause, as far as is known.
func outlasts(ctx context.Context, pause time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > pause
}
