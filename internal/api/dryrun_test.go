package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belfry-sh/belfry"
)

// changeLines writes changes as lines "field: old -> new".
func changeLines(changes []belfry.FieldChange) (lines []string) {
	for _, c := range changes {
		lines = append(lines, fmt.Sprintf("%s: %s -> %s", c.Field, c.Old, c.New))
	}
	return lines
}

func TestDryRunShowsWhatWouldChange(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	job := s.create(`{"name": "report", "schedule": "@daily", "max_retries": 7, "payload": {"url": "https://example.com", "headers": {"Authorization": "Bearer s3cr3t"}, "body": {"format": "pdf", "n": 1}}}`)
	const path = "/api/v1/jobs/report"
	payload := func(format, secret string) string {
		return `"payload": {"url": "https://example.com", "headers": {"Authorization": "` + secret + `"}, "body": {"format": "` + format + `", "n": 1}}`
	}
	for _, tt := range []struct {
		name, method, path, body string
		result                   belfry.DiffResult
		changes                  []string
	}{
		{"a create", "POST", "/api/v1/jobs", `{"name": "other", "schedule": "@hourly", "timezone": "Europe/Paris", "payload": {"url": "https://example.com"}}`, belfry.DiffCreated, []string{
			`name:  -> "other"`, `type:  -> "http"`, `schedule:  -> "@hourly"`, `timezone:  -> "Europe/Paris"`, `payload:  -> {"url":"https://example.com"}`,
		}},
		{"a create in camelCase", "POST", "/api/v1/jobs", `{"schedule": "@hourly", "type": "worker", "handler": "send", "timeoutSeconds": 5, "retryPolicy": {"maxRetries": 1}}`, belfry.DiffCreated, []string{
			`type:  -> "worker"`, `handler:  -> "send"`, `schedule:  -> "@hourly"`, `timeout_seconds:  -> 5`, `max_retries:  -> 1`,
		}},
		{"a put of a new job", "PUT", "/api/v1/jobs/other", `{"schedule": "@hourly", "handler": "send"}`, belfry.DiffCreated, []string{
			`name:  -> "other"`, `type:  -> "worker"`, `handler:  -> "send"`, `schedule:  -> "@hourly"`,
		}},
		{"a put", "PUT", path, `{"schedule": "@hourly", ` + payload("csv", "***") + `}`, belfry.DiffUpdated, []string{
			`schedule: "@daily" -> "@hourly"`, `max_retries: 7 -> 3`, `payload.body.format: "pdf" -> "csv"`,
		}},
		{"a put by id", "PUT", "/api/v1/jobs/" + job.ID.String(), `{"schedule": "@daily", "maxRetries": 7, "status": "paused", ` + payload("pdf", "***") + `}`, belfry.DiffUpdated, []string{
			`status: "active" -> "paused"`,
		}},
		{"a put of the same", "PUT", path, `{"maxRetries": 7, "schedule": "@daily", ` + payload("pdf", "***") + `}`, belfry.DiffUnchanged, nil},
		{"a put of another secret", "PUT", path, `{"maxRetries": 7, "schedule": "@daily", ` + payload("pdf", "Bearer 0th3r") + `}`, belfry.DiffUpdated, []string{
			`payload: {"url":"https://example.com","headers":{"Authorization":"***"},"body":{"format":"pdf","n":1}} -> {"url":"https://example.com","headers":{"Authorization":"***"},"body":{"format":"pdf","n":1}}`,
		}},
		{"an edit", "PATCH", path, `{"maxRetries": null, "overlap": "queue", "maxQueued": 5}`, belfry.DiffUpdated, []string{
			`overlap: "skip" -> "queue"`, `max_queued:  -> 5`, `max_retries: 7 -> 3`,
		}},
		{"an edit of a retry policy", "PATCH", path, `{"retryPolicy": {"backoffMs": 500}}`, belfry.DiffUpdated, []string{`retry_base_seconds: 5 -> 0.5`}},
		{"an edit that changes nothing", "PATCH", path, `{"schedule": "@daily"}`, belfry.DiffUnchanged, nil},
	} {
		var diff belfry.JobDiff
		a := s.expect(http.StatusOK, &diff, tt.method, tt.path+"?dry_run=true", tt.body)
		if err := c.check(tt.method, tt.path+"?dry_run=true", "", "", a); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.changes, changeLines(diff.Changes)); diff != "" {
			t.Errorf("%s: changes (-want +got):\n%s", tt.name, diff)
		}
		if diff.Result != tt.result || diff.Changes == nil || strings.Contains(a.body, "s3cr3t") || strings.Contains(a.body, "0th3r") || a.header.Get("Location") != "" || a.header.Get("ETag") != "" {
			t.Errorf("%s: got %s %v", tt.name, a.body, a.header)
		}
		s.expectUnchanged(job)
	}
}

