package web

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/store"
)

type listing[T any] struct {
	Items  []T
	Filter []*formField
	Query  url.Values // that leads here, without the position
	Next   string     // position of the next page
	First  bool       // it is the first page
	Error  string
}

// position is a place in a list as text.
func position(p store.Position) string {
	if p == (store.Position{}) {
		return ""
	}
	return strconv.FormatInt(p.At.UnixMicro(), 36) + "." + p.ID.String()
}

func parsePosition(text string) (p store.Position) {
	at, id, _ := strings.Cut(text, ".")
	micros, err := strconv.ParseInt(at, 36, 64)
	if p.ID, _ = belfry.ParseID(id); err == nil && !p.ID.IsZero() {
		p.At = time.UnixMicro(micros).UTC()
		return p
	}
	return store.Position{}
}

// listFunc gets a page of a list of a namespace.
type listFunc[F, T any] func(context.Context, string, F, store.Page) ([]T, store.Position, error)

// listPage is the page of a list alone.
func listPage[F, T any](section, title string, names []string, get listFunc[F, T]) func(*request) error {
	return func(r *request) error {
		l, _, err := list(r, names, pageSize, get)
		return r.showSection(section, title, l, err)
	}
}

// list reads a filter from the query and gets a page of a list. What is wrong with the filter
// is shown with an empty list.
func list[F, T any](r *request, names []string, limit int, get listFunc[F, T]) (l listing[T], filter F, err error) {
	l.Query = url.Values{}
	known := url.Values{}
	for name, values := range r.URL.Query() {
		if values = slices.DeleteFunc(values, func(v string) bool { return strings.TrimSpace(v) == "" }); len(values) > 0 && slices.Contains(names, name) {
			l.Query[name] = values
			if name != "sort" {
				known[name] = values
			}
		}
	}
	for _, e := range schema.DecodeQuery(known, &filter) {
		l.Error = cmp.Or(l.Error, words(e.Field)+" "+e.Message)
	}
	after := r.URL.Query().Get("after")
	l.First, l.Filter = after == "", filterFields(&filter, l.Query, names)
	if l.Error != "" {
		return l, filter, nil
	}
	var next store.Position
	if l.Items, next, err = get(r.ctx, r.namespace, filter, store.Page{After: parsePosition(after), Limit: limit}); belfry.CodeOf(err) == belfry.NotFound {
		l.Error, err = publicText(err), nil
	}
	l.Next = position(next)
	return l, filter, err
}

func (r *request) postedFilter(filter any, names []string) error {
	values := url.Values{}
	for _, name := range names {
		if v := r.PostFormValue(name); v != "" {
			values.Set(name, v)
		}
	}
	if fields := schema.DecodeQuery(values, filter); len(fields) > 0 {
		return &belfry.Error{Code: belfry.Invalid, Message: "the filter is not valid", Fields: fields}
	}
	return nil
}

// id is the id in the address of a run or alert.
func (r *request) id(what string) (belfry.ID, error) {
	id, err := belfry.ParseID(r.PathValue(what))
	if err != nil {
		return id, belfry.Errorf(belfry.NotFound, "there is no %s %.40q; each is named by its id", what, r.PathValue(what))
	}
	return id, nil
}

// NextLink is the address of the next page.
func (l listing[T]) NextLink(p *page) string {
	pairs := []any{"after", l.Next}
	for name, values := range l.Query {
		for _, v := range values {
			pairs = append(pairs, name, v)
		}
	}
	return p.Link(p.r.URL.Path, pairs...)
}

// Filtered reports whether a filter is set.
func (l listing[T]) Filtered() bool { return len(l.Query) > 0 }

type jobRow struct {
	belfry.Job
	Times []store.RunTime
}

// Failing reports whether the latest attempts failed.
func (j jobRow) Failing() bool { return isFailing(j.Job) }

func isFailing(j belfry.Job) bool { return j.LastResult != nil && j.LastResult.Failures > 0 }

