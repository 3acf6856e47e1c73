package client

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

// jobNames lists the names of jobs.
func jobNames(t *testing.T, c *Client, filter belfry.JobFilter) (names []string, err error) {
	t.Helper()
	for job, err := range c.Jobs(t.Context(), filter) {
		if err != nil {
			return names, err
		}
		names = append(names, job.Name)
	}
	return names, nil
}

func TestListsReadAllPages(t *testing.T) {
	var asked []string
	c := serving(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		next := func(query string) {
			w.Header().Add("Link", `</else>; rel="prev", <http://elsewhere.test/api/v1/jobs?`+query+`>; title="x"; rel="next"`)
		}
		switch cursor := r.URL.Query().Get("cursor"); cursor {
		case "":
			next("cursor=b&limit=2")
			fmt.Fprint(w, `[{"name":"1"},{"name":"2"}]`)
		case "b":
			next("cursor=c%3D&limit=2")
			fmt.Fprint(w, `[]`)
		default:
			fmt.Fprintf(w, `[{"name":%q}]`, cursor)
		}
	})
	names, err := jobNames(t, c, belfry.JobFilter{Status: belfry.StatusPaused, Type: "http", Handler: "h", Queue: "q", Tags: []string{"a", "b"}, Search: "x y", PageSize: 2})
	if err != nil || !slices.Equal(names, []string{"1", "2", "c="}) {
		t.Errorf("got %q and %v", names, err)
	}
	want := []string{"handler=h&limit=2&queue=q&search=x+y&status=paused&tag=a&tag=b&type=http", "cursor=b&limit=2", "cursor=c%3D&limit=2"}
	if !slices.Equal(asked, want) {
		t.Errorf("asked for %q", asked)
	}
	asked = nil
	for range c.Jobs(t.Context(), belfry.JobFilter{}) {
		break
	}
	if !slices.Equal(asked, []string{""}) {
		t.Errorf("a loop that ends early asked for %q", asked)
	}
}

func TestListsKeepThePrefixOfTheServer(t *testing.T) {
	server := httptest.NewServer(http.StripPrefix("/tools/belfry", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "" {
			w.Header().Set("Link", `</api/v1/jobs?cursor=b>; rel=next`)
		}
		fmt.Fprint(w, `[{"name":"x"}]`)
	})))
	defer server.Close()
	c, _ := New(server.URL + "/tools/belfry/")
	defer c.Close()
	if names, err := jobNames(t, c, belfry.JobFilter{}); err != nil || len(names) != 2 {
		t.Errorf("got %q and %v", names, err)
	}
}

func TestListErrors(t *testing.T) {
	link := `Link: </x?cursor=a>; rel="next"`
	for name, tt := range map[string]struct {
		answers []said
		want    string
	}{
		"a page that is refused":   {[]said{{status: 200, body: `[{"name":"1"}]`, header: link}, refusal(400, "bad_request", "the cursor has expired")}, "has expired"},
		"a list that does not end": {[]said{{status: 200, body: `[{"name":"1"}]`, header: link}, {status: 200, body: `[]`, header: link}}, "does not end"},
	} {
		c, _ := scripted(t, tt.answers...)
		names, err := jobNames(t, c, belfry.JobFilter{})
		if err == nil || !strings.Contains(err.Error(), tt.want) || len(names) != 1 {
			t.Errorf("%s: got %q and %v", name, names, err)
		}
	}
}

func TestRunsAndRevisions(t *testing.T) {
	const id = "01890a5d-ac96-774b-bcce-b302099a8057"
	c, s := scripted(t, said{status: 200, body: `[{"run_id":"` + id + `","status":"dead","idempotency_key":"k","attempts":[{"attempt":1,"outcome":"failed"}]}]`})
	for run, err := range c.Runs(t.Context(), belfry.RunFilter{JobRunFilter: belfry.JobRunFilter{Status: belfry.RunDead, PageSize: 5}}) {
		if err != nil || run.ID.String() != id || run.Status != belfry.RunDead || run.IdempotencyKey != "k" || run.Attempts[0].Outcome != belfry.OutcomeFailed {
			t.Errorf("got %+v and %v", run, err)
		}
	}
	for range c.JobRuns(t.Context(), "a/b", belfry.JobRunFilter{}) {
	}
	s.answers = []said{{status: 200, body: `[{"revision":2,"replaced_at":null,"schedule":"@daily","queue":"q","payload":{"a":1}},{"revision":1,"replaced_at":"2030-01-01T00:00:00Z"}]`}}
	var revisions []belfry.Revision
	for v, err := range c.Revisions(t.Context(), "a/b") {
		if err != nil {
			t.Fatal(err)
		}
		revisions = append(revisions, v)
	}
	if len(revisions) != 2 || revisions[0].ReplacedAt != nil || revisions[0].Schedule != "@daily" || string(revisions[0].Payload) != `{"a":1}` ||
		revisions[1].Number != 1 || revisions[1].ReplacedAt.Year() != 2030 {
		t.Errorf("got %+v", revisions)
	}
	var asked []string
	for _, r := range s.requests {
		asked = append(asked, r.URL.RequestURI())
	}
	if want := []string{"/api/v1/runs?limit=5&status=dead", "/api/v1/jobs/a%2Fb/runs", "/api/v1/jobs/a%2Fb/revisions"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q", asked)
	}
}
