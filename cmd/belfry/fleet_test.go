package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

// answering is a command line whose server answers everything with one document.
func answering(t *testing.T, document any) *testCLI {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, "%s", belfry.MustJSON(document))
	}))
	t.Cleanup(server.Close)
	return &testCLI{t: t, server: server.URL}
}

func TestForecastCommand(t *testing.T) {
	p := withServer(t)
	if out := p.ok("forecast").out; out != "0 runs in the next 24 hours, 0 in 7 days, of 0 jobs.\n" {
		t.Errorf("without jobs: %q", out)
	}
	at := time.Now().UTC().Add(3 * time.Hour).Truncate(time.Hour)
	for i := range 20 {
		p.ok("job", "create", fmt.Sprint("nightly-", i), "--schedule", fmt.Sprintf("0 %d * * *", at.Hour()), "--url", "https://example.com", "--queue", "night")
	}
	r := p.ok("forecast", "--queue", "night")
	rows := columns(r.out)
	if !strings.HasPrefix(r.out, "20 runs in the next 24 hours, 140 in 7 days, of 20 jobs.\n") || !strings.Contains(r.err, "--jitter 5m") {
		t.Errorf("got %s\n%s", r.out, r.err)
	}
	hour := slices.IndexFunc(rows, func(row []string) bool { return row[0] == at.Format("Mon 15:00") })
	if hour < 0 || len(rows[hour]) != 4 || rows[hour][1] != "20" || rows[hour][2] != "20 at "+at.Format("15:04") || rows[hour][3] != "█" {
		t.Errorf("the hour of the spike is missing in\n%s", r.out)
	}
	if want := regexp.MustCompile(`(?m)^` + at.Format("Mon 2006-01-02 15:04") + `   20 runs\n  20   0 ` + fmt.Sprint(at.Hour()) + ` \* \* \* UTC   20 jobs   nightly-\d+, nightly-\d+, nightly-\d+, …$`); !want.MatchString(r.out) {
		t.Errorf("the spike is missing in\n%s", r.out)
	}
	if got := p.ok("forecast", "--queue", "night", "--jitter", "20m").out; !strings.Contains(got, "With a jitter of at least 20m the busiest minute has 1 run instead of 20 (-95 %).") &&
		!strings.Contains(got, "the busiest minute has 2 runs instead of 20 (-90 %).") {
		t.Errorf("got\n%s", got)
	}
	var f belfry.Forecast
	if p.json(&f, "forecast", "--queue", "night"); f.Jobs != 20 || f.Peak() != 20 {
		t.Errorf("for programs it has %d jobs, peak %d", f.Jobs, f.Peak())
	}
	for _, args := range [][]string{{"--jitter", "0s"}, {"--jitter", "48h"}, {"--queue", ""}, {"x"}, {"--jitter", "soon"}} {
		if r := p.run(append([]string{"forecast"}, args...)...); r.code != exitUsage {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

func TestForecastSaysThatItIsAnEstimate(t *testing.T) {
	now := time.Now().UTC()
	f := belfry.Forecast{At: now, Jobs: 1_000_000, Sampled: true, SampledJobs: 19_800, DayRuns: 1_234_567, WeekRuns: 8_000_000, MinutesFrom: now.Truncate(time.Minute), Minutes: make([]int64, 1440),
		HoursFrom: now.Truncate(time.Hour), Hours: make([]int64, 168), Spikes: []belfry.Spike{{At: now, Runs: 900, Schedules: []belfry.SpikeSchedule{
			{Schedule: "once", Jobs: 1, Runs: 1, Examples: []belfry.SpikeJob{{JobID: belfry.ID{1}}}}, {Schedule: "\x1b[31m@daily", JitterSeconds: 90, Jobs: 3, Runs: 500, Examples: []belfry.SpikeJob{{Name: "x"}}}}}}}
	out := answering(t, f).ok("forecast", "--local").out
	for _, want := range []string{"1,234,567 runs in the next 24 hours, 8,000,000 in 7 days, of 1,000,000 jobs, estimated from 19,800 of them.\n", "once", "1 job ", belfry.ID{1}.String(), `\x1b[31m@daily, jitter 1m30s`, "399   others"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
}

func TestFleetCommand(t *testing.T) {
	p := withServer(t)
	rows := columns(p.ok("fleet").out)
	for deadline := time.Now().Add(time.Minute); len(rows[1]) < 6 && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		rows = columns(p.ok("fleet").out) // A node reports itself a moment after it listens.
	}
	if len(rows) < 6 || len(rows[1]) < 6 || rows[0][0] != "NODE" || rows[1][1] != "up" || rows[1][5] != "60/60" || !slices.ContainsFunc(rows, func(row []string) bool { return row[0] == "sqlite" }) {
		t.Errorf("got %q", rows)
	}
	if r := p.ok("fleet", "-o", "json"); !json.Valid([]byte(r.out)) || !strings.Contains(r.out, `"kind": "sqlite"`) {
		t.Errorf("for programs it is %s", r.out)
	}
}

func TestFleetOfACluster(t *testing.T) {
	now := time.Now().UTC()
	at := now.Add(-90 * time.Second)
	f := belfry.Fleet{At: now, Shards: 8, Election: belfry.ElectionEtcd, Unowned: []int{3}, NodesAll: 501, NodesUp: 1,
		Nodes: []belfry.FleetNode{
			{ID: belfry.ID{1}, Name: "n1", Address: "n1:80", Version: "v1", Roles: []string{"api", "scheduler"}, State: belfry.NodeUp, Election: belfry.ElectionEtcd, Shards: []int{0, 1, 2, 4, 6, 7}, ClockOffsetSeconds: 1.5, StartedAt: at, SeenAt: at},
			{ID: belfry.ID{2}, Name: "n2", Version: "v1", State: belfry.NodeLost, Election: belfry.ElectionDatabase, Shards: []int{}, StartedAt: at, SeenAt: at},
		},
		Duties:   []belfry.FleetDuty{{Name: "alerts", NodeID: belfry.ID{1}}, {Name: "maintenance"}},
		Workers:  []belfry.FleetWorker{{ID: belfry.ID{3}, Node: "w", Namespace: "team", Queues: []string{"a", "b"}, Handlers: []string{"send"}, Slots: 10, Busy: 4, StartedAt: at, SeenAt: at}},
		Total:    belfry.FleetTotal{Workers: 900, Slots: 9000, Busy: 300},
		Database: belfry.FleetDatabase{Kind: "postgresql", Version: "16.4", Bytes: 5 << 30, LatencySeconds: 0.00123, Pools: []belfry.FleetPool{{Name: "main", Max: 10, InUse: 2}}}}
	p := answering(t, f)
	r := p.ok("fleet", "-o", "wide")
	want := [][]string{
		{"n1", "up", "n1:80", "v1", "api,scheduler", "6/8", "alerts", "+1500.0ms", "1m30s ago", "1m30s ago", belfry.ID{1}.String(), "0-2,4,6-7"},
		{"n2", "lost", "-", "v1", "-", "0/8", "-", "-", "1m30s ago", "1m30s ago", belfry.ID{2}.String(), "-"},
		{"w", "4/10", "team", "a,b", "send", "1m30s ago", "1m30s ago", belfry.ID{3}.String()},
		{"postgresql", "16.4", "5,120 MiB", "1.23ms", "main 2/10"},
	}
	rows := columns(r.out)
	for _, row := range want {
		if !slices.ContainsFunc(rows, func(got []string) bool { return slices.Equal(got, row) }) {
			t.Errorf("%q is missing in\n%s", row, r.out)
		}
	}
	for _, said := range []string{"2 of 501 nodes are shown", "1 of 900 workers are shown; together they have 300 of 9000 slots in use", "No node owns 1 shard", "n2 elects by database", "The clock of n1 differs from that of the database by 1.5s"} {
		if !strings.Contains(r.err, said) {
			t.Errorf("%q is missing in\n%s", said, r.err)
		}
	}
	if !strings.Contains(r.out, "Owners of shards are elected by etcd.") {
		t.Errorf("the election is missing in\n%s", r.out)
	}
	f.Workers = nil
	if r := answering(t, f).ok("fleet"); !strings.Contains(r.out, "No workers: nothing is executed.") {
		t.Errorf("got\n%s", r.out)
	}
}