// A dry run and the request itself show the same job.
func TestDryRunShowsTheJobThatTheRequestMakes(t *testing.T) {
	s := newService(t)
	s.create(validJob)
	for _, tt := range [][3]string{
		{"POST", "/api/v1/jobs", allPolicies},
		{"PUT", "/api/v1/jobs/put", strings.Replace(validJob, "report", "put", 1)},
		{"PUT", "/api/v1/jobs/report", `{"schedule": "@hourly", "handler": "send", "tags": ["b", "a"]}`},
		{"PATCH", "/api/v1/jobs/report", `{"schedule": "0 3 * * *", "status": "paused"}`},
		{"PATCH", "/api/v1/jobs/report", `{"status": "active", "priority": 9}`},
	} {
		var dry belfry.JobDiff
		s.expect(http.StatusOK, &dry, tt[0], tt[1]+"?dry_run=true", tt[2])
		a := s.send(tt[0], tt[1], tt[2])
		var job belfry.Job
		s.expect(http.StatusOK, &job, "GET", "/api/v1/jobs/"+jobNameIn(tt[1], tt[2]), "")
		if a.status >= 300 {
			t.Fatalf("%s %s: got %s", tt[0], tt[1], a.body)
		}
		created := cmpopts.IgnoreFields(belfry.Job{}, "UpdatedAt")
		if dry.Result == belfry.DiffCreated {
			created = cmpopts.IgnoreFields(belfry.Job{}, "ID", "CreatedAt", "UpdatedAt")
		}
		if diff := cmp.Diff(job, dry.Job, jobOptions, created); diff != "" {
			t.Errorf("%s %s %s: the dry run differs (-real +dry):\n%s", tt[0], tt[1], tt[2], diff)
		}
	}
}

// jobNameIn is the name of the job that a request is about.
func jobNameIn(path, body string) string {
	if body == allPolicies {
		return "settle"
	}
	return path[strings.LastIndex(path, "/")+1:]
}

func TestDryRunHasTheErrorsOfTheRequest(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	job := s.create(validJob)
	const (
		jobs   = "/api/v1/jobs"
		report = jobs + "/report"
		bulk   = jobs + "/bulk"
	)
	named := func(name string) string { return strings.Replace(validJob, "report", name, 1) }
	for _, tt := range []struct {
		name, method, path, body string
		header                   string
		status                   int
		field                    string
	}{
		{"a wrong schedule", "POST", jobs, strings.Replace(named("a"), "30 9", "61 9", 1), "", 422, "schedule"},
		{"an unknown time zone", "POST", jobs, strings.Replace(named("a"), "Paris", "Pariss", 1), "", 422, "timezone"},
		{"a wrong URL", "POST", jobs, strings.Replace(named("a"), "https://example.com/hook", "gopher://x", 1), "", 422, "payload.url"},
		{"an unknown field", "POST", jobs, `{"shedule": "@daily"}`, "", 422, "shedule"},
		{"a status that cannot be set", "POST", jobs, strings.Replace(named("a"), "{", `{"status": "running", `, 1), "", 422, "status"},
		{"a taken name", "POST", jobs, validJob, "", 409, "name"},
		{"no JSON", "POST", jobs, `{"`, "", 400, ""},
		{"another media type", "POST", jobs, validJob, "Content-Type: text/plain", 415, ""},

		{"a put with a wrong schedule", "PUT", report, strings.Replace(validJob, "30 9", "61 9", 1), "", 422, "schedule"},
		{"a put with an unknown time zone", "PUT", jobs + "/a", strings.Replace(named("a"), "Paris", "Pariss", 1), "", 422, "timezone"},
		{"a put with a wrong URL", "PUT", report, strings.Replace(validJob, "https://example.com/hook", "gopher://x", 1), "", 422, "payload.url"},
		{"a put under another name", "PUT", jobs + "/other", validJob, "", 422, "name"},
		{"a put of a stale version", "PUT", report, validJob, `If-Match: "1-x"`, 412, ""},
		{"a put of a job that must exist", "PUT", jobs + "/a", named("a"), "If-Match: *", 412, ""},
		{"a put of an unknown id", "PUT", jobs + "/" + unknownID, validJob, "", 404, ""},

		{"an edit with a wrong schedule", "PATCH", report, `{"schedule": "@dayly"}`, "", 422, "schedule"},
		{"an edit with an unknown time zone", "PATCH", report, `{"timezone": "Mars/Olympus"}`, "", 422, "timezone"},
		{"an edit with a wrong URL", "PATCH", report, `{"payload": {"url": "gopher://x"}}`, "", 422, "payload.url"},
		{"an edit with a status that cannot be set", "PATCH", report, `{"status": "running"}`, "", 422, "status"},
		{"an edit of a stale version", "PATCH", report, `{"max_retries": 1}`, `If-Match: "1-x"`, 412, ""},
		{"an edit of an unknown job", "PATCH", jobs + "/nobody", `{"max_retries": 1}`, "", 404, ""},

		{"an import with a wrong schedule", "POST", bulk, jobLine("a") + "\n" + strings.Replace(jobLine("b"), "30 9", "61 9", 1), "", 422, "line 2.schedule"},
		{"an import with a wrong URL", "POST", bulk, "[" + strings.Replace(jobLine("a"), "https:", "gopher:", 1) + "]", "", 422, "[0].payload.url"},
		{"an import of a taken name", "POST", bulk, jobLine("a") + "\n" + validJob, "", 409, "name"},
		{"an import of a name twice", "POST", bulk, jobLine("a") + "\n" + jobLine("a"), "", 409, "name"},
		{"an import of nothing", "POST", bulk, "\n", "", 400, ""},
		{"an import of half an array", "POST", bulk, "[" + jobLine("a"), "", 400, ""},
	} {
		var headers []string
		if tt.header != "" {
			headers = append(headers, tt.header)
		}
		dry := s.send(tt.method, tt.path+"?dry_run=true", tt.body, headers...)
		p := dry.problem(t)
		if p.Status != tt.status || tt.field != "" && !slices.Contains(p.fields(), tt.field) {
			t.Errorf("%s: got %d %v, want %d about %q", tt.name, p.Status, p.Errors, tt.status, tt.field)
		}
		if err := c.check(tt.method, tt.path, "", "", dry); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		real := s.send(tt.method, tt.path, tt.body, headers...).problem(t)
		if diff := cmp.Diff(real.Problem, p.Problem, cmpopts.IgnoreFields(belfry.Problem{}, "_", "RequestID")); diff != "" {
			t.Errorf("%s: the dry run differs (-real +dry):\n%s", tt.name, diff)
		}
		s.expectUnchanged(job)
	}
	renamed := s.create(named("other"))
	for _, query := range []string{"?dry_run=true", ""} {
		if p := s.send("PATCH", "/api/v1/jobs/"+renamed.ID.String()+query, `{"name": "report"}`).problem(t); p.Status != 409 || !slices.Equal(p.fields(), []string{"name"}) {
			t.Errorf("%s: renaming to a taken name: got %+v", query, p)
		}
	}
}

