package control

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	feedInterval = time.Second
	feedWindow   = 30 * time.Second // in which an event may be committed after the time in its id
	feedPage     = 1000
	feedRecent   = 10_000 // events that a watcher may be behind
	maxWatchers  = 1000
)

// ListEvents returns the events of a namespace that match a filter, latest first.
func (c *Control) ListEvents(ctx context.Context, namespace string, f belfry.EventFilter, p store.Page) (_ []belfry.Event, _ store.Position, err error) {
	if f.JobID, err = c.resolveFilter(ctx, namespace, f.Job); err != nil {
		return nil, store.Position{}, err
	}
	return readPage(ctx, "list events", p, func(p store.Page) ([]belfry.Event, error) { return c.store.ListEvents(ctx, namespace, f, p) },
		func(e belfry.Event) store.Position { return store.Position{At: e.At, ID: e.ID} })
}

// WatchEvents begins to watch the events of a namespace that match a filter: those recorded
// after the event last, if that is set, and those that will be. If this node did not follow
// events all the time since, some of the last seconds before it come again.
func (c *Control) WatchEvents(ctx context.Context, namespace string, f belfry.EventFilter, last belfry.ID) (_ *EventWatch, err error) {
	if f.JobID, err = c.resolveFilter(ctx, namespace, f.Job); err != nil {
		return nil, err
	}
	w := &EventWatch{feed: &c.feed, namespace: namespace, filter: f, returned: map[belfry.ID]bool{}}
	known, err := c.feed.add(c.store.Store, w, last)
	if err != nil || known || last.IsZero() {
		return w, err
	}
	for after := store.FirstID(last.Time().Add(-feedWindow)); ; {
		page, err := retryRead(ctx, "follow events", func() ([]belfry.Event, error) { return c.store.EventsAfter(ctx, after, feedPage) })
		if err != nil {
			w.Close()
			return nil, err
		}
		w.missed = append(w.missed, page...)
		if w.partial = len(page) == feedPage && len(w.missed) >= feedRecent; w.partial || len(page) < feedPage {
			break
		}
		after = page[len(page)-1].ID
	}
	w.missed = slices.DeleteFunc(w.missed, func(e belfry.Event) bool { return e.ID == last })
	return w, nil
}

// EventWatch is somebody who watches events.
type EventWatch struct {
	feed      *eventFeed
	namespace string
	filter    belfry.EventFilter
	missed    []belfry.Event     // to return first
	partial   bool               // there are more of them
	returned  map[belfry.ID]bool // of those
	next      int64              // number of the next event in the feed
	closed    bool
}

// ErrComeBack is that a watcher is too far behind, and must begin again after the last event
// that it got.
var ErrComeBack = errors.New("there are more events than were read")

// Next waits for an event. The error is that of ctx, or ErrComeBack.
func (w *EventWatch) Next(ctx context.Context) (belfry.Event, error) {
	for len(w.missed) > 0 {
		e := w.missed[0]
		w.missed = w.missed[1:]
		w.returned[e.ID] = true
		if w.matches(e) {
			return e, nil
		}
	}
	for !w.partial {
		e, changed, err := w.feed.read(w)
		switch {
		case err != nil:
			return e, err
		case changed == nil:
			if w.matches(e) && !w.returned[e.ID] {
				return e, nil
			}
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return e, ctx.Err()
		}
	}
	return belfry.Event{}, ErrComeBack
}

func (w *EventWatch) matches(e belfry.Event) bool {
	return e.Namespace == w.namespace && (w.filter.Kind == "" || e.Kind == w.filter.Kind) && (w.filter.JobID.IsZero() || e.JobID == w.filter.JobID)
}

// Close ends the watch.
func (w *EventWatch) Close() { w.feed.remove(w) }

// eventFeed follows the events of the store for everybody who watches them: it asks once a
// second while somebody does, however many they are.
type eventFeed struct {
	mu       sync.Mutex
	watchers int
	stop     context.CancelFunc
	recent   []belfry.Event     // in the order in which they were found
	end      int64              // number of the event after those
	changed  chan struct{}      // closed when there are more
	seen     map[belfry.ID]bool // what was found in the window
}

// add adds a watcher that gets what comes, and if the event last is known, all since it.
func (d *eventFeed) add(s Store, w *EventWatch, last belfry.ID) (known bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watchers >= maxWatchers {
		return false, belfry.Errorf(belfry.Unavailable, "%d clients watch events of this node already; try again later, or use another node", maxWatchers)
	}
	if d.watchers == 0 {
		ctx, stop := context.WithCancel(context.Background())
		d.stop, d.recent, d.changed, d.seen = stop, nil, make(chan struct{}), map[belfry.ID]bool{}
		go d.follow(ctx, s, store.FirstID(s.Now()))
	}
	d.watchers++
	w.next = d.end
	i := slices.IndexFunc(d.recent, func(e belfry.Event) bool { return e.ID == last })
	if i >= 0 {
		w.next = d.end - int64(len(d.recent)-i-1)
	}
	return i >= 0, nil
}

func (d *eventFeed) remove(w *EventWatch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w.closed {
		return
	}
	w.closed = true
	if d.watchers--; d.watchers == 0 {
		d.stop()
	}
}

// read returns the next event for a watcher, or what is closed when there is one.
func (d *eventFeed) read(w *EventWatch) (e belfry.Event, changed <-chan struct{}, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch i := w.next - d.end + int64(len(d.recent)); {
	case i < 0:
		return e, nil, ErrComeBack
	case i == int64(len(d.recent)):
		return e, d.changed, nil
	default:
		w.next++
		return d.recent[i], nil, nil
	}
}

// follow reads what is recorded until ctx ends. What the first round finds before the id was
// there before anybody watched.
func (d *eventFeed) follow(ctx context.Context, s Store, first belfry.ID) {
	ticker := time.NewTicker(feedInterval)
	defer ticker.Stop()
	for {
		now, complete := s.Now(), true
		for after, more := store.FirstID(now.Add(-feedWindow)), true; more; {
			page, err := s.EventsAfter(ctx, after, feedPage)
			if err != nil {
				complete = false
				break // the next round reads it again
			}
			d.append(ctx, page, first)
			if more = len(page) == feedPage; more {
				after = page[len(page)-1].ID
			}
		}
		if complete {
			first = belfry.ID{}
		}
		d.removeOld(ctx, now.Add(-2*feedWindow))
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// append adds events that are new, unless they are from before the first watcher.
func (d *eventFeed) append(ctx context.Context, events []belfry.Event, first belfry.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() != nil { // other watchers have a feed of their own
		return
	}
	before := d.end
	for _, e := range events {
		if !d.seen[e.ID] && e.ID.Compare(first) >= 0 {
			d.recent = append(d.recent, e)
			d.end++
		}
		d.seen[e.ID] = true
	}
	if n := len(d.recent) - feedRecent; n > feedRecent/10 {
		d.recent = slices.Clone(d.recent[n:])
	}
	if d.end > before {
		close(d.changed)
		d.changed = make(chan struct{})
	}
}

// removeOld drops ids from before the window, which are not found again.
func (d *eventFeed) removeOld(ctx context.Context, before time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() == nil {
		maps.DeleteFunc(d.seen, func(id belfry.ID, _ bool) bool { return id.Time().Before(before) })
	}
}
