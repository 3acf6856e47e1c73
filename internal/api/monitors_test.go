package api_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

func TestMonitors(t *testing.T) {
	s := newService(t)
	const path = "/api/v1/monitors"
	var m belfry.Monitor
	a := s.expect(201, &m, "POST", path, `{"name": "backup", "everySeconds": 86400, "tags": ["b", "a"]}`, "Host: belfry.localhost:7070")
	if m.GraceSeconds != 3600 || m.Status != "new" || strings.Join(m.Tags, " ") != "a b" || !strings.HasPrefix(m.PingURL, "http://belfry.localhost:7070/ping/") || a.header.Get("Location") != path+"/"+m.ID.String() {
		t.Errorf("got %s", a.body)
	}
	s.expect(200, &m, "GET", path+"/backup", "")
	shown := s.expect(200, nil, "GET", path+"/"+m.ID.String(), "").body
	if again := s.expect(200, nil, "PUT", path+"/backup", shown).body; again != shown { // It can be sent back as it was shown.
		t.Errorf("got %s, want %s", again, shown)
	}
	m = belfry.Monitor{}
	s.expect(200, &m, "PATCH", path+"/backup", `{"cron": "0 3 * * *", "timezone": "Europe/Berlin", "description": "x"}`)
	if m.EverySeconds != 0 || m.Cron != "0 3 * * *" {
		t.Errorf("got %+v", m)
	}
	m = belfry.Monitor{}
	s.expect(200, &m, "PATCH", path+"/backup", `{"every_seconds": 60, "description": null, "paused": true}`)
	if m.Cron != "" || m.Timezone != "" || m.Description != "" || m.Status != "paused" {
		t.Errorf("got %+v", m)
	}
	s.expect(201, nil, "PUT", path+"/other", `{"every_seconds": 60}`)
	var list []belfry.Monitor
	a = s.expect(200, &list, "GET", path+"?limit=1", "")
	if len(list) != 1 || list[0].Name != "other" || list[0].PingURL == "" {
		t.Errorf("got %s", a.body)
	}
	s.expect(200, &list, "GET", nextPage(t, a), "")
	if list[0].Name != "backup" {
		t.Errorf("got %+v", list)
	}
	if got := s.send("POST", path, `{"name": "x", "every": 5, "cron": "x"}`).problem(t).fields(); strings.Join(got, " ") != "every cron" {
		t.Errorf("got errors of %q", got)
	}
	s.expect(409, nil, "POST", path, `{"name": "backup", "every_seconds": 60}`)
	s.expect(400, nil, "POST", path, `{"name": `)
	s.expect(404, nil, "GET", path+"/backup", "", "Belfry-Namespace: other")
	s.expect(204, nil, "DELETE", path+"/backup", "")
	s.expect(404, nil, "DELETE", path+"/backup", "")
}

func TestPings(t *testing.T) {
	s := newService(t, withKeys(t))
	key := "Authorization: Bearer " + testKey
	var m belfry.Monitor
	s.expect(201, &m, "POST", "/api/v1/monitors", `{"name": "backup", "every_seconds": 86400}`, key)
	u, err := url.Parse(m.PingURL)
	if err != nil {
		t.Fatal(err)
	}
	status := func() belfry.MonitorStatus {
		m = belfry.Monitor{}
		s.expect(200, &m, "GET", "/api/v1/monitors/backup", "", key)
		return m.Status
	}
	for _, method := range []string{"GET", "HEAD", "POST"} {
		for path, want := range map[string]belfry.MonitorStatus{"/fail": "failed", "": "up"} {
			if a := s.expect(200, nil, method, u.Path+path, "a body of any kind"); method != "HEAD" && a.body != "ok\n" {
				t.Errorf("%s %s: got %q", method, path, a.body)
			}
			if got := status(); got != want {
				t.Errorf("%s %s: it is %s, want %s", method, path, got, want)
			}
		}
		s.expect(200, nil, method, u.Path+"/start", "")
		if status(); m.StartedAt == nil {
			t.Errorf("%s: it has not started", method)
		}
		s.expect(200, nil, method, u.Path, "")
		if status(); m.StartedAt != nil {
			t.Errorf("%s: it has not ended", method)
		}
	}
	for _, path := range []string{"/ping/" + belfry.NewToken().String(), "/ping/x", "/ping/", "/ping/" + belfry.NewToken().String() + "/start", u.Path + "/other", u.Path + "/"} {
		if a := s.send("GET", path, ""); a.status != 404 {
			t.Errorf("%s: got %d", path, a.status)
		}
	}
	s.expect(http.StatusMethodNotAllowed, nil, "DELETE", u.Path, "")
	for _, path := range []string{"/ping/../api/v1/monitors", "/ping/%2e%2e/api/v1/monitors", "/ping/x/../../api/v1/monitors"} { // The way around the keys.
		if a := s.send("GET", path, ""); a.status != 404 || strings.Contains(a.body, "backup") {
			t.Errorf("%s: got %d %s", path, a.status, a.body)
		}
	}
	if token := strings.TrimPrefix(u.Path, "/ping/"); strings.Contains(s.log.String(), token) || !strings.Contains(s.log.String(), "/ping/***") {
		t.Error("the log has the token of a monitor, or no pings")
	}
}