var jobSorts = []option{{Value: "", Label: "Newest first"}, {Value: "name", Label: "By name"}, {Value: "next", Label: "Next run first"}, {Value: "last", Label: "Latest run first"}}

const sparkDays = 30

var jobFilterNames = []string{"search", "status", "type", "queue", "tag"}

func (s *server) jobs(r *request) error {
	sort := &formField{Name: "sort", Label: "Order", Control: "select", Options: jobSorts, Value: r.URL.Query().Get("sort")}
	p, _, err := list(r, append(jobFilterNames, "sort"), pageSize, func(ctx context.Context, namespace string, f belfry.JobFilter, page store.Page) (rows []jobRow, next store.Position, err error) {
		jobs, next, err := s.sortedJobs(r, f, sort.Value, page)
		if err != nil {
			return nil, next, err
		}
		ids := make([]belfry.ID, len(jobs))
		for i := range jobs {
			ids[i] = jobs[i].ID
		}
		times, err := s.Control.RunTimes(ctx, namespace, ids, s.Control.Now().AddDate(0, 0, -sparkDays), 20)
		for _, job := range jobs {
			rows = append(rows, jobRow{job, times[job.ID]})
		}
		return rows, next, err
	})
	p.Filter = append(p.Filter, sort)
	return r.showSection("jobs", "Jobs", p, err)
}

// sortedJobs lists jobs by an index that has their order. Other orders than the usual one
// find the jobs by their plans or runs, and leave out what the filter does not match.
func (s *server) sortedJobs(r *request, f belfry.JobFilter, sort string, p store.Page) (jobs []belfry.Job, next store.Position, err error) {
	switch sort {
	case "next":
		jobs, next, err = s.Control.Upcoming(r.ctx, r.namespace, s.Control.Now().AddDate(10, 0, 0), p)
	case "name":
		jobs, next, err = s.Control.JobsByName(r.ctx, r.namespace, p)
	case "last":
		var runs []belfry.Run
		runs, next, err = s.Control.ListRuns(r.ctx, r.namespace, belfry.RunFilter{}, store.Page{After: p.After, Limit: 4 * p.Limit})
		for _, run := range runs {
			job, failed := s.Control.Get(r.ctx, r.namespace, run.JobID.String())
			if failed == nil && job.LastRunAt != nil && job.LastRunAt.Equal(run.ScheduledAt) && !slices.ContainsFunc(jobs, func(j belfry.Job) bool { return j.ID == job.ID }) {
				jobs = append(jobs, job)
			}
			if len(jobs) == p.Limit {
				next = store.Position{At: run.ScheduledAt, ID: run.ID}
				break
			}
		}
	default:
		return s.Control.List(r.ctx, r.namespace, f, p)
	}
	return slices.DeleteFunc(jobs, func(j belfry.Job) bool { return !matches(j, f) }), next, err
}

func matches(j belfry.Job, f belfry.JobFilter) bool {
	contains := func(text string) bool { return strings.Contains(strings.ToLower(text), strings.ToLower(f.Search)) }
	status := f.Status == "" || j.Status == f.Status || f.Status == belfry.StatusFailing && isFailing(j)
	return status && (f.Type == "" || j.Type == f.Type) && (f.Queue == "" || j.Queue == f.Queue) && (f.Search == "" || contains(j.Name) || contains(j.Description)) &&
		!slices.ContainsFunc(f.Tags, func(tag string) bool { return !slices.Contains(j.Tags, tag) })
}

// confirmation asks before something is done.
type confirmation struct {
	Title, Text string
	Items       []string
	More        int // beyond the items
	Action      string
	Fields      url.Values
	Button      string
	Danger      bool
	Back        string
}

