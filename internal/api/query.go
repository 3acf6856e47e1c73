package api

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

// parameters gives the query of a request, which may have each of the given names
// once, or often if they end in "...", and no other: a filter that is not there
// must not seem to work.
func parameters(r *http.Request, names ...string) (url.Values, error) {
	p, err := pagingOf(r, names...)
	if err == nil {
		err = p.err()
	}
	return p.query, err
}

// pagingOf is parameters for lists, whose faults are told together with those of
// the values.
func pagingOf(r *http.Request, names ...string) (p paging, err error) {
	if p.query, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		return p, refuse("the query of the address cannot be read")
	}
	for _, name := range slices.Sorted(maps.Keys(p.query)) {
		switch {
		case slices.Contains(names, name+"..."):
		case !slices.Contains(names, name):
			p.fault(clip(strings.ToValidUTF8(name, "?")), "%s", unknownParameter(name, names))
		case len(p.query[name]) > 1:
			p.fault(name, "is there twice")
		}
	}
	return p, nil
}

func unknownParameter(name string, names []string) string {
	if len(names) == 0 {
		return "is not a parameter here; there are none"
	}
	plain := make([]string, len(names))
	for i, n := range names {
		plain[i] = strings.TrimSuffix(n, "...")
	}
	if near := belfry.Nearest(name, plain); near != "" {
		return fmt.Sprintf("is not a parameter here; did you mean %q?", near)
	}
	return "is not a parameter here; there are " + strings.Join(plain, ", ")
}

const (
	defaultLimit = 50
	maxLimit     = 500
)

// paging reads what is common to lists; each has a cursor of its own form.
type paging struct {
	query  url.Values
	faults []belfry.Fault
}

func (p *paging) fault(field, format string, args ...any) {
	p.faults = append(p.faults, belfry.Fault{Field: field, Message: fmt.Sprintf(format, args...)})
}

// limit is how many items a page has.
func (p *paging) limit() int {
	text := p.query.Get("limit")
	if text == "" {
		return defaultLimit
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxLimit {
		p.fault("limit", "must be from 1 to %d", maxLimit)
		return defaultLimit
	}
	return n
}

// cursor hands on the cursor, if there is one.
func (p *paging) cursor(read func(string) error) {
	if text := p.query.Get("cursor"); text != "" {
		if err := read(text); err != nil {
			p.fault("cursor", "%s", err)
		}
	}
}

// err tells all faults at once.
func (p *paging) err() error {
	if len(p.faults) > 0 {
		return refuseParameters(p.faults...)
	}
	return nil
}

// oneOf takes a parameter that is one of a few words, in any case.
func oneOf[Word ~string](p *paging, name string, words ...Word) Word {
	given := p.query.Get(name)
	lower := Word(strings.ToLower(given))
	if given == "" || slices.Contains(words, lower) {
		return lower
	}
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = string(w)
	}
	p.fault(name, "must be one of %s", strings.Join(all, ", "))
	return ""
}

// words takes a parameter that is part of a name.
func (p *paging) words(name, text string) string {
	switch {
	case !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }):
		p.fault(name, "must be text in UTF-8 without control characters")
	case utf8.RuneCountInString(text) > belfry.MaxName:
		p.fault(name, "has %d characters, the most is %d", utf8.RuneCountInString(text), belfry.MaxName)
	default:
		return text
	}
	return ""
}

// maxTagFilter is how many tags a list may ask for.
const maxTagFilter = 20

// readJobFilter reads what the jobs of a list shall have in common.
func (p *paging) readJobFilter() control.JobFilter {
	f := control.JobFilter{
		Status:  oneOf(p, "status", jobStatuses...),
		Type:    oneOf(p, "type", belfry.TypeHTTP, belfry.TypeWorker),
		Handler: p.words("handler", p.query.Get("handler")),
		Queue:   p.words("queue", p.query.Get("queue")),
		Search:  p.words("search", p.query.Get("search")),
	}
	for _, tag := range p.query["tag"] {
		if tag = p.words("tag", tag); tag != "" && !slices.Contains(f.Tags, tag) {
			f.Tags = append(f.Tags, tag)
		}
	}
	slices.Sort(f.Tags)
	if len(f.Tags) > maxTagFilter {
		p.fault("tag", "is there %d times, the most is %d", len(f.Tags), maxTagFilter)
	}
	return f
}

// nextPage is the address at which a list goes on, with the filter that it has.
func nextPage(path string, query url.Values, cursor string) string {
	next := maps.Clone(query)
	if next == nil {
		next = make(url.Values)
	}
	next.Set("cursor", cursor)
	return path + "?" + next.Encode()
}

// filterText is the same for equal filters.
func filterText(f control.JobFilter) string {
	return fmt.Sprintf("%q %q %q %q %q %q", f.Status, f.Type, f.Handler, f.Queue, f.Search, f.Tags)
}
