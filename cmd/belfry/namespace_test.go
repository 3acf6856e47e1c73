package main

import (
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

func TestNamespaceCommands(t *testing.T) {
	p := withServer(t)
	if got := p.ok("namespace", "create", "billing", "--max-jobs", "1", "--min-interval", "1m", "--weight", "2").out; !strings.HasPrefix(got, "created    billing") {
		t.Errorf("got %q", got)
	}
	job := []string{"job", "create", "--type", "worker", "--handler", "send", "--namespace", "billing", "--schedule"}
	p.ok(append(job, "@daily")...)
	p.ok("namespace", "set", "billing", "--rate-limit", "50", "--max-stored-bytes", "1000000")
	var n belfry.Namespace
	p.json(&n, "namespace", "get", "billing")
	if want := (belfry.Quota{MaxJobs: 1, MinIntervalSeconds: 60, Weight: 2, RateLimit: 50, MaxStoredBytes: 1_000_000}); n.Quota != want || n.Usage.Jobs != 1 {
		t.Errorf("got %+v", n)
	}
	got := p.ok("namespace", "get", "billing").out
	for _, line := range []string{"Jobs           1 of 1\n", " of 1,000,000\n", "Running        0\n", "Min interval   60s\n", "Rate limit     50/s\n", "Weight         2\n"} {
		if !strings.Contains(got, line) {
			t.Errorf("%q is not in\n%s", line, got)
		}
	}
	if got := columns(p.ok("namespace", "list").out); len(got) != 3 || got[1][0] != "billing" || got[1][1] != "1 of 1" || got[2][0] != "default" || got[2][1] != "0" {
		t.Errorf("got %q", got)
	}
	p.ok("namespace", "set", "default", "--max-running", "5")
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{append(job, "@hourly"), exitRefused, "belfry namespace set billing --max-jobs"},
		{append(job, "* * * * * *"), exitRefused, "min_interval_seconds"},
		{[]string{"namespace", "create", "billing"}, exitRefused, "exists already"},
		{[]string{"namespace", "create", "Billing"}, exitRefused, "lower-case letters"},
		{[]string{"namespace", "set", "billing"}, exitUsage, "say what to change"},
		{[]string{"namespace", "set", "billing", "--min-interval", "often"}, exitUsage, "is not a duration"},
		{[]string{"namespace", "get", "nothing"}, exitNotFound, "there is no namespace"},
		{[]string{"namespace", "delete", "billing"}, exitRefused, "has 1 jobs"},
		{[]string{"namespace", "delete", "default"}, exitRefused, "always exists"},
	} {
		if r := p.run(tt.args...); r.code != tt.code || !strings.Contains(r.err, tt.want) {
			t.Errorf("%q: exit code %d, want %d with %q: %s", tt.args, r.code, tt.code, tt.want, r.err)
		}
	}
	p.ok("job", "delete", "--all", "--yes", "--namespace", "billing")
	p.ok("namespace", "delete", "billing")
	if r := p.run("namespace", "get", "billing"); r.code != exitNotFound {
		t.Errorf("it is still there: %+v", r)
	}
}
