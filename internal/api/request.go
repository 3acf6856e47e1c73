package api

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

// target is a job or run that a request is about: its id, or the name of a job.
type target struct {
	namespace string
	ref       string
}

// readTarget reads a request that is about something and has no parameters.
func readTarget(r *http.Request) (target, error) {
	if _, err := parameters(r); err != nil {
		return target{}, err
	}
	return parseTarget(r)
}

func parseTarget(r *http.Request) (t target, err error) {
	t.namespace, err = readNamespace(r)
	t.ref = r.PathValue("id")
	return t, err
}

// find gives the id of the job that a request is about.
func (a *api) find(ctx context.Context, t target) (belfry.ID, error) {
	return a.control.Find(ctx, t.namespace, t.ref)
}

// jobPath is where a job or something of it is.
func jobPath(ref string, more ...string) string {
	return strings.Join(append([]string{jobsPath, url.PathEscape(ref)}, more...), "/")
}

const namespaceHeader = "Belfry-Namespace"

func readNamespace(r *http.Request) (string, error) {
	names := r.Header.Values(namespaceHeader)
	if len(names) == 0 || len(names) == 1 && names[0] == "" {
		return belfry.DefaultNamespace, nil
	}
	if len(names) > 1 || !control.ValidNamespace(names[0]) {
		return "", refuseParameters(belfry.FieldError{
			Field:   namespaceHeader,
			Message: "must have 1 to 63 lower case letters, digits and hyphens",
		})
	}
	return names[0], nil
}

const keyHeader = "Idempotency-Key"

// maxRequestKey is how many characters an Idempotency-Key may have.
const maxRequestKey = 200

// readKey takes the key under which a request may be repeated; empty if it has
// none.
func readKey(r *http.Request) (string, error) {
	given := r.Header.Values(keyHeader)
	if len(given) == 0 {
		return "", nil
	}
	key := given[0]
	odd := strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' })
	message := ""
	switch {
	case len(given) > 1:
		message = "is there twice"
	case key == "" || len(key) > maxRequestKey || odd:
		message = "must have 1 to 200 printable ASCII characters"
	default:
		return key, nil
	}
	return "", refuseParameters(belfry.FieldError{Field: keyHeader, Message: message})
}

const matchHeader = "If-Match"

// condition is what a job must be like for a change to happen. The zero value
// holds for any.
type condition struct {
	given bool
	any   bool     // of a "*": it must only be there
	tags  []string // without quotes; one must be the job's
}

// readCondition takes the If-Match header. Weak tags match nothing.
func readCondition(r *http.Request) (c condition, err error) {
	text := strings.TrimSpace(strings.Join(r.Header.Values(matchHeader), ","))
	if text == "" {
		return c, nil
	}
	c.given = true
	if text == "*" {
		c.any = true
		return c, nil
	}
	for rest := text; rest != ""; {
		weak := false
		rest, weak = strings.CutPrefix(rest, "W/")
		quoted, ok := strings.CutPrefix(rest, `"`)
		tag, behind, closed := strings.Cut(quoted, `"`)
		behind = strings.TrimLeft(behind, " \t")
		next, comma := strings.CutPrefix(behind, ",")
		if !ok || !closed || behind != "" && !comma {
			return c, refuseParameters(belfry.FieldError{
				Field:   matchHeader,
				Message: `must be * or the ETag of an answer, in its quotes, or several with commas between them`,
			})
		}
		if !weak {
			c.tags = append(c.tags, tag)
		}
		rest = strings.TrimLeft(next, " \t,")
	}
	return c, nil
}

// match gives the version that control must find, empty for any.
func (a *api) match(ctx context.Context, namespace string, id belfry.ID, c condition) (string, error) {
	if !c.given || c.any {
		return "", nil
	}
	if len(c.tags) == 1 && c.tags[0] != "" {
		return c.tags[0], nil
	}
	job, err := a.control.Get(ctx, namespace, id)
	if err != nil {
		return "", err
	}
	version := control.Version(job)
	for _, tag := range c.tags {
		if tag == version {
			return version, nil
		}
	}
	return "", notAsSeen()
}

func notAsSeen() error {
	return belfry.Errorf(belfry.Changed, "the job is not as the If-Match header says; look at it again")
}
