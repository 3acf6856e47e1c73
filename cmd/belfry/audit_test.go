package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

func TestAudit(t *testing.T) {
	p := withServer(t)
	if r := p.ok("audit"); r.out != "" || r.err != "Nothing was changed yet.\n" {
		t.Errorf("before any change: %+v", r)
	}
	p.ok("job", "create", "--name", "report", "--schedule", "@yearly", "--url", "https://example.com")
	p.ok("job", "create", "--name", "other", "--schedule", "@yearly", "--url", "https://example.com")
	p.ok("job", "pause", "report")
	p.ok("job", "edit", "report", "--set", "schedule=@daily")
	var got []string
	for _, row := range columns(p.ok("audit", "--job", "report").out) {
		got = append(got, strings.Join(row[1:4], " "))
	}
	if want := []string{"WHO ACTION WHAT", "local edit job report", "local pause job report", "local create job report"}; !slices.Equal(got, want) {
		t.Errorf("the changes are %q, want %q", got, want)
	}
	if r := p.ok("audit", "--action", "pause", "--since", "1h", "-o", "json"); !sameJSON(json.RawMessage(r.out), p.api("/api/v1/audit?action=pause")) {
		t.Errorf("for programs a pause is %s", r.out)
	}
	lines := strings.Split(strings.TrimSpace(p.ok("audit", "export", "--scope", "all").out), "\n")
	var last belfry.AuditEntry
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || len(lines) != 4 || last.Action != belfry.AuditCreate || last.Object.Name != "report" {
		t.Errorf("%d lines are exported, the last one %s (%v)", len(lines), lines[len(lines)-1], err)
	}
	if r := p.run("audit", "--action", "nothing"); r.code != exitUsage && r.code != exitRefused || !strings.Contains(r.err, "action") {
		t.Errorf("a wrong action: %+v", r)
	}
}