func TestDryRunOfImport(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	job := s.create(validJob)
	camel := `{"name": "camel", "schedule": "@daily", "maxRetries": 1, "payload": {"url": "https://example.com"}}`
	for media, body := range map[string]string{
		"application/x-ndjson": jobLine("a") + "\n\n" + camel + "\n",
		"application/json":     "[" + jobLine("a") + "," + camel + "]",
	} {
		a := s.expect(http.StatusOK, nil, "POST", importPath+"?dry_run=true", body, "Content-Type: "+media)
		if a.body != `{"created":2,"job_ids":[]}`+"\n" {
			t.Errorf("%s: got %s", media, a.body)
		}
		if err := c.check("POST", importPath, media, "", a); err != nil {
			t.Errorf("%s: %v", media, err)
		}
		s.expectUnchanged(job)
	}
}

// An idempotency key that a dry run carries is not used up.
func TestDryRunLeavesIdempotencyKeysAlone(t *testing.T) {
	s := newService(t)
	for i, tt := range []struct{ path, body string }{
		{"/api/v1/jobs", validJob},
		{importPath, jobLine("a") + "\n" + jobLine("b")},
	} {
		key := fmt.Sprintf("Idempotency-Key: key %d", i)
		for range 2 {
			s.expect(http.StatusOK, nil, "POST", tt.path+"?dry_run=true", tt.body, key)
		}
		first := s.expect(http.StatusCreated, nil, "POST", tt.path, tt.body, key)
		if again := s.expect(http.StatusCreated, nil, "POST", tt.path, tt.body, key); again.body != first.body {
			t.Errorf("%s: got %s, and then %s", tt.path, first.body, again.body)
		}
		if p := s.send("POST", tt.path+"?dry_run=true", tt.body).problem(t); p.Status != http.StatusConflict {
			t.Errorf("%s: a dry run of what exists: got %+v", tt.path, p)
		}
	}
	if ids, _ := s.listIDs("/api/v1/jobs"); len(ids) != 3 {
		t.Errorf("there are %d jobs", len(ids))
	}
}

func TestDryRunIsFalseByDefault(t *testing.T) {
	s := newService(t)
	s.expect(http.StatusCreated, nil, "POST", "/api/v1/jobs?dry_run=false", validJob)
	s.expect(http.StatusOK, nil, "PATCH", "/api/v1/jobs/report?dry_run=false", `{"max_retries": 1}`)
	s.expect(http.StatusOK, nil, "PUT", "/api/v1/jobs/report?dry_run=", validJob)
	s.expect(http.StatusCreated, nil, "POST", importPath+"?dry_run=false", jobLine("a"))
	for _, r := range [][2]string{{"POST", "/api/v1/jobs"}, {"PUT", "/api/v1/jobs/report"}, {"PATCH", "/api/v1/jobs/report"}, {"POST", importPath}} {
		if p := s.send(r[0], r[1]+"?dry_run=1", validJob).problem(t); p.Status != http.StatusBadRequest || !slices.Equal(p.fields(), []string{"dry_run"}) {
			t.Errorf("%s %s: got %+v", r[0], r[1], p)
		}
	}
}
