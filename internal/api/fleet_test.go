package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestForecast(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	s.create(`{"name": "report", "schedule": "0 0 * * *", "payload": {"url": "https://example.com"}}`)
	s.create(`{"name": "mail", "schedule": "*/5 * * * *", "queue": "mail", "jitter_seconds": 30, "payload": {"url": "https://example.com"}}`)
	var f belfry.Forecast
	s.expectDocumented(c, 200, &f, "GET", "/api/v1/forecast?jitter_seconds=600", "")
	if f.Jobs != 2 || len(f.Minutes) != 1440 || len(f.Hours) != 168 || f.WithJitter == nil || len(f.Spikes) != 5 || f.DayRuns < 286 || f.DayRuns > 290 {
		t.Errorf("got %d jobs, %d runs, %d minutes, %d hours, %+v", f.Jobs, f.DayRuns, len(f.Minutes), len(f.Hours), f.Spikes)
	}
	var empty belfry.Forecast
	s.expectDocumented(c, 200, &empty, "GET", "/api/v1/forecast?queue=nobody", "")
	if empty.Jobs != 0 || empty.WithJitter != nil || empty.DayRuns != 0 {
		t.Errorf("an empty queue has %+v", empty)
	}
	s.expectDocumented(c, 200, &empty, "GET", "/api/v1/forecast", "", "Belfry-Namespace: other")
	if empty.Jobs != 0 {
		t.Errorf("another namespace has %d jobs", empty.Jobs)
	}
	for query, field := range map[string]string{"jitter_seconds=0": "jitter_seconds", "jitter_seconds=86401": "jitter_seconds", "jitter=5m": "jitter", "queue=" + strings.Repeat("x", 201): "queue"} {
		if got := s.send("GET", "/api/v1/forecast?"+query, "").problem(t); got.Status != 400 || strings.Join(got.fields(), " ") != field {
			t.Errorf("%s: %d about %v", query, got.Status, got.fields())
		}
	}
}

func TestFleet(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	var f belfry.Fleet
	s.expectDocumented(c, 200, &f, "GET", "/api/v1/fleet", "")
	if len(f.Nodes) != 0 || len(f.Workers) != 0 || f.Database.Kind != "sqlite" || f.Shards == 0 {
		t.Errorf("an empty fleet is %+v", f)
	}
	s = newService(t)
	ctx := t.Context()
	s.check(s.store.KeepNode(ctx, store.Node{ID: belfry.NewID(time.Now()), Name: "a", Version: "1", Roles: []string{"api"}}))
	left := belfry.NewID(time.Now())
	s.check(s.store.KeepNode(ctx, store.Node{ID: left, Name: "b", Version: "1", Roles: []string{"api", "worker"}}))
	s.check(s.store.EndNode(ctx, left))
	s.expect(200, nil, "POST", "/api/v1/workers/"+belfry.NewID(time.Now()).String()+"/heartbeat", `{"node": "w", "slots": 3, "handlers": ["send"], "register": true}`)
	s.expectDocumented(c, 200, &f, "GET", "/api/v1/fleet", "")
	if len(f.Nodes) != 2 || f.Nodes[1].State != belfry.NodeLeft || len(f.Workers) != 1 || f.Workers[0].Namespace != belfry.DefaultNamespace || f.Total.Slots != 3 {
		t.Errorf("got %+v", f)
	}
	if got := s.send("GET", "/api/v1/fleet?limit=3", "").problem(t); got.Status != 400 {
		t.Errorf("a parameter that it does not have: %d", got.Status)
	}
}
