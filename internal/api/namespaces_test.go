package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
)

const namespaces = "/api/v1/namespaces"

func TestNamespaceLifecycle(t *testing.T) {
	s := newService(t)
	var list []belfry.Namespace
	s.expect(http.StatusOK, &list, "GET", namespaces, "")
	if len(list) != 1 || list[0].Name != "default" || list[0].Usage == nil {
		t.Fatalf("an empty server has %+v", list)
	}
	var n belfry.Namespace
	a := s.expect(http.StatusCreated, &n, "POST", namespaces, `{"name": "billing", "max_jobs": 2, "weight": 3}`)
	if n.MaxJobs != 2 || n.Weight != 3 || n.CreatedAt.IsZero() || a.header.Get("Location") != namespaces+"/billing" {
		t.Errorf("created %+v at %q", n, a.header.Get("Location"))
	}
	if p := s.send("POST", namespaces, `{"name": "billing"}`).problem(t); p.Status != http.StatusConflict {
		t.Errorf("created twice: %+v", p)
	}
	for _, name := range []string{"", "Billing", "a b", strings.Repeat("x", 64)} {
		if p := s.send("POST", namespaces, fmt.Sprintf(`{"name": %q}`, name)).problem(t); p.Status != http.StatusUnprocessableEntity || !slices.Equal(p.fields(), []string{"name"}) {
			t.Errorf("the name %q: %+v", name, p)
		}
	}
	s.create(validJob, "Belfry-Namespace: billing")
	s.create(validJob, "Belfry-Namespace: undeclared")
	for name, want := range map[string]int{"billing": http.StatusOK, "undeclared": http.StatusOK, "default": http.StatusOK, "none": http.StatusNotFound} {
		if a := s.send("GET", namespaces+"/"+name, ""); a.status != want {
			t.Errorf("%s: got %d, want %d", name, a.status, want)
		}
		if a := s.send("PATCH", namespaces+"/"+name, `{"max_running": 9}`); a.status != want {
			t.Errorf("change %s: got %d, want %d: %s", name, a.status, want, a.body)
		}
	}
	s.expect(http.StatusOK, &n, "GET", namespaces+"/billing", "")
	if n.MaxJobs != 2 || n.MaxRunning != 9 || n.Usage.Jobs != 1 || n.Usage.StoredBytes < 50 {
		t.Errorf("got %+v with %+v", n, n.Usage)
	}
	n = belfry.Namespace{}
	s.expect(http.StatusOK, &n, "PATCH", namespaces+"/billing", `{"max_running": null, "name": "billing"}`)
	if n.MaxJobs != 2 || n.MaxRunning != 0 {
		t.Errorf("got %+v", n)
	}
	for body, field := range map[string]string{`{"name": "other"}`: "name", `{"max_jobs": -1}`: "max_jobs", `{"weight": 1001}`: "weight", `{"colour": 1}`: "colour"} {
		if p := s.send("PATCH", namespaces+"/billing", body).problem(t); p.Status != http.StatusUnprocessableEntity || !slices.Equal(p.fields(), []string{field}) {
			t.Errorf("%s: %+v", body, p)
		}
	}
	for _, name := range []string{"billing", "default"} {
		if p := s.send("DELETE", namespaces+"/"+name, "").problem(t); p.Status != http.StatusConflict {
			t.Errorf("delete %s: %+v", name, p)
		}
	}
	s.expect(http.StatusNoContent, nil, "DELETE", "/api/v1/jobs/report", "", "Belfry-Namespace: billing")
	s.expect(http.StatusNoContent, nil, "DELETE", namespaces+"/billing", "")
	s.expect(http.StatusNotFound, nil, "GET", namespaces+"/billing", "")
	s.expect(http.StatusNotFound, nil, "DELETE", namespaces+"/billing", "")
}

