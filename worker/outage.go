package worker

import (
	"log/slog"
	"slices"
	"sync"
	"time"
)

// outage keeps the log short: one line when calls begin to fail, whichever they
// are and however often, and one when everything that failed works again.
type outage struct {
	log *slog.Logger

	mu      sync.Mutex // guards the fields below
	failing []string   // the calls that failed when last tried
	since   time.Time
}

// failed notes that a call failed.
func (o *outage) failed(call string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.Contains(o.failing, call) {
		return
	}
	o.failing = append(o.failing, call)
	if len(o.failing) > 1 {
		o.log.Debug("another call fails", "call", call, "error", err)
		return
	}
	o.since = time.Now()
	o.log.Warn("the source fails; trying again until it answers", "call", call, "error", err)
}

// worked notes that a call did what it should.
func (o *outage) recovered(call string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := slices.Index(o.failing, call)
	if at < 0 {
		return
	}
	o.failing = slices.Delete(o.failing, at, at+1)
	if len(o.failing) == 0 {
		o.log.Info("the source answers again", "after", time.Since(o.since).Round(time.Millisecond))
	}
}
