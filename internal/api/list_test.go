package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

func TestListJobsInPages(t *testing.T) {
	s := newService(t)
	if a := s.expect(http.StatusOK, nil, "GET", "/api/v1/jobs", ""); a.body != "[]\n" || a.header.Get("Link") != "" {
		t.Errorf("an empty list is %q, it continues at %q", a.body, a.header.Get("Link"))
	}
	var want []string
	for range 6 {
		want = append(want, s.create(`{"schedule": "@daily", "payload": {"url": "https://example.com/hook"}}`).ID.String())
	}
	slices.Sort(want) // ids of one millisecond are not ordered
	slices.Reverse(want)
	for limit, pages := range map[string]int{"?limit=3": 2, "?limit=4": 2, "?limit=1": 6, "": 1, "?limit=500": 1, "?limit=": 1} {
		got, n := s.listIDs("/api/v1/jobs" + limit)
		if !slices.Equal(got, want) || n != pages {
			t.Errorf("%s: got %d pages with %v, want %v", limit, n, got, want)
		}
	}
}

func TestListJobsWithFilters(t *testing.T) {
	s := newService(t)
	for _, body := range []string{
		`{"name": "Alpha Report", "schedule": "@daily", "tags": ["x", "y"], "payload": {"url": "https://example.com"}}`,
		`{"name": "beta report", "schedule": "@daily", "tags": ["x"], "queue": "slow", "payload": {"url": "https://example.com"}, "status": "paused"}`,
		`{"name": "gamma", "schedule": "@daily", "tags": ["y"], "handler": "send", "type": "worker"}`,
		`{"schedule": "@daily", "type": "worker", "handler": "send", "queue": "slow"}`,
	} {
		s.create(body)
	}
	for query, want := range map[string][]string{
		"":                              {"", "Alpha Report", "beta report", "gamma"},
		"?status=PAUSED":                {"beta report"},
		"?status=scheduled&type=worker": {"", "gamma"},
		"?type=HTTP":                    {"Alpha Report", "beta report"},
		"?handler=send":                 {"", "gamma"},
		"?queue=slow":                   {"", "beta report"},
		"?tag=x":                        {"Alpha Report", "beta report"},
		"?tag=x&tag=y":                  {"Alpha Report"},
		"?search=REPORT":                {"Alpha Report", "beta report"},
		"?search=report&queue=slow":     {"beta report"},
		"?search=%25":                   {},
		"?status=&tag=":                 {"", "Alpha Report", "beta report", "gamma"},
	} {
		names := []string{}
		sep := "?"
		if query != "" {
			sep = "&"
		}
		for path := "/api/v1/jobs" + query + sep + "limit=1"; path != ""; {
			var page []belfry.Job
			a := s.expect(http.StatusOK, &page, "GET", path, "")
			for _, job := range page {
				names = append(names, job.Name)
			}
			path = nextPage(t, a)
		}
		if slices.Sort(names); !slices.Equal(names, want) {
			t.Errorf("%s: got %q, want %q", query, names, want)
		}
	}
	p := s.send("GET", "/api/v1/jobs?status=asleep&type=x", "").problem(t)
	if len(p.Errors) != 2 || !strings.Contains(p.Errors[0].Message, `"scheduled", "queued", "running", "paused"`) || !strings.Contains(p.Errors[1].Message, `"http", "worker" or "command"`) {
		t.Errorf("got %+v", p.Errors)
	}
}

func TestListRunsAndJobHistory(t *testing.T) {
	s := newService(t)
	var want []string
	for _, name := range []string{"a", "b", "a"} {
		s.expect(http.StatusOK, nil, "GET", "/api/v1/jobs", "")
		s.send("PUT", "/api/v1/jobs/"+name, `{"schedule": "@yearly", "overlap": "parallel", "max_retries": 0, "payload": {"url": "https://example.com"}}`)
		var created belfry.TriggerResult
		s.expect(http.StatusAccepted, &created, "POST", "/api/v1/jobs/"+name+"/trigger", `{"payload": {"x": 1}}`)
		s.failTriggered()
		want = append(want, created.RunID.String())
	}
	slices.Reverse(want)
	slices.SortFunc(want, func(a, b string) int { return strings.Compare(b, a) })
	if got, _ := s.listIDs("/api/v1/runs?limit=1"); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, _ := s.listIDs("/api/v1/runs?status=DEAD&limit=2"); !slices.Equal(got, want) {
		t.Errorf("dead are %v, want %v", got, want)
	}
	if got, _ := s.listIDs("/api/v1/runs?status=ready"); len(got) != 0 {
		t.Errorf("ready are %v", got)
	}
	var h belfry.JobHistory
	a := s.expect(http.StatusOK, &h, "GET", "/api/v1/jobs/a/history?limit=1", "")
	if h.Name != "a" || len(h.Executions) != 1 || h.Executions[0].Status != "dead" || h.Executions[0].IdempotencyKey == "" {
		t.Errorf("got %s", a.body)
	}
	a = s.expect(http.StatusOK, &h, "GET", nextPage(t, a), "")
	if len(h.Executions) != 1 || nextPage(t, a) != "" {
		t.Errorf("the second page is %s and continues at %q", a.body, nextPage(t, a))
	}
}

func TestTriggerJob(t *testing.T) {
	s := newService(t)
	job := s.create(`{"schedule": "@yearly", "overlap": "parallel", "max_retries": 0, "payload": {"url": "https://example.com/hook"}}`)
	path := "/api/v1/jobs/" + job.ID.String()
	if a := s.expect(http.StatusOK, nil, "GET", path+"/runs", ""); a.body != "[]\n" {
		t.Errorf("the runs of a new job are %q", a.body)
	}
	var want []string
	for _, body := range []string{"", "{}", " \n"} {
		var created belfry.TriggerResult
		a := s.expect(http.StatusAccepted, &created, "POST", path+"/trigger", body)
		if a.header.Get("Location") != "/api/v1/runs/"+created.RunID.String() {
			t.Errorf("the run is at %q", a.header.Get("Location"))
		}
		want = append(want, created.RunID.String())
		s.failTriggered()
	}
	slices.Reverse(want)
	if got, pages := s.listIDs(path + "/runs?limit=2"); !slices.Equal(got, want) || pages != 2 {
		t.Errorf("got %d pages with %v, want %v", pages, got, want)
	}
	var run map[string]any
	s.expect(http.StatusOK, &run, "GET", "/api/v1/runs/"+want[2], "")
	key, _ := run["idempotency_key"].(string)
	if run["status"] != "dead" || run["kind"] != "manual" || run["error"] != "the target answered 500" || run["output"] != "<b>oh no</b>" ||
		!strings.HasPrefix(key, job.ID.String()+":") || !strings.HasSuffix(key, ":"+want[2]) {
		t.Errorf("got %v", run)
	}
	if attempts, _ := run["attempts"].([]any); len(attempts) != 1 {
		t.Errorf("the attempts are %v", run["attempts"])
	}
	var list []map[string]any
	s.expect(http.StatusOK, &list, "GET", path+"/runs", "")
	if list[0]["idempotency_key"] == nil || list[0]["attempts"] != nil {
		t.Errorf("got %v", list[0])
	}
}
