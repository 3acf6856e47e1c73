package alert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
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

// deliver sends what is due, unless the channel is paused, rests after a failure or is
// still sending. Messages under way end although the round does.
func (a *Alerts) deliver(c belfry.Channel, now time.Time) {
	if c.Paused || c.NextTryAt != nil && now.Before(*c.NextTryAt) {
		return
	}
	name := c.Namespace + "/" + c.Name
	busy := a.senders[name] // so that a channel that hangs delays no other
	if busy == nil {
		busy = &sync.Mutex{}
		a.senders[name] = busy
	}
	if !busy.TryLock() {
		return
	}
	a.sending.Go(func() {
		defer busy.Unlock()
		if err := a.send(context.Background(), c); err != nil {
			a.log.Warn("messages could not be sent", "channel", c.Name, "error", err)
		}
	})
}

// send sends the messages of a channel, one after the other, until one fails.
func (a *Alerts) send(ctx context.Context, c belfry.Channel) error {
	for range sendLimit {
		claim, cancel := context.WithTimeout(ctx, roundTimeout)
		records, err := a.store.ClaimAlerts(claim, c.Namespace, c.Name, claimHold, 1)
		cancel()
		if err != nil || len(records) == 0 {
			return err
		}
		if err := a.sendOne(ctx, c, &records[0]); err != nil || a.stopping.Load() {
			return err
		}
	}
	return nil
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

// sentences say what an alert is about: one thing, by its name, or several, by their number.
var sentences = map[belfry.AlertKind]struct{ one, many string }{
	belfry.AlertDead:        {"a run of {} died", "{} runs died"},
	belfry.AlertFailing:     {"{} failed", "{} jobs failed"},
	belfry.AlertRecovered:   {"{} has recovered", "{} jobs have recovered"},
	belfry.AlertNotStarted:  {"{} did not start within {bound} of its time", "{} occurrences did not start within {bound} of their time"},
	belfry.AlertNotFinished: {"{} did not succeed within {bound} of its time", "{} occurrences did not succeed within {bound} of their time"},
	belfry.AlertSlow:        {"a run of {} takes longer than {bound}", "{} runs take longer than {bound}"},
	belfry.AlertSkipped:     {"{} was skipped", "{} jobs were skipped"},
	belfry.AlertLag:         {"a due run of {} waits longer than {bound}", "{} due runs wait longer than {bound}"},
	belfry.AlertCatchUp:     {"{} catches up on many missed occurrences", "{} jobs catch up on many missed occurrences"},
	belfry.AlertMonitor:     {"monitor {} is late", "{} monitors are late"},
	belfry.AlertTest:        {"this is a test", "this is a test"},
}

// message says what an alert is about in a sentence.
func message(a *belfry.Alert) string {
	s, first, bound := a.Subscription, belfry.AlertItem{}, "usual"
	if len(a.Items) > 0 {
		first = a.Items[0]
	}
	if d := within(s, 0); d > 0 {
		bound = notify.Duration(d)
	}
	text, subject := sentences[s.On].one, cmp.Or(first.Name, "a job without a name")
	if a.Count != 1 {
		text, subject = sentences[s.On].many, notify.Thousands(a.Count)
	}
	text = strings.NewReplacer("{}", subject, "{bound}", bound).Replace(text)
	if s.On == belfry.AlertDead && a.Count != 1 {
		text += ofJobs(a)
	}
	if n := count(s); n > 1 && (s.On == belfry.AlertFailing || s.On == belfry.AlertSkipped) {
		text += fmt.Sprintf(" %d times in a row", n)
	}
	if first.Error != "" && s.On != belfry.AlertRecovered {
		text += ": " + first.Error
	}
	return text
}

// ofJobs names the job if all items are of one.
func ofJobs(a *belfry.Alert) string {
	for _, item := range a.Items {
		if item.JobID != a.Items[0].JobID || item.Name == "" {
			return ""
		}
	}
	if len(a.Items) == 0 || len(a.Items) == maxItems {
		return ""
	}
	return " of " + a.Items[0].Name
}
