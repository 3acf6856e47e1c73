package main

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

func TestMonitorCommands(t *testing.T) {
	p := withServer(t)
	out := p.ok("monitor", "create", "backup", "--every", "1d", "--grace", "2h", "--tag", "storage").out
	address := regexp.MustCompile(`curl \S.* (http://\S+/ping/[0-9a-f]{32})\n`).FindStringSubmatch(out)
	if address == nil || !strings.HasPrefix(out, "created    backup   every 24h, grace 2h\n") {
		t.Fatalf("got\n%s", out)
	}
	show := func() (m belfry.Monitor) {
		t.Helper()
		p.json(&m, "monitor", "show", "backup")
		return m
	}
	if m := show(); m.Status != "new" || m.EverySeconds != 86400 || m.PingURL != address[1] {
		t.Errorf("got %+v", m)
	}
	answer, err := http.Get(address[1])
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%v %v", answer, err)
	}
	answer.Body.Close()
	if got := columns(p.ok("monitor", "list").out); len(got) != 2 || strings.Join(got[1][:3], " ") != "backup up every 24h, grace 2h" {
		t.Errorf("got %q", got)
	}
	if got := p.ok("monitor", "show", "backup").out; !regexp.MustCompile(`(?m)^Last ping +\S+Z \((now|\d+s ago)\)$`).MatchString(got) || !strings.Contains(got, address[1]) {
		t.Errorf("got\n%s", got)
	}
	p.ok("monitor", "edit", "backup", "--cron", "0 3 * * *", "--timezone", "Europe/Berlin")
	if m := show(); m.Cron != "0 3 * * *" || m.EverySeconds != 0 {
		t.Errorf("got %+v", m)
	}
	p.ok("monitor", "pause", "backup")
	if m := show(); m.Status != "paused" {
		t.Errorf("it is %s", m.Status)
	}
	p.ok("monitor", "resume", "backup")
	if m := show(); m.Status != "up" {
		t.Errorf("it is %s", m.Status)
	}
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"create", "backup", "--every", "1d"}, exitRefused, "exists already"},
		{[]string{"create", "x"}, exitRefused, "every"},
		{[]string{"create", "x", "--every", "daily"}, exitUsage, "is not a duration"},
		{[]string{"edit", "backup"}, exitUsage, "say what to change"},
		{[]string{"show", "nothing"}, exitNotFound, "there is no monitor"},
	} {
		if r := p.run(append([]string{"monitor"}, tt.args...)...); r.code != tt.code || !strings.Contains(r.err, tt.want) {
			t.Errorf("%v: exit code %d, %s", tt.args, r.code, r.err)
		}
	}
	p.ok("monitor", "delete", "backup")
	if got := p.ok("monitor", "list"); !strings.Contains(got.err, "No monitors.") {
		t.Errorf("got %+v", got)
	}
}
