package api_test

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

func TestAJobIsFoundByAnyName(t *testing.T) {
	s := serve(t)
	for _, name := range []string{"report", "a b", "a/b", "a//b/../c", "/a/", "50%", "?x=1", "Bericht für Zoë", "bulk", "a;b", "#1", "+"} {
		body := `{"name": ` + quote(name) + `, "schedule": "@daily", "payload": {"url": "https://example.com"}}`
		job := s.create(body)
		path := "/api/v1/jobs/" + url.PathEscape(name)
		var found belfry.Job
		s.want(http.StatusOK, &found, "GET", path, "")
		if found.ID != job.ID {
			t.Errorf("%s is %q", path, found.Name)
		}
		s.want(http.StatusOK, nil, "GET", path+"/runs", "")
		s.want(http.StatusAccepted, nil, "POST", path+"/trigger", "")
		s.want(http.StatusNoContent, nil, "DELETE", path, "")
	}
}

func quote(text string) string { return strconv.Quote(text) }

func TestPutCreatesOrReplaces(t *testing.T) {
	s := serve(t)
	const path = "/api/v1/jobs/report"
	var made, same, other belfry.Job
	a := s.want(http.StatusCreated, &made, "PUT", path, validJob)
	if a.header.Get("Location") != "/api/v1/jobs/"+made.ID.String() || made.Name != "report" {
		t.Errorf("got %s at %s", a.body, a.header.Get("Location"))
	}
	b := s.want(http.StatusOK, &same, "PUT", path, strings.Replace(validJob, `"name": "report", `, "", 1))
	if b.body != a.body || b.header.Get("ETag") != a.header.Get("ETag") || b.header.Get("Location") != "" {
		t.Errorf("the same again is %s, was %s", b.body, a.body)
	}
	s.want(http.StatusOK, &other, "PUT", path, `{"schedule": "@hourly", "payload": {"url": "https://example.com/hook"}, "status": "paused"}`)
	if other.ID != made.ID || other.Revision != 2 || other.Timezone != "UTC" || other.Status != "paused" {
		t.Errorf("got %+v", other)
	}
	s.want(http.StatusOK, &other, "PUT", path, validJob)
	if other.Status != "paused" || other.Revision != 3 {
		t.Errorf("without a word on its status it became %s", other.Status)
	}
	byID := "/api/v1/jobs/" + made.ID.String()
	shown := s.want(http.StatusOK, nil, "GET", byID, "")
	if back := s.want(http.StatusOK, nil, "PUT", byID, shown.body); back.body != shown.body {
		t.Errorf("a job that is handed back as it was shown becomes %s", back.body)
	}
	s.want(http.StatusOK, &other, "PUT", byID, strings.Replace(shown.body, `"report"`, `"renamed"`, 1))
	if other.Name != "renamed" || other.ID != made.ID {
		t.Errorf("got %+v", other)
	}
}

func TestChangesOfAJob(t *testing.T) {
	s := serve(t)
	s.create(`{"name": "report", "schedule": "@daily", "tags": ["b", "a"], "maxRetries": 7, "payload": {"url": "https://example.com", "headers": {"Authorization": "Bearer s3cr3t-s3cr3t"}}}`)
	const path = "/api/v1/jobs/report"
	for _, tt := range []struct {
		body  string
		holds func(j belfry.Job) bool
	}{
		{`{}`, func(j belfry.Job) bool { return j.Revision == 1 }},
		{`{"schedule": "@hourly"}`, func(j belfry.Job) bool { return j.Schedule == "@hourly" && j.MaxRetries == 7 && j.Revision == 2 }},
		{`{"maxRetries": null}`, func(j belfry.Job) bool { return j.MaxRetries == 3 && j.Schedule == "@hourly" }},
		{`{"tags": ["c"]}`, func(j belfry.Job) bool { return slices.Equal(j.Tags, []string{"c"}) && j.Revision == 3 }},
		{`{"tags": null}`, func(j belfry.Job) bool { return len(j.Tags) == 0 }},
		{`{"payload": {"url": "https://example.com/2", "headers": {"Authorization": "***"}}}`, func(j belfry.Job) bool { return strings.Contains(string(j.Payload), "/2") }},
		{`{"status": "paused", "queue": "slow"}`, func(j belfry.Job) bool { return j.Status == "paused" && j.Queue == "slow" }},
		{`{"status": null}`, func(j belfry.Job) bool { return j.Status == "scheduled" }},
	} {
		var job belfry.Job
		if s.want(http.StatusOK, &job, "PATCH", path, tt.body); !tt.holds(job) {
			t.Errorf("%s: got %+v", tt.body, job)
		}
	}
	id, err := s.store.JobNamed(t.Context(), "default", "report")
	s.check(err)
	stored, err := s.store.Job(t.Context(), "default", id)
	if err != nil || !strings.Contains(string(stored.Payload), "s3cr3t-s3cr3t") {
		t.Errorf("the secret is lost: %s, error %v", stored.Payload, err)
	}
	p := s.ask("PATCH", path, `{"schedule": 5, "queue": "a b", "colour": 1}`).problem(t)
	if got := p.fields(); p.Status != 422 || len(got) != 3 {
		t.Errorf("got %v", p.Errors)
	}
}

