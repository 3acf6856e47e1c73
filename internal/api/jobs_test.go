package api_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/api"
)

func TestJobLifecycle(t *testing.T) {
	s := newService(t)
	var job belfry.Job
	a := s.expect(http.StatusCreated, &job, "POST", "/api/v1/jobs", validJob, "Content-Type: application/json; charset=utf-8")
	path := a.header.Get("Location")
	if path != "/api/v1/jobs/"+job.ID.String() || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("the job is at %q, the answer has %v", path, a.header)
	}
	if job.Status != "scheduled" || job.NextRunAt == nil || job.Type != "http" || job.Timezone != "Europe/Paris" || job.MaxRetries != belfry.Some(3) || job.Revision != 1 {
		t.Errorf("got %s", a.body)
	}
	if again := s.expect(http.StatusOK, nil, "GET", path, ""); again.body != a.body {
		t.Errorf("created %sfound   %s", a.body, again.body)
	}
	for _, step := range []struct {
		status, want string
	}{{"PAUSED", "paused"}, {"paused", "paused"}, {"SCHEDULED", "scheduled"}, {"active", "scheduled"}} {
		s.expect(http.StatusOK, &job, "PATCH", path, `{"status": "`+step.status+`"}`)
		if string(job.Status) != step.want || (job.NextRunAt == nil) != (step.want == "paused") {
			t.Errorf("after %s: status %s, next run at %v", step.status, job.Status, job.NextRunAt)
		}
	}
	if a := s.expect(http.StatusNoContent, nil, "DELETE", path, ""); a.body != "" || a.header.Get("Content-Type") != "" {
		t.Errorf("got %q", a.body)
	}
	s.expect(http.StatusNotFound, nil, "GET", path, "")
	s.expect(http.StatusNotFound, nil, "DELETE", path, "")
}

func TestTakenNameIsConflict(t *testing.T) {
	s := newService(t)
	s.create(validJob)
	p := s.send("POST", "/api/v1/jobs", validJob).problem(t)
	if p.Status != http.StatusConflict || p.Code != "conflict" || !slices.Contains(p.fields(), "name") {
		t.Errorf("got %+v", p)
	}
}

func TestSecretsAreMasked(t *testing.T) {
	s := newService(t)
	const secret = "s3cr3t-token-0123456789"
	job := s.create(`{"schedule": "@daily", "payload": {"url": "https://example.com/hook", "headers": {"Authorization": "Bearer ` + secret + `"}}}`)
	path := "/api/v1/jobs/" + job.ID.String()
	for _, a := range []reply{
		s.send("GET", path, ""), s.send("GET", "/api/v1/jobs", ""), s.send("PATCH", path, `{"status":"paused"}`), s.send("POST", path+"/resume", ""),
		s.send("PATCH", path, `{"max_retries":1}`), s.send("GET", path+"/revisions", ""), s.send("GET", path+"/history", ""), s.send("POST", path+"/rollback", `{"revision":1}`),
		{body: string(job.Payload)}, {body: s.log.String()},
	} {
		if strings.Contains(a.body, secret) {
			t.Errorf("the secret is shown: %s", a.body)
		}
	}
	if !strings.Contains(string(job.Payload), "https://example.com/hook") {
		t.Errorf("too much is masked: %s", job.Payload)
	}
	stored, err := s.store.Job(t.Context(), belfry.DefaultNamespace, job.ID)
	if err != nil || !strings.Contains(string(stored.Payload), secret) {
		t.Errorf("the secret is lost: %s, error %v", stored.Payload, err)
	}
}

func TestNamespacesAreSeparate(t *testing.T) {
	s := newService(t)
	here := s.create(validJob)
	there := s.create(validJob, "Belfry-Namespace: team-7")
	if here.Namespace != "default" || there.Namespace != "team-7" {
		t.Errorf("the namespaces are %q and %q", here.Namespace, there.Namespace)
	}
	s.expect(http.StatusNotFound, nil, "GET", "/api/v1/jobs/"+there.ID.String(), "")
	s.expect(http.StatusOK, nil, "GET", "/api/v1/jobs/"+there.ID.String(), "", "Belfry-Namespace: team-7")
	p := s.send("GET", "/api/v1/jobs", "", "Belfry-Namespace: Team 7").problem(t)
	if p.Status != http.StatusBadRequest || !slices.Equal(p.fields(), []string{"Belfry-Namespace"}) {
		t.Errorf("got %+v", p)
	}
}

func TestIndexListsEveryOperation(t *testing.T) {
	s := newService(t)
	var index struct {
		Name  string
		Paths []string
	}
	s.expect(http.StatusOK, &index, "GET", "/", "")
	if index.Name != "belfry" || len(index.Paths) != len(api.OperationsOf(s.Handler)) || !slices.Contains(index.Paths, "POST /api/v1/jobs/{job}/trigger") {
		t.Errorf("got %+v", index)
	}
	for _, p := range index.Paths {
		method, path, _ := strings.Cut(p, " ")
		path = strings.NewReplacer("{job}", unknownID, "{run}", unknownID, "{worker}", unknownID).Replace(path)
		if a := s.send(method, path, ""); a.status == http.StatusMethodNotAllowed || strings.Contains(a.body, "there is nothing") {
			t.Errorf("%s is not served: %s", p, a.body)
		} else if head := s.send("HEAD", path, ""); method == "GET" && (head.status != a.status || head.header.Get("X-Request-Id") == "") {
			t.Errorf("HEAD %s: got %d, want %d", path, head.status, a.status)
		}
	}
}

func TestReplyIsOneLineOfEscapedJSON(t *testing.T) {
	s := newService(t)
	a := s.send("POST", "/api/v1/jobs", strings.Replace(validJob, "report", "<script>", 1))
	if strings.Contains(a.body, "<script>") || strings.Count(a.body, "\n") != 1 || !json.Valid([]byte(a.body)) {
		t.Errorf("got %s", a.body)
	}
}
