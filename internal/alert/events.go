package alert

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/notify"
	"github.com/belfry-sh/belfry/internal/store"
)

// maxLines is how many lines about events of one kind a round writes; the rest is summed up.
const maxLines = 10

// logText is what the log says of an event. Others have a line of their own where they
// happen.
var logText = map[belfry.EventKind]string{
	belfry.EventRunDead:       "a run died",
	belfry.EventJobFailing:    "a job fails",
	belfry.EventJobRecovered:  "a job has recovered",
	belfry.EventAlertOpened:   "an alert was opened",
	belfry.EventAlertResolved: "an alert was resolved",
	belfry.EventNodeJoined:    "a node joined",
	belfry.EventNodeLeft:      "a node left",
	belfry.EventNodeLost:      "a node was lost",
}

// event is an event to record, with the attributes of its line in the log.
type event struct {
	store.NewEvent
	log []any
}

// record records events that nobody has recorded yet, and writes them to the log. Their ids
// are in their order.
func (a *Alerts) record(ctx context.Context, events []event) error {
	ids := make([]belfry.ID, len(events))
	for i := range ids {
		ids[i] = belfry.NewID(a.store.Now())
	}
	slices.SortFunc(ids, belfry.ID.Compare)
	fresh := make([]store.NewEvent, len(events))
	for i := range events {
		events[i].ID = ids[i]
		fresh[i] = events[i].NewEvent
	}
	added, err := a.store.AddEvents(ctx, fresh)
	lines := map[belfry.EventKind]int{}
	for _, e := range events {
		if _, found := slices.BinarySearchFunc(added, e.ID, belfry.ID.Compare); !found {
			continue
		}
		if lines[e.Kind]++; lines[e.Kind] > maxLines || e.Kind == belfry.EventNodeJoined && slices.Contains(e.log, any(a.owner)) {
			continue // this node has said already that it runs
		}
		a.log.Info(logText[e.Kind], append([]any{"event", e.Kind, "namespace", e.Namespace}, e.log...)...)
	}
	for _, kind := range slices.Sorted(maps.Keys(lines)) {
		if n := lines[kind] - maxLines; n > 0 {
			a.log.Info("there are more events of this kind", "event", kind, "events", n)
		}
	}
	return err
}

// dedupID is the same for the same parts.
func dedupID(parts ...any) (id belfry.ID) {
	sum := sha256.Sum256(fmt.Appendln(nil, parts...))
	copy(id[:], sum[:])
	return id
}

// jobEvent is an event about a job.
func (f *finder) jobEvent(kind belfry.EventKind, x store.Failure, text string, log ...any) {
	labels, ok := f.labels[x.JobID]
	if !ok { // it was deleted
		return
	}
	name := labels.Name
	e := event{NewEvent: store.NewEvent{
		Event: belfry.Event{Namespace: x.Namespace, JobID: x.JobID, RunID: x.RunID, Kind: kind, At: x.LatestAt, Count: x.Count, Message: fmt.Sprintf(text, cmp.Or(name, "a job without a name"))},
		Dedup: dedupID(kind, x.JobID, x.RunID, x.LatestAt.UnixMicro()),
	}, log: append([]any{"job", cmp.Or(name, x.JobID.String()), "job_id", x.JobID, "run_id", x.RunID, "trace_id", belfry.RunTraceID(x.RunID)}, log...)}
	if text := f.redact(x.JobID, x.Error); text != "" {
		e.Message += ": " + text
		e.log = append(e.log, "error", text)
	}
	f.events = append(f.events, e)
}

// failureEvents are about jobs that began to fail, and jobs that recovered.
func (f *finder) failureEvents(began []store.Failure) {
	for _, x := range began {
		f.jobEvent(belfry.EventJobFailing, x, "%s fails", "attempt", x.Attempt, "failures", x.Count)
	}
	for _, x := range f.recovered {
		if x.SucceededAt.IsZero() {
			continue
		}
		failures := x.Count
		x.Error, x.Count, x.LatestAt = "", 0, x.SucceededAt
		f.jobEvent(belfry.EventJobRecovered, x, "%s has recovered", "failures", failures)
	}
}

// newDeaths returns the runs that died since the last round that said so.
func (f *finder) newDeaths() []store.Death {
	if f.err != nil {
		return nil
	}
	deaths, err := f.store.Deaths(f.ctx, f.reported, findingLimit)
	f.err, f.reportedUntil = err, f.reported
	return deaths
}

func (f *finder) deathEvents(deaths []store.Death) {
	for _, d := range deaths {
		text := "a run of %s died"
		if d.Count > 1 {
			text = notify.Thousands(d.Count) + " runs of %s died"
		}
		f.jobEvent(belfry.EventRunDead, store.Failure{JobID: d.JobID, Namespace: d.Namespace, RunID: d.RunID, LatestAt: d.LatestAt, Count: d.Count, Error: d.Error},
			text, "attempt", d.Attempt, "reason", d.Reason, "runs", d.Count)
		f.reportedUntil = later(f.reportedUntil, d.LatestAt)
	}
}

// nodes makes events of nodes that joined, left or were lost.
func (f *finder) nodes() {
	if f.err != nil {
		return
	}
	nodes, err := f.store.Nodes(f.ctx)
	f.err = err
	for _, n := range nodes {
		name := fmt.Sprintf("node %s (%s)", n.Name, n.ID)
		lostAt := n.SeenAt.Add(store.NodeTimeout)
		f.nodeEvent(belfry.EventNodeJoined, n, n.StartedAt, name+" joined")
		switch {
		case n.LeftAt != nil:
			f.nodeEvent(belfry.EventNodeLeft, n, *n.LeftAt, name+" left")
		case lostAt.Before(f.now):
			f.nodeEvent(belfry.EventNodeLost, n, lostAt, name+" was lost: it was last seen at "+n.SeenAt.UTC().Format("15:04:05Z"))
		}
	}
}

func (f *finder) nodeEvent(kind belfry.EventKind, n store.Node, at time.Time, message string) {
	if at.Before(f.since) {
		return
	}
	f.events = append(f.events, event{store.NewEvent{
		Event: belfry.Event{Namespace: belfry.DefaultNamespace, Kind: kind, At: at, Message: message},
		Dedup: dedupID(kind, n.ID, at.UnixMicro()),
	}, []any{"node", n.Name, "node_id", n.ID, "version", n.Version, "roles", n.Roles}})
}

// alertEvent is the event that an alert began or is over.
func alertEvent(kind belfry.EventKind, r *store.AlertRecord, now time.Time) event {
	message := fmt.Sprintf("alert for %s: %s", r.Channel, r.Message)
	if kind == belfry.EventAlertResolved {
		message = fmt.Sprintf("alert for %s is resolved: %s", r.Channel, r.Message)
	}
	return event{store.NewEvent{
		Event: belfry.Event{Namespace: r.Namespace, Kind: kind, At: now, Count: r.Count, Message: message},
		Dedup: dedupID(kind, r.ID),
	}, []any{"alert_id", r.ID, "channel", r.Channel, "on", r.Subscription.On, "message", r.Message}}
}
