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

func TestGetJobByName(t *testing.T) {
	s := newService(t)
	for _, name := range []string{"report", "a b", "a/b", "a//b/../c", "/a/", "50%", "?x=1", "Bericht für Zoë", "bulk", "a;b", "#1", "+"} {
		body := `{"name": ` + quote(name) + `, "schedule": "@daily", "payload": {"url": "https://example.com"}}`
		job := s.create(body)
		path := "/api/v1/jobs/" + url.PathEscape(name)
		var found belfry.Job
		s.expect(http.StatusOK, &found, "GET", path, "")
		if found.ID != job.ID {
			t.Errorf("%s is %q", path, found.Name)
		}
		s.expect(http.StatusOK, nil, "GET", path+"/runs", "")
		s.expect(http.StatusAccepted, nil, "POST", path+"/trigger", "")
		s.expect(http.StatusNoContent, nil, "DELETE", path, "")
	}
}

func quote(text string) string { return strconv.Quote(text) }

func TestPutCreatesOrReplacesJob(t *testing.T) {
	s := newService(t)
	const path = "/api/v1/jobs/report"
	var created, same, other belfry.Job
	a := s.expect(http.StatusCreated, &created, "PUT", path, validJob)
	if a.header.Get("Location") != "/api/v1/jobs/"+created.ID.String() || created.Name != "report" {
		t.Errorf("got %s at %s", a.body, a.header.Get("Location"))
	}
	b := s.expect(http.StatusOK, &same, "PUT", path, strings.Replace(validJob, `"name": "report", `, "", 1))
	if b.body != a.body || b.header.Get("ETag") != a.header.Get("ETag") || b.header.Get("Location") != "" {
		t.Errorf("the same again is %s, was %s", b.body, a.body)
	}
	s.expect(http.StatusOK, &other, "PUT", path, `{"schedule": "@hourly", "payload": {"url": "https://example.com/hook"}, "status": "paused"}`)
	if other.ID != created.ID || other.Revision != 2 || other.Timezone != "UTC" || other.Status != "paused" {
		t.Errorf("got %+v", other)
	}
	s.expect(http.StatusOK, &other, "PUT", path, validJob)
	if other.Status != "paused" || other.Revision != 3 {
		t.Errorf("without a status it became %s", other.Status)
	}
	byID := "/api/v1/jobs/" + created.ID.String()
	shown := s.expect(http.StatusOK, nil, "GET", byID, "")
	if back := s.expect(http.StatusOK, nil, "PUT", byID, shown.body); back.body != shown.body {
		t.Errorf("a job that is sent back as it was shown becomes %s", back.body)
	}
	s.expect(http.StatusOK, &other, "PUT", byID, strings.Replace(shown.body, `"report"`, `"renamed"`, 1))
	if other.Name != "renamed" || other.ID != created.ID {
		t.Errorf("got %+v", other)
	}
}

func TestPatchJob(t *testing.T) {
	s := newService(t)
	s.create(`{"name": "report", "schedule": "@daily", "tags": ["b", "a"], "maxRetries": 7, "payload": {"url": "https://example.com", "headers": {"Authorization": "Bearer s3cr3t-s3cr3t"}}}`)
	const path = "/api/v1/jobs/report"
	for _, tt := range []struct {
		body  string
		holds func(j belfry.Job) bool
	}{
		{`{}`, func(j belfry.Job) bool { return j.Revision == 1 }},
		{`{"schedule": "@hourly"}`, func(j belfry.Job) bool {
			return j.Schedule == "@hourly" && j.MaxRetries == belfry.Some(7) && j.Revision == 2
		}},
		{`{"maxRetries": null}`, func(j belfry.Job) bool { return j.MaxRetries == belfry.Some(3) && j.Schedule == "@hourly" }},
		{`{"tags": ["c"]}`, func(j belfry.Job) bool { return slices.Equal(j.Tags, []string{"c"}) && j.Revision == 3 }},
		{`{"tags": null}`, func(j belfry.Job) bool { return len(j.Tags) == 0 }},
		{`{"payload": {"url": "https://example.com/2", "headers": {"Authorization": "***"}}}`, func(j belfry.Job) bool { return strings.Contains(string(j.Payload), "/2") }},
		{`{"status": "paused", "queue": "slow"}`, func(j belfry.Job) bool { return j.Status == "paused" && j.Queue == "slow" }},
		{`{"status": null}`, func(j belfry.Job) bool { return j.Status == "scheduled" }},
	} {
		var job belfry.Job
		if s.expect(http.StatusOK, &job, "PATCH", path, tt.body); !tt.holds(job) {
			t.Errorf("%s: got %+v", tt.body, job)
		}
	}
	id, err := s.store.JobIDByName(t.Context(), "default", "report")
	s.check(err)
	stored, err := s.store.Job(t.Context(), "default", id)
	if err != nil || !strings.Contains(string(stored.Payload), "s3cr3t-s3cr3t") {
		t.Errorf("the secret is lost: %s, error %v", stored.Payload, err)
	}
	p := s.send("PATCH", path, `{"schedule": 5, "queue": "a b", "colour": 1}`).problem(t)
	if got := p.fields(); p.Status != 422 || len(got) != 3 {
		t.Errorf("got %v", p.Errors)
	}
}

