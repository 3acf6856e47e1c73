package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/openapi"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	keepAliveInterval = 15 * time.Second // between two signs of life of a stream
	streamTimeout     = 10 * time.Second // of a write to it
)

// eventsOperation lists events, or streams them to a client that asks for that.
func (a *api) eventsOperation() operation {
	op := list(a, openapi.Operation{
		ID: "listEvents", Method: "GET", Path: apiPath + "/events", Group: groupEvents, Permission: auth.Read, Summary: "List or watch events", Headers: []string{lastEventHeader}, Errors: []int{notFound},
		Doc: "What operators should know, such as runs that died, jobs that began to fail, and nodes that were lost, the latest first. " +
			"With `Accept: text/event-stream` they are sent as they happen, as server-sent events whose data is an `Event`, until the client disconnects: those that are recorded from now on, or after `Last-Event-ID`, which an `EventSource` sends when it reconnects. " +
			"After a reconnection some of the last half a minute may come again, with the same ids.",
	}, func(ctx context.Context, r *request, f belfry.EventFilter, p store.Page) ([]belfry.Event, store.Position, error) {
		return a.Control.ListEvents(ctx, r.namespace, f, p)
	})
	op.Responses = append(op.Responses, openapi.Response{Status: http.StatusOK, Doc: "Or a stream of events.", Media: openapi.MediaEvents})
	page := op.handler
	op.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !accepts(r, openapi.MediaEvents) {
			page.ServeHTTP(w, r)
		} else if err := a.streamEvents(w, r, &op.Operation); err != nil {
			a.fail(w, r, err)
		}
	})
	return op
}

// accepts reports whether a client asks for a media type.
func accepts(r *http.Request, want string) bool {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		if media, _, _ := mime.ParseMediaType(part); media == want {
			return true
		}
	}
	return false
}

// streamEvents sends events until the client is gone or the node shuts down. An error is
// from before the stream began.
func (a *api) streamEvents(w http.ResponseWriter, r *http.Request, op *openapi.Operation) error {
	var filter belfry.EventFilter
	in, err := readHead(r, op, &filter)
	if err != nil {
		return err
	}
	var last belfry.ID
	if text := r.Header.Get(lastEventHeader); text != "" {
		if last, err = belfry.ParseID(text); err != nil {
			return badParameters(belfry.FieldError{Field: lastEventHeader, Message: "must be the id of the last event that you got"})
		}
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer a.cancelAtEnd(r, cancel)()
	watch, err := a.Control.WatchEvents(ctx, in.namespace, filter, last)
	if err != nil {
		return err
	}
	defer watch.Close()
	setHeaders(w, map[string]string{"Content-Type": openapi.MediaEvents, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}) // which proxies are not to collect
	connection := http.NewResponseController(w)
	connection.SetReadDeadline(time.Time{})
	for text := "retry: 2000\n\n"; ; {
		connection.SetWriteDeadline(time.Now().Add(streamTimeout))
		if _, err := fmt.Fprint(w, text); err != nil || connection.Flush() != nil {
			return nil
		}
		wait, stop := context.WithTimeout(ctx, keepAliveInterval)
		event, err := watch.Next(wait)
		stop()
		switch {
		case err == nil:
			data, _ := json.Marshal(event) // An event has a JSON form.
			text = fmt.Sprintf("id: %s\ndata: %s\n\n", event.ID, data)
		case ctx.Err() != nil || errors.Is(err, control.ErrComeBack):
			return nil
		default:
			text = ": nothing happened\n\n"
		}
	}
}