func TestWhatWasSeenMustStillBe(t *testing.T) {
	s := serve(t)
	const path = "/api/v1/jobs/report"
	tag := s.want(http.StatusCreated, nil, "POST", "/api/v1/jobs", validJob).header.Get("ETag")
	if got := s.want(http.StatusOK, nil, "GET", path, "").header.Get("ETag"); got != tag || !strings.HasPrefix(tag, `"`) {
		t.Fatalf("the tag is %s, and then %s", tag, got)
	}
	next := s.want(http.StatusOK, nil, "PATCH", path, `{"timeoutSeconds": 5}`, "If-Match: "+tag).header.Get("ETag")
	if next == tag || next == "" {
		t.Fatalf("after an edit the tag is %s, it was %s", next, tag)
	}
	for _, r := range [][2]string{{"PATCH", `{"timeoutSeconds": 6}`}, {"PUT", validJob}, {"DELETE", ""}} {
		for _, header := range []string{tag, `"x"`, `"x", ` + tag, "W/" + next, `""`} {
			a := s.ask(r[0], path, r[1], "If-Match: "+header)
			if p := a.problem(t); p.Status != http.StatusPreconditionFailed || p.Code != "changed" {
				t.Errorf("%s with %s: got %s", r[0], header, a.body)
			}
		}
	}
	for _, header := range []string{next, "*", `"x", ` + next + `,"y"`, tag + "," + next} {
		s.want(http.StatusOK, nil, "PATCH", path, `{"timeoutSeconds": 5}`, "If-Match: "+header)
		s.want(http.StatusOK, nil, "PUT", path, strings.Replace(validJob, "{", `{"timeout_seconds": 5, `, 1), "If-Match: "+header)
	}
	for _, do := range []string{"pause", "resume"} {
		if got := s.want(http.StatusOK, nil, "POST", path+"/"+do, "").header.Get("ETag"); got == next {
			t.Errorf("the tag did not change with %s", do)
		} else {
			next = got
		}
	}
	s.want(http.StatusNoContent, nil, "DELETE", path, "", "If-Match: "+next)
	if p := s.ask("PUT", path, validJob, "If-Match: "+next).problem(t); p.Status != http.StatusPreconditionFailed {
		t.Errorf("a job that is gone was replaced: %+v", p)
	}
}

