package api_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

func TestTheLifeOfAJob(t *testing.T) {
	s := serve(t)
	var job belfry.Job
	a := s.want(http.StatusCreated, &job, "POST", "/api/v1/jobs", validJob, "Content-Type: application/json; charset=utf-8")
	path := a.header.Get("Location")
	if path != "/api/v1/jobs/"+job.ID.String() || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("the job is at %q, the answer has %v", path, a.header)
	}
	if job.Status != "scheduled" || job.NextRunAt == nil || job.Type != "http" || job.Timezone != "Europe/Paris" || job.MaxRetries != 3 || job.Revision != 1 {
		t.Errorf("got %s", a.body)
	}
	if again := s.want(http.StatusOK, nil, "GET", path, ""); again.body != a.body {
		t.Errorf("created %sfound   %s", a.body, again.body)
	}
	for _, step := range []struct {
		status, want string
	}{{"PAUSED", "paused"}, {"paused", "paused"}, {"SCHEDULED", "scheduled"}, {"active", "scheduled"}} {
		s.want(http.StatusOK, &job, "PATCH", path, `{"status": "`+step.status+`"}`)
		if string(job.Status) != step.want || (job.NextRunAt == nil) != (step.want == "paused") {
			t.Errorf("after %s: status %s, next run at %v", step.status, job.Status, job.NextRunAt)
		}
	}
	if a := s.want(http.StatusNoContent, nil, "DELETE", path, ""); a.body != "" || a.header.Get("Content-Type") != "" {
		t.Errorf("got %q", a.body)
	}
	s.want(http.StatusNotFound, nil, "GET", path, "")
	s.want(http.StatusNotFound, nil, "DELETE", path, "")
}

func TestATakenNameIsToldWithItsField(t *testing.T) {
	s := serve(t)
	s.create(validJob)
	p := s.ask("POST", "/api/v1/jobs", validJob).problem(t)
	if p.Status != http.StatusConflict || p.Code != "conflict" || !slices.Contains(p.fields(), "name") {
		t.Errorf("got %+v", p)
	}
}

