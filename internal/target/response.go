package target

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
)

const (
	maxDrain     = 1 << 20          // bytes read beyond what is kept, so that the connection can be reused
	drainTimeout = time.Second      // and for how long
	stallTimeout = 30 * time.Second // between two reads of a body
	maxLocation  = 200              // bytes shown of where a redirect points
)

var (
	errStalled    = fmt.Errorf("the response stalled for %s", stallTimeout)
	errOutputFull = errors.New("enough of the response was read")
)

// readBody returns the first belfry.MaxOutput bytes of a body and closes it. Up to
// maxDrain more are read and discarded; after that the connection is closed, which is no
// error. cancel ends the request.
func readBody(resp *http.Response, cancel context.CancelCauseFunc) ([]byte, error) {
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return nil, nil // what follows is no body
	}
	stall := time.AfterFunc(stallTimeout, func() { cancel(errStalled) })
	defer stall.Stop()
	kept, err := io.ReadAll(io.LimitReader(&stallReader{resp.Body, stall}, belfry.MaxOutput))
	if err != nil {
		return kept, fmt.Errorf("the response ended early: %w", err)
	}
	if len(kept) == belfry.MaxOutput {
		drain := time.AfterFunc(drainTimeout, func() { cancel(errOutputFull) })
		defer drain.Stop()
		_, _ = io.CopyN(io.Discard, resp.Body, maxDrain)
	}
	return kept, nil
}

// stallReader is a body that must not stall: each read resets the timer.
type stallReader struct {
	body  io.Reader
	stall *time.Timer
}

func (r *stallReader) Read(p []byte) (int, error) {
	r.stall.Reset(stallTimeout)
	return r.body.Read(p)
}

// statusError is the error for a response that is not 2xx. A Retry-After of 429 and 503
// delays the retry.
func statusError(resp *http.Response) error {
	err := describeStatus(resp)
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if wait := retryAfter(resp.Header, time.Now()); wait > 0 {
			return belfry.RetryAfter(err, wait)
		}
	}
	return err
}

// retryAfter reads the header Retry-After, up to belfry.MaxDelay. A date is compared with
// the header Date, if there is one: the clock of the target may be wrong. An invalid
// header is ignored.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, uint64(belfry.MaxDelay/time.Second))) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(at.Sub(now), belfry.MaxDelay)
}

// describeStatus says which status the target responded with.
func describeStatus(resp *http.Response) error {
	status := fmt.Sprint(resp.StatusCode)
	if text := http.StatusText(resp.StatusCode); text != "" {
		status += " " + text
	}
	if place := location(resp); place != "" && resp.StatusCode >= 300 && resp.StatusCode <= 399 {
		return fmt.Errorf("the target answered %s to %s; redirects are not followed", status, place)
	}
	return fmt.Errorf("the target answered %s", status)
}

// location is where a redirect points, without parts that may be secret.
func location(resp *http.Response) string {
	u, err := url.Parse(resp.Header.Get("Location"))
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment, u.RawFragment = nil, "", "", ""
	return sanitize.Text(u.String(), maxLocation)
}