func TestRevisionsAndTheWayBack(t *testing.T) {
	s := serve(t)
	s.create(strings.Replace(validJob, `/hook"`, `/hook", "headers": {"Authorization": "Bearer s3cr3t-s3cr3t"}`, 1))
	const path = "/api/v1/jobs/report"
	for _, schedule := range []string{"@hourly", "@daily", "@weekly"} {
		s.want(http.StatusOK, nil, "PATCH", path, `{"schedule": "`+schedule+`"}`)
	}
	type shown struct {
		Revision   int
		ReplacedAt *string `json:"replaced_at"`
		Schedule   string
		Payload    any
	}
	var list []shown
	a := s.want(http.StatusOK, &list, "GET", path+"/revisions", "")
	if len(list) != 4 || list[0].Revision != 4 || list[0].ReplacedAt != nil || list[3].Schedule != "30 9 * * MON-FRI" || list[3].ReplacedAt == nil ||
		list[2].Payload == nil || strings.Contains(a.body, "s3cr3t") {
		t.Errorf("got %s", a.body)
	}
	for limit, pages := range map[string]int{"1": 4, "2": 2, "3": 2, "4": 1} {
		var numbers []int
		n := 0
		for next := path + "/revisions?limit=" + limit; next != ""; n++ {
			var page []shown
			a := s.want(http.StatusOK, &page, "GET", next, "")
			for _, r := range page {
				numbers = append(numbers, r.Revision)
			}
			next = linked(t, a)
		}
		if !slices.Equal(numbers, []int{4, 3, 2, 1}) || n != pages {
			t.Errorf("%s at a time: got %v on %d pages", limit, numbers, n)
		}
	}
	var job belfry.Job
	s.want(http.StatusOK, &job, "POST", path+"/rollback", `{"revision": 2}`)
	if job.Schedule != "@hourly" || job.Revision != 5 {
		t.Errorf("got %+v", job)
	}
}

// linked is where a page says that the list goes on.
func linked(t *testing.T, a answer) string {
	t.Helper()
	link := a.header.Get("Link")
	if link == "" {
		return ""
	}
	path, ok := strings.CutSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`)
	if !ok {
		t.Fatalf("the link is %q", link)
	}
	return path
}

func TestListsCanBeNarrowed(t *testing.T) {
	s := serve(t)
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
			var page []struct{ Name string }
			a := s.want(http.StatusOK, &page, "GET", path, "")
			for _, job := range page {
				names = append(names, job.Name)
			}
			path = linked(t, a)
		}
		if slices.Sort(names); !slices.Equal(names, want) {
			t.Errorf("%s: got %q, want %q", query, names, want)
		}
	}
	p := s.ask("GET", "/api/v1/jobs?status=asleep&type=x", "").problem(t)
	if len(p.Errors) != 2 || !strings.Contains(p.Errors[0].Message, "scheduled, queued, running, paused") || !strings.Contains(p.Errors[1].Message, "http, worker") {
		t.Errorf("got %+v", p.Errors)
	}
}

func TestRunsOfAllJobsAndTheHistoryOfOne(t *testing.T) {
	s := serve(t)
	var want []string
	for _, name := range []string{"a", "b", "a"} {
		s.want(http.StatusOK, nil, "GET", "/api/v1/jobs", "")
		s.ask("PUT", "/api/v1/jobs/"+name, `{"schedule": "@yearly", "overlap": "parallel", "max_retries": 0, "payload": {"url": "https://example.com"}}`)
		var made struct {
			RunID string `json:"run_id"`
		}
		s.want(http.StatusAccepted, &made, "POST", "/api/v1/jobs/"+name+"/trigger", `{"payload": {"x": 1}}`)
		s.fire()
		want = append(want, made.RunID)
	}
	slices.Reverse(want)
	slices.SortFunc(want, func(a, b string) int { return strings.Compare(b, a) })
	if got, _ := s.follow("/api/v1/runs?limit=1"); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, _ := s.follow("/api/v1/runs?status=DEAD&limit=2"); !slices.Equal(got, want) {
		t.Errorf("dead are %v, want %v", got, want)
	}
	if got, _ := s.follow("/api/v1/runs?status=ready"); len(got) != 0 {
		t.Errorf("ready are %v", got)
	}
	var h struct {
		Name, Status string
		Executions   []struct {
			Status string
			Key    string `json:"idempotency_key"`
		}
	}
	a := s.want(http.StatusOK, &h, "GET", "/api/v1/jobs/a/history?limit=1", "")
	if h.Name != "a" || len(h.Executions) != 1 || h.Executions[0].Status != "dead" || h.Executions[0].Key == "" {
		t.Errorf("got %s", a.body)
	}
	a = s.want(http.StatusOK, &h, "GET", linked(t, a), "")
	if len(h.Executions) != 1 || linked(t, a) != "" {
		t.Errorf("the second page is %s and goes on at %q", a.body, linked(t, a))
	}
}
