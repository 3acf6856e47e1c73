package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
)

// JobFilter is what the jobs of a list have in common. Its zero fields let
// everything pass.
type JobFilter struct {
	Status   belfry.JobStatus `json:"status,omitempty"`
	Type     string           `json:"type,omitempty"`
	Handler  string           `json:"handler,omitempty"`
	Queue    string           `json:"queue,omitempty"`
	Tags     []string         `json:"tags,omitempty"`   // all of them
	Search   string           `json:"search,omitempty"` // part of the name, in any case of its letters
	PageSize int              `json:"-"`                // jobs asked for at once; zero is the server's choice
}

// Jobs lists jobs, newest first, page by page as the loop goes on. After an
// error, which is the last item, the list is not complete.
func (c *Client) Jobs(ctx context.Context, filter JobFilter) iter.Seq2[belfry.Job, error] {
	v := url.Values{}
	set(v, "status", string(filter.Status))
	set(v, "type", filter.Type)
	set(v, "handler", filter.Handler)
	set(v, "queue", filter.Queue)
	set(v, "search", filter.Search)
	for _, tag := range filter.Tags {
		v.Add("tag", tag)
	}
	size(v, filter.PageSize)
	return pages[belfry.Job](ctx, c, "list jobs", api+"/jobs", v)
}

// Run is a run as a server shows it.
type Run struct {
	belfry.Run
	IdempotencyKey string `json:"idempotency_key"`
	Note           string `json:"note,omitempty"` // what a change of the clock had to do with it; lists leave it out
}

// RunFilter is what the runs of a list have in common.
type RunFilter struct {
	Status   belfry.RunStatus // empty: any
	PageSize int              // runs asked for at once; zero is the server's choice
}

// Runs lists the runs of all jobs, latest first, like Jobs.
func (c *Client) Runs(ctx context.Context, filter RunFilter) iter.Seq2[Run, error] {
	v := url.Values{}
	set(v, "status", string(filter.Status))
	size(v, filter.PageSize)
	return pages[Run](ctx, c, "list runs", api+"/runs", v)
}

// RunsOf lists the runs of a job, latest first, like Jobs.
func (c *Client) RunsOf(ctx context.Context, ref string) iter.Seq2[Run, error] {
	path, err := pathOf(ref, "/runs")
	if err != nil {
		return func(yield func(Run, error) bool) { yield(Run{}, err) }
	}
	return pages[Run](ctx, c, "list runs of job", path, nil)
}

// Run looks at a run with its attempts.
func (c *Client) Run(ctx context.Context, id belfry.ID) (run Run, err error) {
	_, err = c.json(ctx, newCall("look at run", http.MethodGet, api+"/runs/"+id.String()), nil, &run)
	return run, err
}

// Revision is what a job is or was.
type Revision struct {
	Number      int             `json:"revision"`
	ReplacedAt  *time.Time      `json:"replaced_at"` // nil for what it is now
	belfry.Spec                 // what it asks for
	Payload     json.RawMessage `json:"payload,omitempty"`
}

// Revisions lists what a job is and was, latest first, like Jobs.
func (c *Client) Revisions(ctx context.Context, ref string) iter.Seq2[Revision, error] {
	path, err := pathOf(ref, "/revisions")
	if err != nil {
		return func(yield func(Revision, error) bool) { yield(Revision{}, err) }
	}
	return pages[Revision](ctx, c, "list revisions of job", path, nil)
}

func set(v url.Values, name, value string) {
	if value != "" {
		v.Set(name, value)
	}
}

func size(v url.Values, n int) {
	if n > 0 {
		v.Set("limit", strconv.Itoa(n))
	}
}

// pages gives the items of all pages. A page may be empty and have a next one.
// Of the link to that only the query is used: the key goes nowhere else, and a
// proxy may know the server by another path.
func pages[T any](ctx context.Context, c *Client, what, path string, v url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		for query, more := v.Encode(), true; more; {
			var items []T
			target := path
			if query != "" {
				target += "?" + query
			}
			a, err := c.json(ctx, newCall(what, http.MethodGet, target), nil, &items)
			if err != nil {
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			var next string
			next, more = nextPage(a.header)
			if more && next == query {
				yield(none, fmt.Errorf("%s: %w", what, belfry.Errorf(belfry.Internal, "the page after this one is the same: the list does not end")))
				return
			}
			query = next
		}
	}
}

// nextPage finds the query of the next page in the Link headers.
func nextPage(h http.Header) (query string, ok bool) {
	for _, header := range h.Values("Link") {
		for link := range strings.SplitSeq(header, ",") {
			target, parameters, _ := strings.Cut(link, ";")
			target = strings.TrimSpace(target)
			if !strings.HasPrefix(target, "<") || !strings.HasSuffix(target, ">") {
				continue
			}
			for parameter := range strings.SplitSeq(parameters, ";") {
				name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
				if !strings.EqualFold(name, "rel") || strings.Trim(value, `"`) != "next" {
					continue
				}
				if u, err := url.Parse(target[1 : len(target)-1]); err == nil {
					return u.RawQuery, true
				}
			}
		}
	}
	return "", false
}
