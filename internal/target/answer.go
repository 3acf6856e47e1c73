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
	maxDrain     = 1 << 20          // bytes read past what is kept, so that the connection can be used again
	drainTimeout = time.Second      // and for how long
	stallTimeout = 30 * time.Second // between two pieces of a body
	maxLocation  = 200              // bytes shown of where a redirect points
)

var (
	errStalled = fmt.Errorf("the answer stalled for %s", stallTimeout)
	errOutputFull  = errors.New("enough of the answer was read")
)

// read takes the first belfry.MaxOutput bytes of an answer's body and closes it.
// A little more is read and thrown away; a longer or slower rest is cut off by
// closing the connection, which is no error. cancel ends the call.
func readBody(resp *http.Response, cancel context.CancelCauseFunc) ([]byte, error) {
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return nil, nil // what follows is no body
	}
	stall := time.AfterFunc(stallTimeout, func() { cancel(errStalled) })
	defer stall.Stop()
	kept, err := io.ReadAll(io.LimitReader(&stallReader{resp.Body, stall}, belfry.MaxOutput))
	if err != nil {
		return kept, fmt.Errorf("the answer broke off: %w", err)
	}
	if len(kept) == belfry.MaxOutput {
		enough := time.AfterFunc(drainTimeout, func() { cancel(errOutputFull) })
		defer enough.Stop()
		_, _ = io.CopyN(io.Discard, resp.Body, maxDrain)
	}
	return kept, nil
}

// lively is a body that must not stall: each read winds up the timer again.
type stallReader struct {
	body  io.Reader
	stall *time.Timer
}

func (l *stallReader) Read(p []byte) (int, error) {
	l.stall.Reset(stallTimeout)
	return l.body.Read(p)
}

// answered is the error for an answer that is not 2xx. One that asks to be left
// alone for a while is not tried again before that.
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

// retryAfter reads how long a target wants to be left alone, up to the longest that
// a run may wait. A date counts from the target's own, if it says that too: its clock
// may be wrong. What cannot be read says nothing.
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

// refusal says what a target answered instead of 2xx.
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

// location is where a redirect points, without what may be secret.
func location(resp *http.Response) string {
	u, err := url.Parse(resp.Header.Get("Location"))
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment, u.RawFragment = nil, "", "", ""
	return sanitize.Text(u.String(), maxLocation)
}