// confirm asks for a confirmation of the form that was sent.
func (r *request) confirm(section string, c confirmation) error {
	c.Fields = r.PostForm
	c.Fields.Set("confirm", "yes")
	c.Back = cmp.Or(c.Back, r.back())
	c.Fields.Set("back", c.Back)
	c.Action = cmp.Or(c.Action, r.URL.RequestURI())
	if len(c.Items) > 20 {
		c.More, c.Items = len(c.Items)-20, c.Items[:20]
	}
	return r.show("confirm.html", section, c.Title, c)
}

func (r *request) confirmed() bool { return r.PostFormValue("confirm") == "yes" }

// isLocal reports whether an address is of this server, however a browser reads it.
func isLocal(to string) bool {
	return strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//") && !strings.ContainsAny(to, "\\\r\n\t")
}

// comeFrom is the page that a confirmed form was on.
func (r *request) comeFrom() string {
	if to := r.PostFormValue("back"); isLocal(to) {
		return to
	}
	return ""
}

var bulkActions = map[belfry.Action]string{belfry.ActionPause: "Pause", belfry.ActionResume: "Resume", belfry.ActionTrigger: "Trigger", belfry.ActionDelete: "Delete"}

// bulk acts on jobs that are selected, or on all that match the filter, after a count.
func (s *server) bulk(r *request) error {
	action := belfry.Action(r.PostFormValue("action"))
	verb := bulkActions[action]
	if verb == "" {
		return belfry.Errorf(belfry.Invalid, "choose what to do with the jobs")
	}
	var filter belfry.JobFilter
	if err := r.postedFilter(&filter, jobFilterNames); err != nil {
		return err
	}
	all := r.PostFormValue("scope") == "all"
	request := belfry.Bulk{Action: action, Filter: filter, All: filter.Empty(), DryRun: !r.confirmed()}
	if all {
		result, next, err := s.Control.Bulk(r.ctx, r.namespace, request, belfry.ID{}, noKey)
		if err != nil {
			return err
		}
		if r.confirmed() {
			return r.finishBulk(string(action), result.Done, result.Failed)
		}
		count := number(result.Matched)
		if !next.IsZero() {
			count = "the first " + count
		}
		return r.confirm("jobs", confirmation{Title: fmt.Sprintf("%s %s jobs?", verb, count), Text: "These are all jobs that match the filter.", Button: verb + " " + count + " jobs", Danger: action == belfry.ActionDelete})
	}
	var names []string
	var failed []belfry.BulkFailure
	done := 0
	for _, text := range r.PostForm["job"][:min(len(r.PostForm["job"]), 500)] {
		job, err := s.Control.Get(r.ctx, r.namespace, text)
		if err == nil && r.confirmed() {
			err = s.Control.Act(r.ctx, r.namespace, action, job.ID)
		}
		switch {
		case err != nil && belfry.CodeOf(err) != belfry.Conflict && belfry.CodeOf(err) != belfry.NotFound:
			return err
		case err != nil:
			failed = append(failed, belfry.BulkFailure{JobID: job.ID, Name: job.Name, Error: err.Error()})
		default:
			done++
			names = append(names, jobTitle(job.Name, job.ID))
		}
	}
	if r.confirmed() {
		return r.finishBulk(string(action), done, failed)
	}
	if len(names) == 0 {
		return belfry.Errorf(belfry.Invalid, "no job is selected; tick some in the list first")
	}
	what := counted(len(names), "job")
	return r.confirm("jobs", confirmation{Title: verb + " " + what + "?", Items: names, Button: verb + " " + what, Danger: action == belfry.ActionDelete})
}

func (r *request) finishBulk(action string, done int, failed []belfry.BulkFailure) error {
	if len(failed) > 0 {
		f := failed[0]
		return belfry.Errorf(belfry.Conflict, "%d succeeded and %d failed, the first of them %s: %s", done, len(failed), jobTitle(f.Name, f.JobID), f.Error)
	}
	word := action
	if action == "delete" {
		word = "deleted"
	}
	return r.redirect(cmp.Or(r.comeFrom(), "/jobs"), word, "n", done)
}