func TestQuotasRefuseWithTheirNameAndValue(t *testing.T) {
	s := newService(t)
	s.expect(http.StatusCreated, nil, "POST", namespaces, `{"name": "billing", "max_jobs": 1, "min_interval_seconds": 90, "max_stored_bytes": 1000}`)
	billing := "Belfry-Namespace: billing"
	refused := func(doing string, a reply, status int, code belfry.Code, says ...string) {
		t.Helper()
		p := a.problem(t)
		for _, part := range append(says, "billing", "admin of all namespaces") {
			if !strings.Contains(a.body, part) {
				t.Errorf("%s: %q is not in %s", doing, part, a.body)
			}
		}
		if p.Status != status || p.Code != code {
			t.Errorf("%s: got %s", doing, a.body)
		}
	}
	job := func(schedule, payload string) string {
		return fmt.Sprintf(`{"schedule": %q, "payload": {"url": "https://example.com/%s"}}`, schedule, payload)
	}
	for _, path := range []string{"/api/v1/jobs", "/api/v1/jobs?dry_run=true"} {
		for _, schedule := range []string{"* * * * *", "@every 1m", "0,1 4 1 1 *", "@every 89s", "RRULE:FREQ=DAILY;BYHOUR=3;BYMINUTE=0,1"} {
			a := s.send("POST", path, job(schedule, ""), billing)
			refused(schedule, a, http.StatusUnprocessableEntity, belfry.Invalid, "min_interval_seconds", "90")
			if fields := a.problem(t).fields(); !slices.Equal(fields, []string{"schedule"}) {
				t.Errorf("the fields are %q", fields)
			}
		}
		refused("bytes", s.send("POST", path, job("@daily", strings.Repeat("x", 1000)), billing), http.StatusForbidden, belfry.QuotaExceeded, "max_stored_bytes", "1000")
		refused("an import", s.send("POST", strings.Replace(path, "jobs", "jobs/bulk", 1), "["+job("@daily", "")+","+job("@daily", "")+"]", billing, "Content-Type: application/json"),
			http.StatusForbidden, belfry.QuotaExceeded, "max_jobs", "is 1:", "2 more")
	}
	s.expect(http.StatusOK, nil, "POST", "/api/v1/jobs?dry_run=true", job("*/2 * * * *", ""), billing)
	created := s.create(job("*/2 * * * *", ""), billing)
	refused("a second job", s.send("POST", "/api/v1/jobs", job("@daily", ""), billing), http.StatusForbidden, belfry.QuotaExceeded, "max_jobs", "1 are used", "--max-jobs")
	refused("a second job by name", s.send("PUT", "/api/v1/jobs/new", job("@daily", ""), billing), http.StatusForbidden, belfry.QuotaExceeded, "max_jobs")
	edit := "/api/v1/jobs/" + created.ID.String()
	refused("a shorter interval", s.send("PATCH", edit, `{"schedule": "* * * * *"}`, billing), http.StatusUnprocessableEntity, belfry.Invalid, "min_interval_seconds")
	refused("a larger payload", s.send("PATCH", edit, `{"payload": {"url": "https://example.com/`+strings.Repeat("x", 1000)+`"}}`, billing), http.StatusForbidden, belfry.QuotaExceeded, "max_stored_bytes")
	s.expect(http.StatusOK, nil, "PATCH", edit, `{"schedule": "@daily"}`, billing)
	s.expect(http.StatusOK, nil, "PATCH", namespaces+"/billing", `{"min_interval_seconds": 172800}`)
	s.expect(http.StatusOK, nil, "PATCH", edit, `{"name": "kept"}`, billing) // Its schedule stays.
	s.create(job("* * * * *", ""))                                           // in another namespace
}

func TestRateLimitOfANamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		s.expect(http.StatusCreated, nil, "POST", namespaces, `{"name": "billing", "rate_limit": 0.5}`) // and one at once
		list := func() reply { return s.send("GET", "/api/v1/jobs", "", "Belfry-Namespace: billing") }
		if a := list(); a.status != http.StatusOK {
			t.Fatal(a.body)
		}
		a := list()
		if p := a.problem(t); p.Status != http.StatusTooManyRequests || a.header.Get("Retry-After") != "2" || !strings.Contains(p.Detail, "rate_limit") || !strings.Contains(p.Detail, "billing is 0.5") {
			t.Errorf("got %s, to be tried again after %q", a.body, a.header.Get("Retry-After"))
		}
		for range 5 {
			s.expect(http.StatusOK, nil, "GET", "/api/v1/jobs", "")
			s.expect(http.StatusOK, nil, "GET", namespaces+"/billing", "", "Belfry-Namespace: billing")
			s.expect(http.StatusOK, nil, "POST", "/api/v1/workers/"+unknownID+"/heartbeat", `{}`, "Belfry-Namespace: billing")
		}
		time.Sleep(2 * time.Second)
		if a := list(); a.status != http.StatusOK {
			t.Errorf("after 2 s: %s", a.body)
		}
		s.expect(http.StatusOK, nil, "PATCH", namespaces+"/billing", `{"rate_limit": 5}`)
		for range 10 {
			if a := list(); a.status != http.StatusOK {
				t.Errorf("with a higher limit: %s", a.body)
			}
		}
		if a := list(); a.status != http.StatusTooManyRequests {
			t.Errorf("got %d beyond the higher limit", a.status)
		}
		s.expect(http.StatusOK, nil, "PATCH", namespaces+"/billing", `{"rate_limit": 0}`)
		for range 50 {
			if a := list(); a.status != http.StatusOK {
				t.Errorf("without a limit: %s", a.body)
			}
		}
	})
}

// Who has some namespaces sees these, changes none, and needs no header to list them.
func TestNamespacesOfAPrincipal(t *testing.T) {
	s := newService(t)
	for _, name := range []string{"ours", "theirs"} {
		s.expect(http.StatusCreated, nil, "POST", namespaces, fmt.Sprintf(`{"name": %q}`, name))
	}
	as := func(role belfry.Role) *service {
		return s.as(&auth.Principal{Actor: belfry.Actor{Kind: belfry.ActorKey, ID: "k"}, Role: role, Namespaces: []string{"ours"}})
	}
	var list []belfry.Namespace
	as(belfry.RoleReader).expect(http.StatusOK, &list, "GET", namespaces, "")
	if len(list) != 1 || list[0].Name != "ours" {
		t.Errorf("got %+v", list)
	}
	as(belfry.RoleReader).expect(http.StatusOK, nil, "GET", namespaces+"/ours", "")
	as(belfry.RoleReader).expect(http.StatusNotFound, nil, "GET", namespaces+"/theirs", "")
	as(belfry.RoleWorker).expect(http.StatusForbidden, nil, "GET", namespaces, "")
	for _, role := range []belfry.Role{belfry.RoleReader, belfry.RoleAuthor, belfry.RoleAdmin} {
		as(role).expect(http.StatusForbidden, nil, "PATCH", namespaces+"/ours", `{"max_jobs": 1}`)
		as(role).expect(http.StatusForbidden, nil, "POST", namespaces, `{"name": "more"}`)
		as(role).expect(http.StatusForbidden, nil, "DELETE", namespaces+"/ours", "")
	}
}
