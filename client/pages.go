package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
)

// query writes the fields of a filter that are set as a query.
func query(filter any, pageSize int) url.Values {
	out := url.Values{}
	v := reflect.ValueOf(filter)
	for _, f := range schema.Of(v.Type()).Fields {
		switch value := f.Value(v); {
		case value.IsZero():
		case f.Kind == schema.Texts:
			out[f.Query] = value.Interface().([]string)
		case f.Kind == schema.Time:
			out.Set(f.Query, value.Interface().(time.Time).Format(time.RFC3339Nano))
		default:
			out.Set(f.Query, fmt.Sprint(value.Interface()))
		}
	}
	if pageSize > 0 {
		out.Set("limit", strconv.Itoa(pageSize))
	}
	return out
}

// pages returns the items of all pages. A page may be empty and have a next one. Of the
// link to the next page only the query is used: the key goes nowhere else, and a proxy
// may know the server by another path.
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
				yield(none, fmt.Errorf("%s: %w", what, belfry.Errorf(belfry.Internal, "the next page is the same page: the list does not end")))
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
