package client_test

import (
	"testing"

	"github.com/belfry-sh/belfry"
)

func TestMonitorCalls(t *testing.T) {
	c, _ := live(t)
	ctx := t.Context()
	m := must[belfry.Monitor](t)(c.CreateMonitor(ctx, belfry.Monitor{Name: "back/up", EverySeconds: 60}))
	if m.PingURL == "" || m.Status != belfry.MonitorNew {
		t.Errorf("got %+v", m)
	}
	if _, err := c.CreateMonitor(ctx, belfry.Monitor{Name: "back/up", EverySeconds: 60}); belfry.CodeOf(err) != belfry.Conflict {
		t.Errorf("got %v, want Conflict", err)
	}
	edited := must[belfry.Monitor](t)(c.EditMonitor(ctx, "back/up", map[string]any{"grace_seconds": 30}))
	if edited.GraceSeconds != 30 || edited.EverySeconds != 60 {
		t.Errorf("got %+v", edited)
	}
	put := must[belfry.Monitor](t)(c.PutMonitor(ctx, "back/up", belfry.Monitor{Cron: "@daily"}))
	if put.ID != m.ID || put.Cron != "@daily" || put.GraceSeconds != 3600 {
		t.Errorf("got %+v", put)
	}
	must[belfry.Monitor](t)(c.PutMonitor(ctx, "other", belfry.Monitor{EverySeconds: 60}))
	if list := all(t, c.Monitors(ctx)); len(list) != 2 || list[1].ID != m.ID {
		t.Errorf("got %+v", list)
	}
	if err := c.DeleteMonitor(ctx, m.ID.String()); err != nil {
		t.Error(err)
	}
	if _, err := c.Monitor(ctx, "back/up"); belfry.CodeOf(err) != belfry.NotFound {
		t.Errorf("got %v, want NotFound", err)
	}
}
