package alert

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/notify"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	sendTimeout  = 15 * time.Second
	claimHold    = 2 * sendTimeout // a node that dies while it sends leaves the message to another
	sendLimit    = 20              // messages of a channel in a round
	firstPause   = 10 * time.Second
	longestPause = 10 * time.Minute
)

// delivery sends the messages of one channel, one after the other, so that a channel that
// hangs delays no other.
type delivery struct {
	mu   sync.Mutex
	busy bool
	done sync.WaitGroup
}

func (d *delivery) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy {
		return false
	}
	d.busy = true
	d.done.Add(1)
	return true
}

func (d *delivery) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy = false
	d.done.Done()
}

func (d *delivery) wait() { d.done.Wait() }

// deliver sends what is due, unless the channel is paused, rests after a failure or is
// still sending. Messages under way end although the round does.
func (a *Alerts) deliver(c belfry.Channel, now time.Time) {
	if c.Paused || c.NextTryAt != nil && now.Before(*c.NextTryAt) {
		return
	}
	name := c.Namespace + "/" + c.Name
	d := a.senders[name]
	if d == nil {
		d = &delivery{}
		a.senders[name] = d
	}
	if !d.begin() {
		return
	}
	go func() {
		defer d.end()
		if err := a.send(context.Background(), c); err != nil {
			a.log.Warn("messages could not be sent", "channel", c.Name, "error", err)
		}
	}()
}

// send sends the messages of a channel until one fails.
func (a *Alerts) send(ctx context.Context, c belfry.Channel) error {
	claim, cancel := context.WithTimeout(ctx, roundTimeout)
	records, err := a.store.ClaimAlerts(claim, c.Namespace, c.Name, claimHold, 1)
	cancel()
	for n := 0; err == nil && len(records) > 0 && n < sendLimit; n++ {
		if err = a.sendOne(ctx, c, &records[0]); err != nil || a.stopping.Load() {
			return err
		}
		claim, cancel := context.WithTimeout(ctx, roundTimeout)
		records, err = a.store.ClaimAlerts(claim, c.Namespace, c.Name, claimHold, 1)
		cancel()
	}
	return err
}

func (a *Alerts) sendOne(ctx context.Context, c belfry.Channel, r *store.AlertRecord) error {
	sending, cancel := context.WithTimeout(ctx, sendTimeout)
	failure := a.sender.Send(sending, c, r.Alert)
	cancel()
	call, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	if e, ok := errors.AsType[*notify.Error](failure); failure != nil && !(ok && e.Sent) {
		return errors.Join(failure, a.store.ReleaseAlert(call, r.ID), a.store.SetChannelResult(call, c.Namespace, c.Name, failure.Error(), pauseAfter(c.Failures, failure)))
	}
	if err := a.store.AlertSent(call, r.ID, r.Version); err != nil {
		return err
	}
	if c.Failures > 0 {
		a.log.Info("a channel accepts messages again", "channel", c.Name)
	}
	if failure != nil { // of some recipients; the others must not get it again
		a.log.Warn("a message was not sent to all recipients", "channel", c.Name, "error", failure)
		return a.store.SetChannelResult(call, c.Namespace, c.Name, failure.Error(), 0)
	}
	return a.store.SetChannelResult(call, c.Namespace, c.Name, "", 0)
}

// pauseAfter is how long a channel rests after a failure that follows others: twice as long
// each time, or as long as the receiver asks.
func pauseAfter(earlier int, failure error) time.Duration {
	pause := min(firstPause<<min(earlier, 10), longestPause)
	if e, ok := errors.AsType[*notify.Error](failure); ok {
		pause = min(max(pause, e.RetryAfter), longestPause)
	}
	return pause
}
