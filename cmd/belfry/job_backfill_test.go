package main

import (
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

func TestJobBackfill(t *testing.T) {
	p, target := withServer(t), newReceiver(t)
	p.ok("job", "create", "--name", "a", "--schedule", "30 2 * * *", "--timezone", "Europe/Paris", "--url", target.URL)
	r := p.ok("job", "backfill", "a", "--from", "2026-03-28 00:00", "--to", "2026-03-30T02:30:00+02:00", "--dry-run")
	var instants []string
	for _, row := range columns(r.out)[1:] {
		instants = append(instants, row[0])
	}
	if strings.Join(instants, " ") != "2026-03-28T02:30:00+01:00 2026-03-29T03:00:00+02:00 2026-03-30T02:30:00+02:00" || len(target.got()) != 0 {
		t.Errorf("the dry run printed %q", r.out)
	}
	r = p.ok("job", "backfill", "a", "--from", "2026-03-28T00:00", "--to", "2026-03-30T02:30:00+02:00", "--limit", "2", "--idempotency-key", "k")
	if r.out != "backfilled  a   2 runs, 2026-03-28T02:30:00+01:00 to 2026-03-29T03:00:00+02:00\n" || r.err != "There are more occurrences. Continue with: --from 2026-03-30T02:30:00+02:00\n" {
		t.Errorf("it printed %+v", r)
	}
	var again, dry belfry.BackfillResult
	p.json(&again, "job", "backfill", "a", "--from", "2026-03-28T00:00", "--to", "2026-03-30T02:30:00+02:00", "--limit", "2", "--idempotency-key", "k")
	for _, id := range again.RunIDs {
		p.waitForSuccess(id.String())
	}
	var runs []belfry.Run
	p.json(&runs, "job", "runs", "a")
	if len(runs) != 2 || runs[0].Kind != belfry.KindBackfill || runs[0].ID != again.RunIDs[1] || len(target.got()) != 2 {
		t.Errorf("the runs are %+v, of %+v", runs, again)
	}
	p.json(&dry, "job", "backfill", "a", "--from", "2026-03-28 00:00:00", "--to", "2026-03-29 12:00", "--dry-run")
	if dry.Count != 2 || len(dry.Instants) != 2 || dry.RunIDs != nil || dry.More || !dry.NextFrom.IsZero() {
		t.Errorf("the dry run gave %+v", dry)
	}
	if r := p.ok("job", "backfill", "a", "--from", "0s", "-o", "json"); strings.Contains(r.out, "next_from") || strings.Contains(r.out, "run_ids") || !strings.Contains(r.out, `"instants": []`) {
		t.Errorf("a backfill of nothing is %s", r.out)
	}
	if r := p.ok("job", "backfill", "a", "--from", "0s", "--dry-run"); r.out != "" || r.err != "Nothing to run: the schedule of a has no occurrence in that span.\n" {
		t.Errorf("a backfill of nothing printed %+v", r)
	}
	p.ok("job", "create", "--name", "once", "--schedule", "2200-01-01T00:00:00Z", "--handler", "h")
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"a"}, exitUsage, "--from is required, for example --from 24h"},
		{[]string{"a", "--from", "yesterday"}, exitUsage, `--from: "yesterday" is not an instant such as 2027-03-01T09:00:00+01:00, a wall time in the time zone of the job`},
		{[]string{"a", "--from", "2026-03-28"}, exitUsage, "such as '2027-03-01 09:00'"},
		{[]string{"a", "--from", "1h", "--to", "-1h"}, exitUsage, `--to: "-1h"`},
		{[]string{"a", "--from", "1h", "--limit", "-1"}, exitUsage, "--limit: must be from 1 to 1000, not -1"},
		{[]string{"a", "--from", "1h", "--limit", "0"}, exitUsage, "--limit: must be from 1 to 1000, not 0"},
		{[]string{"a", "--from", "1h", "--limit", "1001"}, exitRefused, "limit: must be"},
		{[]string{"a", "--from", "1h", "--to", "2h"}, exitRefused, "to: must not be before from"},
		{[]string{"a", "--from", time.Now().Add(time.Hour).Format(time.RFC3339)}, exitRefused, "from: is in the future"},
		{[]string{"once", "--from", "1h"}, exitRefused, "single instant"},
		{[]string{"nobody", "--from", "1h"}, exitNotFound, "nobody"},
	} {
		if r := p.run(append([]string{"job", "backfill"}, tt.args...)...); r.code != tt.code || !strings.Contains(r.err, tt.want) || r.out != "" {
			t.Errorf("%q: got %+v, want %d and %q", tt.args, r, tt.code, tt.want)
		}
	}
}

func TestParseAge(t *testing.T) {
	for text, want := range map[string]time.Duration{"24h": 24 * time.Hour, "90m": 90 * time.Minute, "7d": 7 * 24 * time.Hour, "0d": 0, "1h30m": 90 * time.Minute} {
		if got, ok := parseAge(text); !ok || got != want {
			t.Errorf("%s: got %s, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "d", "-1d", "-1h", "1", "1.5d", "99999999999d", "1 h", "now"} {
		if got, ok := parseAge(text); ok {
			t.Errorf("%q is parsed as %s", text, got)
		}
	}
}
