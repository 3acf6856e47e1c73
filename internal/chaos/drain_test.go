//go:build unix

package chaos

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/pgtest"
)

func TestSIGTERMLosesNothing(t *testing.T) {
	t.Run("sqlite, and the node is started again", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		drainUnderWork(t, func(args ...string) *process { return onSQLite(t, dir, args...) }, false)
	})
	t.Run("postgres, and another node is there", func(t *testing.T) {
		t.Parallel()
		url := pgtest.Database(t, nil)
		drainUnderWork(t, func(args ...string) *process { return onPostgres(t, url, args...) }, true)
	})
}

// drainUnderWork ends a node that has running callbacks: those of a second finish,
// those that hang are returned and run again, which costs none of their no
// retries.
func drainUnderWork(t *testing.T, open func(args ...string) *process, twoNodes bool) {
	first := open("--drain-timeout", "3s")
	at := first
	d := newDriver(t, func() string { return at.address() })
	var short, hanging []requestedJob
	for range 20 {
		short = append(short, d.onceIn(time.Second, "/slow/1000", quick(spec{"max_retries": 0})))
		hanging = append(hanging, d.onceIn(time.Second, "/hang/1", quick(spec{"max_retries": 0, "timeout_seconds": 60})))
	}
	d.receiver.awaitDelivery(t, time.Minute, append(short, hanging...)...)
	since := time.Now()
	gone := first.term()
	if twoNodes {
		at = open()
	}
	d.wantUnready(first, gone)
	select {
	case <-gone:
	case <-time.After(time.Minute):
		t.Fatal("a node was still there a minute after SIGTERM")
	}
	took := time.Since(since)
	if !twoNodes {
		at = open()
	}
	h := d.awaitClean(time.Minute, true)
	for _, r := range h.runsOf(short) {
		if r.Status != "succeeded" || r.Attempt != 1 {
			t.Errorf("a callback of a second that ran at SIGTERM is %s at attempt %d", r.Status, r.Attempt)
		}
	}
	for _, r := range h.runsOf(hanging) {
		if r.Status != "succeeded" || r.Attempt != 2 || r.Attempts[0].Outcome != "interrupted" {
			t.Errorf("a callback that hung at SIGTERM is %+v", r)
		}
	}
	t.Logf("%d callbacks of a second and %d that hung; the node ended after %v with status 0", len(short), len(hanging), took)
}

// wantUnready waits until the readiness check of a node that shuts down fails.
func (d *driver) wantUnready(p *process, gone <-chan struct{}) {
	d.tb.Helper()
	eventually(d.tb, "a node that shuts down says so", time.Minute, func() bool {
		select {
		case <-gone:
			d.tb.Fatal("a node went without a word")
		default:
		}
		var no *apiError
		err := request(p.address(), "GET", "/readyz", nil, new(any))
		return errors.As(err, &no) && no.status == http.StatusServiceUnavailable && strings.Contains(no.detail, "shutting down")
	})
}
