package api

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

// target is a job or run that a request is about.
type target struct {
	namespace string
	id        belfry.ID
}

func readJob(r *http.Request) (target, error) { return readTarget(r, "job") }
func readRun(r *http.Request) (target, error) { return readTarget(r, "run") }

func readTarget(r *http.Request, kind string) (target, error) {
	_, err := parameters(r)
	if err != nil {
		return target{}, err
	}
	return parseTarget(r, kind)
}

func parseTarget(r *http.Request, kind string) (t target, err error) {
	if t.namespace, err = readNamespace(r); err != nil {
		return t, err
	}
	if t.id, err = belfry.ParseID(r.PathValue("id")); err != nil {
		return t, belfry.Errorf(belfry.NotFound, "there is no %s %.40q", kind, r.PathValue("id"))
	}
	return t, nil
}

const namespaceHeader = "Belfry-Namespace"

func readNamespace(r *http.Request) (string, error) {
	name := r.Header.Get(namespaceHeader)
	if name == "" {
		return belfry.DefaultNamespace, nil
	}
	if !control.ValidNamespace(name) {
		return "", refuseParameters(belfry.Fault{
			Field:   namespaceHeader,
			Message: "must have 1 to 63 lower case letters, digits and hyphens",
		})
	}
	return name, nil
}

// parameters gives the query of a request, which may have each of the given names
// once and no other: a filter that is not there must not seem to work.
func parameters(r *http.Request, names ...string) (url.Values, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, refuse("the query of the address cannot be read")
	}
	var faults []belfry.Fault
	for _, name := range slices.Sorted(maps.Keys(query)) {
		switch {
		case !slices.Contains(names, name):
			faults = append(faults, belfry.Fault{Field: clip(name), Message: "is not a parameter here"})
		case len(query[name]) > 1:
			faults = append(faults, belfry.Fault{Field: name, Message: "is there twice"})
		}
	}
	if len(faults) > 0 {
		return nil, refuseParameters(faults...)
	}
	return query, nil
}

const (
	defaultLimit = 50
	maxLimit     = 500
)

// readLimit gives how many items a page has.
func readLimit(query url.Values) (int, []belfry.Fault) {
	text := query.Get("limit")
	if text == "" {
		return defaultLimit, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxLimit {
		return 0, []belfry.Fault{{Field: "limit", Message: fmt.Sprintf("must be from 1 to %d", maxLimit)}}
	}
	return n, nil
}

// readList reads what is common to lists; each has a cursor of its own form.
func readList(r *http.Request, readCursor func(string) error) (limit int, err error) {
	query, err := parameters(r, "limit", "cursor")
	if err != nil {
		return 0, err
	}
	limit, faults := readLimit(query)
	if cursor := query.Get("cursor"); cursor != "" {
		if err := readCursor(cursor); err != nil {
			faults = append(faults, belfry.Fault{Field: "cursor", Message: err.Error()})
		}
	}
	if len(faults) > 0 {
		return 0, refuseParameters(faults...)
	}
	return limit, nil
}

// nextPage is the address at which a list goes on.
func nextPage(path, cursor string, limit int) string {
	return path + "?" + url.Values{"cursor": {cursor}, "limit": {strconv.Itoa(limit)}}.Encode()
}
