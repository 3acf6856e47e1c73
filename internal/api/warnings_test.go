package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/api"
	"github.com/belfry-sh/belfry/internal/target"
)

// Whoever creates or changes a job whose runs will fail here learns so from the answer.
func TestTargetsThatAreNotAllowedAreWarnedOf(t *testing.T) {
	s := newService(t, func(o *api.Options) { o.Targets = target.NewGuard(false, nil) })
	c := newContract(t, s)
	const local, public = `{"schedule": "@daily", "payload": {"url": "http://localhost:7070/livez"}}`, `{"schedule": "@daily", "payload": {"url": "https://example.com"}}`
	want := []string{"payload.url: the settings of this node do not allow localhost as a target; runs fail on nodes with the same settings. To allow it, start the nodes with --allow-target 127.0.0.1,::1"}
	for _, tt := range []struct {
		method, path, body string
		status             int
		warns              bool
	}{
		{"PUT", "/a", local, 201, true},
		{"PUT", "/a", local, 200, true},
		{"GET", "/a", "", 200, true},
		{"POST", "", local, 201, true},
		{"PUT", "/a", public, 200, false},
		{"GET", "/a", "", 200, false},
		{"PATCH", "/a", `{"payload": {"url": "http://localhost/hook"}}`, 200, true},
		{"PATCH", "/a", `{"timezone": "Asia/Tokyo"}`, 200, true},
		{"POST", "/a/rollback", `{"revision": 2}`, 200, false},
		{"POST", "/a/rollback", `{"revision": 1}`, 200, true},
		{"POST", "", strings.Replace(local, `"payload"`, `"type": "worker", "handler": "x", "payload"`, 1), 201, false},
	} {
		var job belfry.Job
		s.expectDocumented(c, tt.status, &job, tt.method, "/api/v1/jobs"+tt.path, tt.body)
		if (len(job.Warnings) > 0) != tt.warns || tt.warns && job.Warnings[0] != want[0] {
			t.Errorf("%s %s %s: got %q", tt.method, tt.path, tt.body, job.Warnings)
		}
	}
	for _, r := range [][3]string{{"POST", "", local}, {"PUT", "/b", local}, {"PATCH", "/a", `{"payload": {"url": "http://localhost/hook"}}`}} {
		var diff belfry.JobDiff
		s.expectDocumented(c, http.StatusOK, &diff, r[0], "/api/v1/jobs"+r[1]+"?dry_run=true", r[2])
		if len(diff.Job.Warnings) != 1 {
			t.Errorf("a dry run of %s: got %q", r[0], diff.Job.Warnings)
		}
	}
	shown := s.send("GET", "/api/v1/jobs/a", "")
	s.expect(http.StatusOK, nil, "PUT", "/api/v1/jobs/a", shown.body) // as it was shown
}

func TestImportWarnsOfTargetsThatAreNotAllowed(t *testing.T) {
	s := newService(t, func(o *api.Options) { o.Targets = target.NewGuard(false, nil) })
	c := newContract(t, s)
	const job = `{"schedule": "@daily", "payload": {"url": "http://HOST/"}}`
	lines := strings.Join([]string{strings.Replace(job, "HOST", "example.com", 1), "", strings.Replace(job, "HOST", "10.1.2.3", 1)}, "\n")
	for _, query := range []string{"?dry_run=true", ""} {
		var got belfry.ImportResult
		status := http.StatusCreated
		if query != "" {
			status = http.StatusOK
		}
		s.expectDocumented(c, status, &got, "POST", "/api/v1/jobs/bulk"+query, lines, "Content-Type: application/x-ndjson")
		if got.Created != 2 || len(got.Warnings) != 1 || !strings.HasPrefix(got.Warnings[0], "line 3.payload.url: ") || !strings.HasSuffix(got.Warnings[0], "--allow-target 10.1.2.3") {
			t.Errorf("%s: got %+v", query, got)
		}
	}
	var many belfry.ImportResult
	s.expect(http.StatusCreated, &many, "POST", "/api/v1/jobs/bulk", strings.Repeat(strings.Replace(job, "HOST", "localhost", 1)+"\n", 150), "Content-Type: application/x-ndjson")
	if many.Created != 150 || len(many.Warnings) != 100 {
		t.Errorf("%d jobs have %d warnings", many.Created, len(many.Warnings))
	}
}
