package api

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
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
	if near := schema.Nearest(name, plain); near != "" {
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
	faults []belfry.FieldError
}

func (p *paging) fault(field, format string, args ...any) {
	p.faults = append(p.faults, belfry.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
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

// truth takes a parameter that is true or false.
func (p *paging) truth(name string) (value, given bool) {
	switch text := p.query.Get(name); text {
	case "":
		return false, false
	case "true", "false":
		return text == "true", true
	}
	p.fault(name, "must be true or false")
	return false, false
}

// instant takes a parameter that is a point in time; zero if it is not there. A plus
// sign that nobody encoded has become a blank.
func (p *paging) instant(name string) time.Time {
	text := p.query.Get(name)
	if text == "" {
		return time.Time{}
	}
	at, problem := parseInstant(strings.Replace(text, " ", "+", 1))
	if problem != "" {
		p.fault(name, "%s", problem)
	}
	return at
}

// parseInstant reads a point in time in the form of RFC 3339. If it cannot, it says
// why, in words that fit behind the name of a field.
func parseInstant(text string) (at time.Time, problem string) {
	if at.UnmarshalText([]byte(text)) != nil {
		return time.Time{}, noInstant
	}
	if at = at.UTC().Truncate(time.Microsecond); at.Year() < firstYear || at.Year() > lastYear {
		return time.Time{}, fmt.Sprintf("must lie in the years %d to %d", firstYear, lastYear)
	}
	return at, ""
}

const noInstant = `must be an instant with an offset or a Z; for example "2027-03-01T09:00:00+01:00" or "2027-03-01T08:00:00Z"`

// words takes a parameter that is part of a name.
func (p *paging) words(name, text string) string {
	if problem := checkWords(text); problem != "" {
		p.fault(name, "%s", problem)
		return ""
	}
	return text
}

// checkWords says what keeps a text from being part of a name, in words that fit
// behind that of a field.
func checkWords(text string) string {
	switch {
	case !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "must be text in UTF-8 without control characters"
	case utf8.RuneCountInString(text) > belfry.MaxName:
		return fmt.Sprintf("has %d characters, the most is %d", utf8.RuneCountInString(text), belfry.MaxName)
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
	var tags []string
	for _, tag := range p.query["tag"] {
		tags = append(tags, p.words("tag", tag))
	}
	f.Tags = distinct(tags)
	if len(f.Tags) > maxTagFilter {
		p.fault("tag", "is there %d times, the most is %d", len(f.Tags), maxTagFilter)
	}
	return f
}

// distinct are words in order, each once, without empty ones; nil for none.
func distinct(words []string) []string {
	slices.Sort(words)
	words = slices.DeleteFunc(slices.Compact(words), func(w string) bool { return w == "" })
	if len(words) == 0 {
		return nil
	}
	return words
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
