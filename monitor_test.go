package belfry_test

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

func TestStatusOfAMonitor(t *testing.T) {
	start := time.Date(2026, 12, 1, 3, 0, 0, 0, time.UTC)
	daily := func(after time.Time) time.Time { return after.Add(24 * time.Hour) }
	at := func(d time.Duration) time.Time { return start.Add(d) }
	type ping struct {
		after time.Duration
		kind  belfry.PingKind
	}
	const grace = 2 * time.Hour
	for _, tt := range []struct {
		name   string
		pings  []ping
		paused bool
		from   map[time.Duration]belfry.MonitorStatus // after the start
	}{
		{"no ping", nil, false, map[time.Duration]belfry.MonitorStatus{0: "new", 1000 * time.Hour: "new"}},
		{"a success", []ping{{0, "success"}}, false, map[time.Duration]belfry.MonitorStatus{0: "up", 26*time.Hour - 1: "up", 26 * time.Hour: "late"}},
		{"a start", []ping{{0, "start"}}, false, map[time.Duration]belfry.MonitorStatus{0: "new", grace - 1: "new", grace: "late"}},
		{"a start that takes too long", []ping{{0, "success"}, {24 * time.Hour, "start"}}, false, map[time.Duration]belfry.MonitorStatus{26*time.Hour - 1: "up", 26 * time.Hour: "late"}},
		{"an early start that takes too long", []ping{{0, "success"}, {time.Hour, "start"}}, false, map[time.Duration]belfry.MonitorStatus{3*time.Hour - 1: "up", 3 * time.Hour: "late"}},
		{"a late start does not extend the time", []ping{{0, "success"}, {25 * time.Hour, "start"}}, false, map[time.Duration]belfry.MonitorStatus{26 * time.Hour: "late"}},
		{"a start and a success", []ping{{0, "start"}, {time.Hour, "success"}}, false, map[time.Duration]belfry.MonitorStatus{grace: "up", 27 * time.Hour: "late"}},
		{"a failure", []ping{{0, "success"}, {time.Hour, "fail"}}, false, map[time.Duration]belfry.MonitorStatus{time.Hour: "failed", 100 * time.Hour: "failed"}},
		{"a failure first", []ping{{0, "fail"}}, false, map[time.Duration]belfry.MonitorStatus{0: "failed"}},
		{"a failure and a start", []ping{{0, "fail"}, {time.Hour, "start"}}, false, map[time.Duration]belfry.MonitorStatus{time.Hour: "failed"}},
		{"a failure and a success", []ping{{0, "fail"}, {time.Hour, "success"}}, false, map[time.Duration]belfry.MonitorStatus{time.Hour: "up", 27 * time.Hour: "late"}},
		{"paused", []ping{{0, "success"}, {0, "fail"}}, true, map[time.Duration]belfry.MonitorStatus{0: "paused", 100 * time.Hour: "paused"}},
	} {
		m := belfry.Monitor{EverySeconds: 86400, GraceSeconds: int(grace.Seconds()), Paused: tt.paused}
		for _, p := range tt.pings {
			m, _ = m.Ping(p.kind, at(p.after), daily)
		}
		for after, want := range tt.from {
			if got := m.StatusAt(at(after)); got != want {
				t.Errorf("%s: after %s it is %s, want %s", tt.name, after, got, want)
			}
		}
		if alerts := !m.AlertAt.IsZero(); alerts != (len(tt.pings) > 0 && !tt.paused) {
			t.Errorf("%s: alert at %s", tt.name, m.AlertAt)
		}
	}
}

func TestPingsThatSayTheSameAreNotRecorded(t *testing.T) {
	now := time.Date(2026, 12, 1, 3, 0, 0, 0, time.UTC)
	next := func(after time.Time) time.Time { return after.Add(time.Minute) }
	kinds := []belfry.PingKind{belfry.PingSuccess, belfry.PingStart, belfry.PingFail}
	for _, before := range kinds {
		for _, first := range kinds {
			for _, second := range kinds {
				m, _ := belfry.Monitor{EverySeconds: 60}.Ping(before, now.Add(-time.Hour), next)
				m, ok := m.Ping(first, now, next)
				if !ok {
					t.Errorf("%s, an hour after %s, is not recorded", first, before)
				}
				if _, ok := m.Ping(second, now.Add(time.Second-1), next); ok != (first != second) {
					t.Errorf("%s a moment after %s: recorded %v", second, first, ok)
				}
				if _, ok := m.Ping(second, now.Add(time.Second), next); !ok {
					t.Errorf("%s a second after %s is not recorded", second, first)
				}
			}
		}
	}
}
