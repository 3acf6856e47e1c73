package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

const deadPath = "/api/v1/dead-letters"

// shownDead is a dead letter with the key that its target was given.
type shownDead struct {
	belfry.DeadLetter
	IdempotencyKey string `json:"idempotency_key"`
}

// showDead is a dead letter without its secrets.
func showDead(d belfry.DeadLetter) shownDead {
	d.Payload = secret.Mask(d.Payload)
	return shownDead{DeadLetter: d, IdempotencyKey: d.Run.IdempotencyKey()}
}

// deadQuery is what the dead letters of a request have in common. The job is still
// an id or a name.
type deadQuery struct {
	namespace string
	job       string
	filter    control.DeadFilter
}

// deadReasons are those that a run may be dead for.
var deadReasons = []belfry.Reason{belfry.ReasonOutOfRetries, belfry.ReasonPermanent, belfry.ReasonPoison}

// readDeadFilter reads what the dead letters of a list shall have in common.
func (p *paging) readDeadFilter(namespace string) deadQuery {
	return deadQuery{namespace, p.words("job", p.query.Get("job")), control.DeadFilter{
		Since:       p.instant("since"),
		Until:       p.instant("until"),
		Error:       p.words("error", p.query.Get("error")),
		Fingerprint: p.words("fingerprint", p.query.Get("fingerprint")),
		Reason:      oneOf(p, "reason", deadReasons...),
	}}
}

// text is the same for equal filters.
func (q deadQuery) text() string {
	f := q.filter
	return fmt.Sprintf("%q %d %d %q %q %q", q.job, f.Since.UnixMicro(), f.Until.UnixMicro(), f.Error, f.Fingerprint, f.Reason)
}

// resolve finds the job of a filter.
func (a *api) resolve(ctx context.Context, q deadQuery) (control.DeadFilter, error) {
	if q.job == "" {
		return q.filter, nil
	}
	id, err := a.control.Find(ctx, q.namespace, q.job)
	q.filter.Job = id
	return q.filter, err
}

// deadList is a page of dead letters.
type deadList struct {
	list
	of    deadQuery
	query url.Values
	page  control.RunPage
}

func readDeadList(r *http.Request) (in deadList, err error) {
	namespace, err := readNamespace(r)
	if err != nil {
		return in, err
	}
	p, err := pagingOf(r, "job", "since", "until", "error", "fingerprint", "reason", "limit", "cursor")
	if err != nil {
		return in, err
	}
	in.query, in.of = p.query, p.readDeadFilter(namespace)
	in.list = list{form: deadCursor, path: deadPath, namespace: namespace, filter: in.of.text()}
	in.page.Limit = p.limit()
	p.cursor(func(text string) error { return in.readBefore(text, &in.page) })
	return in, p.err()
}

func (a *api) listDead(ctx context.Context, in deadList) (answer, error) {
	filter, err := a.resolve(ctx, in.of)
	if err != nil {
		return answer{}, err
	}
	limit := in.page.Limit
	in.page.Limit++ // One more tells whether there is a next page.
	found, err := a.control.DeadLetters(ctx, in.namespace, filter, in.page)
	if err != nil {
		return answer{}, err
	}
	out := answer{status: http.StatusOK}
	if len(found) > limit {
		found = found[:limit]
		last := found[limit-1]
		out.next = nextPage(deadPath, in.query, in.beforeAt(*last.FinishedAt, last.ID))
	}
	letters := make([]shownDead, len(found))
	for i, d := range found {
		letters[i] = showDead(d)
	}
	out.body = letters
	return out, nil
}

// deadGroups is a question for the kinds of failure among dead letters.
type deadGroups struct {
	of    deadQuery
	limit int
}

func readDeadGroups(r *http.Request) (in deadGroups, err error) {
	namespace, err := readNamespace(r)
	if err != nil {
		return in, err
	}
	p, err := pagingOf(r, "job", "since", "until", "error", "fingerprint", "reason", "limit")
	if err != nil {
		return in, err
	}
	in.of, in.limit = p.readDeadFilter(namespace), p.limit()
	return in, p.err()
}

func (a *api) groupDead(ctx context.Context, in deadGroups) (answer, error) {
	filter, err := a.resolve(ctx, in.of)
	if err != nil {
		return answer{}, err
	}
	found, err := a.control.DeadGroups(ctx, in.of.namespace, filter, in.limit)
	return answer{status: http.StatusOK, body: append([]belfry.DeadGroup{}, found...)}, err
}

func (a *api) getDead(ctx context.Context, in target) (answer, error) {
	id, err := runID(in, "dead letter")
	if err != nil {
		return answer{}, err
	}
	letter, err := a.control.DeadLetter(ctx, in.namespace, id)
	return answer{status: http.StatusOK, body: showDead(letter)}, err
}
