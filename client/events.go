package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
)

const eventsPath = apiPath + "/events"

// Events lists events, latest first, like Jobs.
func (c *Client) Events(ctx context.Context, filter belfry.EventFilter) iter.Seq2[belfry.Event, error] {
	return pages[belfry.Event](ctx, c, "list events", eventsPath, query(filter, 0))
}

// Audit lists who changed what, latest first, like Jobs.
func (c *Client) Audit(ctx context.Context, filter belfry.AuditFilter) iter.Seq2[belfry.AuditEntry, error] {
	return pages[belfry.AuditEntry](ctx, c, "list audit entries", apiPath+"/audit", query(filter, 0))
}

// streamTimeout is for how long a stream may be silent. The server says something every 15
// seconds.
const streamTimeout = 40 * time.Second

// WatchEvents returns events as they happen, each once, until ctx ends: those after the event
// last, or those from now on if it is zero. It reconnects when the connection is lost. An
// error that may pass, which is belfry.Unavailable, does not end it.
func (c *Client) WatchEvents(ctx context.Context, filter belfry.EventFilter, last belfry.ID) iter.Seq2[belfry.Event, error] {
	return func(yield func(belfry.Event, error) bool) {
		w := &eventStream{client: c, last: last, known: map[belfry.ID]bool{}}
		for try := 0; ; try++ {
			q := newCall("watch events", http.MethodGet, eventsPath, func(q *call) { q.query = query(filter, 0) })
			err := w.read(ctx, q, func(e belfry.Event) bool {
				try = 0
				return yield(e, nil)
			})
			if err == errStopped {
				return
			}
			delay, retryable := retryDelay(err, try)
			if ctx.Err() != nil {
				err, retryable = ctx.Err(), false
			}
			if err != errEnded && !yield(belfry.Event{}, fmt.Errorf("watch events: %w", err)) || err != errEnded && !retryable {
				return
			}
			select {
			case <-time.After(delay):
			case <-ctx.Done():
			}
		}
	}
}

var (
	errStopped = errors.New("nobody reads the events")
	errEnded   = errors.New("the server ended the stream")
)

// eventStream is where a stream continues after a reconnection.
type eventStream struct {
	client *Client
	last   belfry.ID
	known  map[belfry.ID]bool // of the last minutes
}

// read reads a stream to its end.
func (w *eventStream) read(ctx context.Context, q *call, yield func(belfry.Event) bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(streamTimeout, func() { cancel(errSlow) })
	defer silence.Stop()
	r, err := w.client.request(ctx, q)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "text/event-stream, application/problem+json")
	if !w.last.IsZero() {
		r.Header.Set("Last-Event-ID", w.last.String())
	}
	endless := *w.client.http
	endless.Timeout = 0 // which would end the stream
	a, err := endless.Do(r)
	if err != nil {
		return w.client.unavailable(ctx, err)
	}
	defer a.Body.Close()
	lines := bufio.NewScanner(a.Body)
	lines.Buffer(nil, 1<<20)
	if a.StatusCode != http.StatusOK {
		lines.Scan()
		return newError(a, lines.Bytes())
	}
	if got := a.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/event-stream") {
		return belfry.Errorf(belfry.Internal, "the answer is %q, not a stream of events: check the address and the version of the server", sanitizeLine(got, 80))
	}
	for lines.Scan() {
		silence.Reset(streamTimeout)
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		var e belfry.Event
		if !ok || json.Unmarshal([]byte(data), &e) != nil || w.known[e.ID] {
			continue
		}
		w.remember(e.ID)
		if !yield(e) {
			return errStopped
		}
	}
	if err := lines.Err(); err != nil {
		return w.client.unavailable(ctx, err)
	}
	return errEnded
}

// remember keeps the ids of what may come again.
func (w *eventStream) remember(id belfry.ID) {
	w.last, w.known[id] = id, true
	if len(w.known) > 10_000 {
		for old := range w.known {
			if old.Time().Before(id.Time().Add(-2 * time.Minute)) {
				delete(w.known, old)
			}
		}
	}
}