func TestIfMatch(t *testing.T) {
	s := newService(t)
	const path = "/api/v1/jobs/report"
	tag := s.expect(http.StatusCreated, nil, "POST", "/api/v1/jobs", validJob).header.Get("ETag")
	if got := s.expect(http.StatusOK, nil, "GET", path, "").header.Get("ETag"); got != tag || !strings.HasPrefix(tag, `"`) {
		t.Fatalf("the tag is %s, and then %s", tag, got)
	}
	next := s.expect(http.StatusOK, nil, "PATCH", path, `{"timeoutSeconds": 5}`, "If-Match: "+tag).header.Get("ETag")
	if next == tag || next == "" {
		t.Fatalf("after an edit the tag is %s, it was %s", next, tag)
	}
	for _, r := range [][2]string{{"PATCH", `{"timeoutSeconds": 6}`}, {"PUT", validJob}, {"DELETE", ""}} {
		for _, header := range []string{tag, `"x"`, `"x", ` + tag, "W/" + next, `""`} {
			a := s.send(r[0], path, r[1], "If-Match: "+header)
			if p := a.problem(t); p.Status != http.StatusPreconditionFailed || p.Code != "changed" {
				t.Errorf("%s with %s: got %s", r[0], header, a.body)
			}
		}
	}
	for _, header := range []string{next, "*", `"x", ` + next + `,"y"`, tag + "," + next} {
		s.expect(http.StatusOK, nil, "PATCH", path, `{"timeoutSeconds": 5}`, "If-Match: "+header)
		s.expect(http.StatusOK, nil, "PUT", path, strings.Replace(validJob, "{", `{"timeout_seconds": 5, `, 1), "If-Match: "+header)
	}
	for _, do := range []string{"pause", "resume"} {
		if got := s.expect(http.StatusOK, nil, "POST", path+"/"+do, "").header.Get("ETag"); got == next {
			t.Errorf("the tag did not change with %s", do)
		} else {
			next = got
		}
	}
	s.expect(http.StatusNoContent, nil, "DELETE", path, "", "If-Match: "+next)
	if p := s.send("PUT", path, validJob, "If-Match: "+next).problem(t); p.Status != http.StatusPreconditionFailed {
		t.Errorf("a deleted job was replaced: %+v", p)
	}
}

func TestRevisionsAndRollback(t *testing.T) {
	s := newService(t)
	s.create(strings.Replace(validJob, `/hook"`, `/hook", "headers": {"Authorization": "Bearer s3cr3t-s3cr3t"}`, 1))
	const path = "/api/v1/jobs/report"
	for _, schedule := range []string{"@hourly", "@daily", "@weekly"} {
		s.expect(http.StatusOK, nil, "PATCH", path, `{"schedule": "`+schedule+`"}`)
	}
	var list []belfry.Revision
	a := s.expect(http.StatusOK, &list, "GET", path+"/revisions", "")
	if len(list) != 4 || list[0].Number != 4 || list[0].ReplacedAt != nil || list[3].Schedule != "30 9 * * MON-FRI" || list[3].ReplacedAt == nil ||
		list[2].Payload == nil || strings.Contains(a.body, "s3cr3t") {
		t.Errorf("got %s", a.body)
	}
	for limit, pages := range map[string]int{"1": 4, "2": 2, "3": 2, "4": 1} {
		var numbers []int
		n := 0
		for next := path + "/revisions?limit=" + limit; next != ""; n++ {
			var page []belfry.Revision
			a := s.expect(http.StatusOK, &page, "GET", next, "")
			for _, r := range page {
				numbers = append(numbers, r.Number)
			}
			next = nextPage(t, a)
		}
		if !slices.Equal(numbers, []int{4, 3, 2, 1}) || n != pages {
			t.Errorf("%s at a time: got %v on %d pages", limit, numbers, n)
		}
	}
	var job belfry.Job
	s.expect(http.StatusOK, &job, "POST", path+"/rollback", `{"revision": 2}`)
	if job.Schedule != "@hourly" || job.Revision != 5 {
		t.Errorf("got %+v", job)
	}
}