func TestAllFaultsOfAJobAreToldAtOnce(t *testing.T) {
	s := serve(t)
	p := s.ask("POST", "/api/v1/jobs", `{"shedule": "@daily", "schedule": "0 25 * * *", "timezone": "Europe/Pariss", "timeout_seconds": "60",
		"max_retries": 101, "payload": 3, "retry_jitter": 0.5, "queue": "a b"}`).problem(t)
	fields := p.fields()
	want := []string{"timeout_seconds", "shedule", "handler", "timezone", "schedule", "queue", "max_retries", "retry_jitter"}
	slices.Sort(fields)
	slices.Sort(want)
	if p.Status != http.StatusUnprocessableEntity || p.Code != "invalid" || !slices.Equal(fields, want) {
		t.Errorf("got %+v", p)
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	s := serve(t)
	const secret = "s3cr3t-token-0123456789"
	job := s.create(`{"schedule": "@daily", "payload": {"url": "https://example.com/hook", "headers": {"Authorization": "Bearer ` + secret + `"}}}`)
	path := "/api/v1/jobs/" + job.ID.String()
	for _, a := range []answer{
		s.ask("GET", path, ""), s.ask("GET", "/api/v1/jobs", ""), s.ask("PATCH", path, `{"status":"paused"}`), s.ask("POST", path+"/resume", ""),
		s.ask("PATCH", path, `{"max_retries":1}`), s.ask("GET", path+"/revisions", ""), s.ask("GET", path+"/history", ""), s.ask("POST", path+"/rollback", `{"revision":1}`),
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

func TestNamespacesAreApart(t *testing.T) {
	s := serve(t)
	here := s.create(validJob)
	there := s.create(validJob, "Belfry-Namespace: team-7")
	if here.Namespace != "default" || there.Namespace != "team-7" {
		t.Errorf("the namespaces are %q and %q", here.Namespace, there.Namespace)
	}
	s.want(http.StatusNotFound, nil, "GET", "/api/v1/jobs/"+there.ID.String(), "")
	s.want(http.StatusOK, nil, "GET", "/api/v1/jobs/"+there.ID.String(), "", "Belfry-Namespace: team-7")
	p := s.ask("GET", "/api/v1/jobs", "", "Belfry-Namespace: Team 7").problem(t)
	if p.Status != http.StatusBadRequest || !slices.Equal(p.fields(), []string{"Belfry-Namespace"}) {
		t.Errorf("got %+v", p)
	}
}

// follow collects the ids of a list over all its pages.
func (s *service) follow(path string) (ids []string, pages int) {
	s.t.Helper()
	for path != "" {
		var items []struct{ ID string }
		a := s.want(http.StatusOK, &items, "GET", path, "")
		for _, item := range items {
			ids = append(ids, item.ID)
		}
		pages++
		path = ""
		if link := a.header.Get("Link"); link != "" {
			var ok bool
			if path, ok = strings.CutSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`); !ok {
				s.t.Fatalf("the link is %q", link)
			}
		}
	}
	return ids, pages
}

func TestPagesOfJobs(t *testing.T) {
	s := serve(t)
	if a := s.want(http.StatusOK, nil, "GET", "/api/v1/jobs", ""); a.body != "[]\n" || a.header.Get("Link") != "" {
		t.Errorf("an empty list is %q, it goes on at %q", a.body, a.header.Get("Link"))
	}
	var want []string
	for range 6 {
		want = append(want, s.create(`{"schedule": "@daily", "payload": {"url": "https://example.com/hook"}}`).ID.String())
	}
	slices.Sort(want) // Ids of one millisecond are in no order of their own.
	slices.Reverse(want)
	for limit, pages := range map[string]int{"?limit=3": 2, "?limit=4": 2, "?limit=1": 6, "": 1, "?limit=500": 1, "?limit=": 1} {
		got, n := s.follow("/api/v1/jobs" + limit)
		if !slices.Equal(got, want) || n != pages {
			t.Errorf("%s: got %d pages with %v, want %v", limit, n, got, want)
		}
	}
}

func TestTriggeredRuns(t *testing.T) {
	s := serve(t)
	job := s.create(`{"schedule": "@yearly", "overlap": "parallel", "max_retries": 0, "payload": {"url": "https://example.com/hook"}}`)
	path := "/api/v1/jobs/" + job.ID.String()
	if a := s.want(http.StatusOK, nil, "GET", path+"/runs", ""); a.body != "[]\n" {
		t.Errorf("the runs of a new job are %q", a.body)
	}
	var want []string
	for _, body := range []string{"", "{}", " \n"} {
		var made struct {
			RunID string `json:"run_id"`
		}
		a := s.want(http.StatusAccepted, &made, "POST", path+"/trigger", body)
		if a.header.Get("Location") != "/api/v1/runs/"+made.RunID {
			t.Errorf("the run is at %q", a.header.Get("Location"))
		}
		want = append(want, made.RunID)
		s.fire()
	}
	slices.Reverse(want)
	if got, pages := s.follow(path + "/runs?limit=2"); !slices.Equal(got, want) || pages != 2 {
		t.Errorf("got %d pages with %v, want %v", pages, got, want)
	}
	var run map[string]any
	s.want(http.StatusOK, &run, "GET", "/api/v1/runs/"+want[2], "")
	key, _ := run["idempotency_key"].(string)
	if run["status"] != "dead" || run["kind"] != "manual" || run["error"] != "the target answered 500" || run["output"] != "<b>oh no</b>" ||
		!strings.HasPrefix(key, job.ID.String()+":") || !strings.HasSuffix(key, ":"+want[2]) {
		t.Errorf("got %v", run)
	}
	if attempts, _ := run["attempts"].([]any); len(attempts) != 1 {
		t.Errorf("the attempts are %v", run["attempts"])
	}
	var list []map[string]any
	s.want(http.StatusOK, &list, "GET", path+"/runs", "")
	if list[0]["idempotency_key"] == nil || list[0]["attempts"] != nil {
		t.Errorf("got %v", list[0])
	}
}

func TestTheIndexNamesEveryPath(t *testing.T) {
	s := serve(t)
	var index struct {
		Name  string
		Paths []string
	}
	s.want(http.StatusOK, &index, "GET", "/", "")
	if index.Name != "belfry" || len(index.Paths) != 38 || !slices.Contains(index.Paths, "POST /api/v1/jobs/{id}/trigger") {
		t.Errorf("got %+v", index)
	}
	for _, p := range index.Paths {
		method, path, _ := strings.Cut(p, " ")
		path = strings.NewReplacer("{id}", unknownID, "{worker}", unknownID).Replace(path)
		if a := s.ask(method, path, ""); a.status == http.StatusMethodNotAllowed || strings.Contains(a.body, "there is nothing") {
			t.Errorf("%s is not served: %s", p, a.body)
		} else if head := s.ask("HEAD", path, ""); method == "GET" && (head.status != a.status || head.header.Get("X-Request-Id") == "") {
			t.Errorf("HEAD %s: got %d, want %d", path, head.status, a.status)
		}
	}
}

func TestAnswersAreOneLineOfJSON(t *testing.T) {
	s := serve(t)
	a := s.ask("POST", "/api/v1/jobs", strings.Replace(validJob, "report", "<script>", 1))
	if strings.Contains(a.body, "<script>") || strings.Count(a.body, "\n") != 1 || !json.Valid([]byte(a.body)) {
		t.Errorf("got %s", a.body)
	}
}
