// Package alert tells people what they should know. One node at a time, the holder of a
// lease, looks every few seconds at what failed, died, was skipped or did not happen,
// compares it with what channels subscribed to, and keeps an alert for each that matches,
// from when it began until it is over. Messages are sent from the stored alerts, so that a
// node that dies loses none.
//
// What happened is read from runs, history and dead letters, from the end of the last
// lease on: nothing is recorded for alerts while runs are executed, and what happened
// while no node was running is found as well.
package alert

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// Store is what alerts need of the store.
type Store interface {
	store.Alerts
	store.Failures
	store.Events
	store.Nodes
	store.Leases
	store.Clock
	store.Sharding
	Upcoming(ctx context.Context, w store.Window) ([]store.Planned, error)
	JobRuns(ctx context.Context, namespace string, job belfry.ID, filter belfry.JobRunFilter, page store.Page) ([]belfry.Run, store.Position, error)
	LateMonitors(ctx context.Context, now time.Time, limit int) ([]belfry.Monitor, error)
}

// Sender sends the message of an alert through a channel.
type Sender interface {
	Send(ctx context.Context, c belfry.Channel, a belfry.Alert) error
}

const (
	leaseTime    = 20 * time.Second
	interval     = 5 * time.Second
	roundTimeout = 15 * time.Second
	overlap      = time.Minute // how much of the past a round looks at again: what was committed late, or not saved while its alert was being sent
	findingLimit = 10_000      // of each kind in a round
)

// Alerts evaluates and sends alerts. It does so while it holds the lease.
type Alerts struct {
	store  Store
	sender Sender
	owner  belfry.ID
	log    *slog.Logger

	leading  bool
	since    time.Time              // the last round looked at everything before
	reported time.Time              // there are events of deaths up to here
	checked  belfry.ID              // failing jobs up to this one were looked at
	usual    map[belfry.ID]usual    // of jobs with long runs
	senders  map[string]*sync.Mutex // by namespace and channel, locked while it sends
	sending  sync.WaitGroup
	stopping atomic.Bool // no other message is begun
}

// New makes the alerts of a node.
func New(s Store, sender Sender, owner belfry.ID, log *slog.Logger) *Alerts {
	return &Alerts{store: s, sender: sender, owner: owner, log: log, usual: map[belfry.ID]usual{}, senders: map[string]*sync.Mutex{}}
}

// Run evaluates alerts until ctx ends.
func (a *Alerts) Run(ctx context.Context) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	failing := false
	for {
		round, cancel := context.WithTimeout(ctx, roundTimeout)
		err := a.round(round)
		cancel()
		if err != nil && ctx.Err() == nil && !failing {
			a.log.Warn("alerts could not be evaluated", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			a.release(ctx)
			return nil
		case <-ticker.C:
		}
	}
}

// release ends the lease after the messages under way.
func (a *Alerts) release(ctx context.Context) {
	a.stopping.Store(true)
	a.sending.Wait()
	if a.leading {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = a.store.Release(call, a.owner, []string{store.AlertsLease}) // otherwise it expires
	}
}

// round renews the lease and, if this node has it, evaluates everything once. Messages are
// sent whether or not that succeeds.
func (a *Alerts) round(ctx context.Context) error {
	leases, err := a.store.Hold(ctx, a.owner, []string{store.AlertsLease}, leaseTime)
	if err != nil || len(leases) == 0 {
		a.leading = false
		return err
	}
	now := a.store.Now()
	if !a.leading {
		evaluated, err := a.store.Evaluated(ctx)
		if err != nil {
			return err
		}
		if evaluated.IsZero() || evaluated.After(now) {
			evaluated = now
		}
		a.leading, a.checked = true, belfry.ID{}
		a.since, a.reported = evaluated.Add(-overlap), evaluated.Add(-overlap)
	}
	channels, err := a.store.Channels(ctx, "")
	if err != nil {
		return err
	}
	err = a.evaluate(ctx, now, channels)
	for i := range channels {
		a.deliver(channels[i], now)
	}
	return err
}

// evaluate looks at what happened and saves what channels are to be told. If anything could
// not be read nothing is saved, since what was not found would seem to be over.
func (a *Alerts) evaluate(ctx context.Context, now time.Time, channels []belfry.Channel) error {
	f := &finder{Alerts: a, ctx: ctx, now: now}
	f.find(channels)
	if f.err != nil {
		return f.err
	}
	events, err := a.save(ctx, now, channels, f.findings)
	if err != nil {
		return err
	}
	began, err := a.store.SetFailing(ctx, f.failed)
	if err != nil {
		return err
	}
	f.failureEvents(began)
	if err := a.record(ctx, append(f.events, events...)); err != nil {
		return err
	}
	if err := a.store.EndFailing(ctx, f.recovered); err != nil {
		return err
	}
	a.since, a.checked, a.reported = now.Add(-overlap), f.next, f.reportedUntil
	return a.store.SetEvaluated(ctx, now)
}

