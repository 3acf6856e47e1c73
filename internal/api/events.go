package api

import (
	"context"
	"net/http"
	"net/url"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

const eventsPath = "/api/v1/events"

// eventList is a page of events.
type eventList struct {
	list
	query url.Values
	page  control.Page
}

func readEventList(r *http.Request) (in eventList, err error) {
	namespace, err := readNamespace(r)
	if err != nil {
		return in, err
	}
	p, err := pagingOf(r, "limit", "cursor")
	if err != nil {
		return in, err
	}
	in.query = p.query
	in.list = list{form: eventCursor, path: eventsPath, namespace: namespace}
	in.page.Limit = p.limit()
	p.cursor(func(text string) error { return in.readAfter(text, &in.page) })
	return in, p.err()
}

func (a *api) listEvents(ctx context.Context, in eventList) (answer, error) {
	limit := in.page.Limit
	in.page.Limit++ // One more tells whether there is a next page.
	found, err := a.control.Events(ctx, in.namespace, in.page)
	if err != nil {
		return answer{}, err
	}
	out := answer{status: http.StatusOK}
	if len(found) > limit {
		found = found[:limit]
		out.next = nextPage(eventsPath, in.query, in.after(found[limit-1].ID))
	}
	out.body = append([]belfry.Event{}, found...) // never null
	return out, nil
}