// alertKey identifies what is one alert.
type alertKey struct{ namespace, channel, key string }

// save compares what was found with the alerts that there are.
func (a *Alerts) save(ctx context.Context, now time.Time, channels []belfry.Channel, findings []finding) ([]event, error) {
	records, err := a.store.RecentAlerts(ctx, a.since.Add(-24*time.Hour))
	if err != nil {
		return nil, err
	}
	last := map[alertKey]store.AlertRecord{}
	for _, r := range records {
		k := alertKey{r.Namespace, r.Channel, r.Key}
		if known, ok := last[k]; !ok || r.Status != belfry.AlertResolved || known.Status == belfry.AlertResolved && r.LatestAt.After(known.LatestAt) {
			last[k] = r
		}
	}
	var changed []store.AlertRecord
	var events []event
	found, subscribed := map[alertKey]bool{}, map[alertKey]bool{}
	for i := range channels {
		c := &channels[i]
		for _, s := range subscriptions(c) {
			subscribed[alertKey{c.Namespace, c.Name, subscriptionKey(s)}] = true
		}
		for _, g := range groupFindings(c, findings) {
			k := alertKey{c.Namespace, c.Name, g.key}
			found[k] = true
			if r, ok := update(last[k], c, g, a.since, now); ok {
				changed = append(changed, r)
				if r.Version == 0 {
					events = append(events, alertEvent(belfry.EventAlertOpened, &r, now))
				}
			}
		}
	}
	var open []store.AlertRecord
	for k, r := range last {
		if r.Status != belfry.AlertResolved && !found[k] && !beingSent(&r, now) {
			open = append(open, r)
		}
	}
	over, err := a.over(ctx, open)
	if err != nil {
		return nil, err
	}
	for i := range open {
		r := &open[i]
		known := subscribed[alertKey{r.Namespace, r.Channel, subscriptionKey(r.Subscription)}]
		if known && !over[r.ID] {
			continue
		}
		ended := resolve(*r, now)
		if !known { // nobody wants to know any more
			ended.SendAt = time.Time{}
		}
		changed = append(changed, ended)
		events = append(events, alertEvent(belfry.EventAlertResolved, r, now))
	}
	_, err = a.store.SaveAlerts(ctx, changed)
	return events, err
}

// over returns which alerts, about which nothing was found in a round, have ended.
func (a *Alerts) over(ctx context.Context, open []store.AlertRecord) (map[belfry.ID]bool, error) {
	var jobs []belfry.ID
	var causes []store.DeathCause
	since := a.store.Now()
	for i := range open {
		switch r := &open[i]; r.Subscription.On {
		case belfry.AlertDead:
			for _, job := range r.Jobs {
				causes = append(causes, store.DeathCause{JobID: job, Fingerprint: fingerprintOf(r.Key)})
			}
		case belfry.AlertFailing, belfry.AlertSkipped, belfry.AlertNotStarted, belfry.AlertNotFinished:
			jobs = append(jobs, r.Jobs...)
			if r.LatestAt.Before(since) {
				since = r.LatestAt
			}
		}
	}
	var dead map[store.DeathCause]bool
	var labels map[belfry.ID]store.JobLabels
	var successes map[belfry.ID]time.Time
	var err error
	if len(causes) > 0 {
		dead, err = a.store.DeadLeft(ctx, causes)
	}
	slices.SortFunc(jobs, belfry.ID.Compare)
	if jobs = slices.Compact(jobs); len(jobs) > 0 && err == nil {
		if labels, err = a.store.JobLabels(ctx, jobs); err == nil {
			successes, err = a.store.LastSuccess(ctx, jobs, since)
		}
	}
	over := map[belfry.ID]bool{}
	for i := range open {
		r := &open[i]
		switch r.Subscription.On {
		case belfry.AlertDead:
			over[r.ID] = !slices.ContainsFunc(r.Jobs, func(job belfry.ID) bool { return dead[store.DeathCause{JobID: job, Fingerprint: fingerprintOf(r.Key)}] })
		case belfry.AlertFailing, belfry.AlertSkipped, belfry.AlertNotStarted, belfry.AlertNotFinished:
			// Every job has succeeded since, is paused, or is gone.
			over[r.ID] = !slices.ContainsFunc(r.Jobs, func(job belfry.ID) bool {
				l, exists := labels[job]
				return exists && !l.Paused && !l.Ended && !successes[job].After(r.LatestAt)
			})
		case belfry.AlertLag, belfry.AlertSlow, belfry.AlertMonitor:
			over[r.ID] = true
		default:
			over[r.ID] = r.SendAt.IsZero() // it was told
		}
	}
	return over, err
}

// fingerprintOf is the fingerprint in the key of an alert about deaths.
func fingerprintOf(key string) string { return key[strings.LastIndexByte(key, ' ')+1:] }
