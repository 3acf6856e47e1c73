package control_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// settings is a patch that makes a monitor what it is given.
func settings(change func(m *belfry.Monitor)) control.MonitorPatch {
	return func(m *belfry.Monitor) []belfry.FieldError {
		change(m)
		return nil
	}
}

func createMonitor(t *testing.T, c *control.Control, change func(m *belfry.Monitor)) belfry.Monitor {
	t.Helper()
	m, err := c.CreateMonitor(t.Context(), ns, settings(func(m *belfry.Monitor) {
		m.Name, m.EverySeconds, m.GraceSeconds = "backup", 86400, 7200
		change(m)
	}))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// wantStatus wants a monitor to have a status now, and the store to agree on whether it alerts.
func wantStatus(t *testing.T, c *control.Control, s store.Store, want belfry.MonitorStatus) belfry.Monitor {
	t.Helper()
	m, err := c.Monitor(t.Context(), ns, "backup")
	if err != nil || m.Status != want {
		t.Errorf("it is %s (%v), want %s", m.Status, err, want)
	}
	late, err := s.LateMonitors(t.Context(), s.Now(), 10)
	if alerts := want == belfry.MonitorLate || want == belfry.MonitorFailed; err != nil || (len(late) == 1) != alerts {
		t.Errorf("it is %s, and %d monitors alert: %v", want, len(late), err)
	}
	return m
}

func ping(t *testing.T, c *control.Control, m belfry.Monitor, kind belfry.PingKind) {
	t.Helper()
	if err := c.Ping(t.Context(), m.Token.String(), kind); err != nil {
		t.Fatal(err)
	}
}

func TestAMonitorFromTheFirstPingToTheLast(t *testing.T) {
	inBubble(t, "every day", func(t *testing.T) {
		s := controltest.Open(t)
		c := control.New(s, plan.Defaults{})
		m := createMonitor(t, c, func(*belfry.Monitor) {})
		time.Sleep(100 * time.Hour)
		wantStatus(t, c, s, "new")
		ping(t, c, m, "success")
		time.Sleep(26*time.Hour - time.Microsecond)
		wantStatus(t, c, s, "up")
		time.Sleep(time.Microsecond)
		wantStatus(t, c, s, "late")
		ping(t, c, m, "start")
		wantStatus(t, c, s, "late")
		ping(t, c, m, "success")
		wantStatus(t, c, s, "up")
		ping(t, c, m, "fail")
		wantStatus(t, c, s, "failed")
		ping(t, c, m, "start")
		wantStatus(t, c, s, "failed")
		ping(t, c, m, "success")
		wantStatus(t, c, s, "up")
	})
}

func TestAMonitorByTheClockOfItsZone(t *testing.T) {
	inBubble(t, "cron", func(t *testing.T) {
		s := controltest.Open(t)
		c := control.New(s, plan.Defaults{})
		berlin, err := time.LoadLocation("Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		m := createMonitor(t, c, func(m *belfry.Monitor) {
			m.EverySeconds, m.Cron, m.Timezone, m.GraceSeconds = 0, "0 3 * * *", "Europe/Berlin", 60
		})
		time.Sleep(90 * 24 * time.Hour) // It is summer now.
		ping(t, c, m, "success")
		due := wantStatus(t, c, s, "up").DueAt
		if due == nil || due.In(berlin).Format("15:04:05") != "03:00:00" || due.Sub(s.Now()) > 24*time.Hour || !due.After(s.Now()) {
			t.Fatalf("it is due at %v", due)
		}
		time.Sleep(due.Sub(s.Now()) + time.Minute - time.Microsecond)
		wantStatus(t, c, s, "up")
		time.Sleep(time.Microsecond)
		wantStatus(t, c, s, "late")
	})
}

func TestEditsOfAMonitor(t *testing.T) {
	inBubble(t, "edits", func(t *testing.T) {
		s := controltest.Open(t)
		c := control.New(s, plan.Defaults{})
		edit := func(change func(m *belfry.Monitor)) belfry.Monitor {
			t.Helper()
			m, err := c.EditMonitor(t.Context(), ns, "backup", settings(change))
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		m := createMonitor(t, c, func(*belfry.Monitor) {})
		if edited := edit(func(m *belfry.Monitor) { m.EverySeconds = 60 }); edited.DueAt != nil {
			t.Errorf("without a ping it is due at %v", edited.DueAt)
		}
		edit(func(m *belfry.Monitor) { m.EverySeconds = 86400 })
		ping(t, c, m, "success")
		time.Sleep(25 * time.Hour)
		edit(func(m *belfry.Monitor) { m.GraceSeconds = 60 })
		before := wantStatus(t, c, s, "late")
		if same := edit(func(*belfry.Monitor) {}); !same.UpdatedAt.Equal(before.UpdatedAt) {
			t.Error("an edit that changes nothing is recorded")
		}
		edit(func(m *belfry.Monitor) { m.EverySeconds = 3600 }) // From now on.
		wantStatus(t, c, s, "up")
		edit(func(m *belfry.Monitor) { m.Paused = true })
		time.Sleep(100 * time.Hour)
		wantStatus(t, c, s, "paused")
		ping(t, c, m, "fail")
		wantStatus(t, c, s, "paused")
		ping(t, c, m, "success")
		time.Sleep(100 * time.Hour)
		edit(func(m *belfry.Monitor) { m.Paused = false })
		time.Sleep(time.Hour + time.Minute - time.Microsecond)
		wantStatus(t, c, s, "up")
		time.Sleep(time.Microsecond)
		wantStatus(t, c, s, "late")
	})
}

func TestPingsAndEditsAtTheSameTime(t *testing.T) {
	s := controltest.Open(t)
	c := control.New(s, plan.Defaults{})
	m := createMonitor(t, c, func(*belfry.Monitor) {})
	const rounds = 10
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range rounds {
				if err := c.Ping(t.Context(), m.Token.String(), []belfry.PingKind{"start", "success", "fail", "success"}[i]); err != nil && belfry.CodeOf(err) != belfry.Conflict {
					t.Error(err)
				}
				if i == 0 {
					if _, err := c.EditMonitor(t.Context(), ns, m.ID.String(), settings(func(m *belfry.Monitor) { m.EverySeconds = 100 + n })); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	got, err := c.Monitor(t.Context(), ns, "backup")
	if err != nil || got.EverySeconds != 100+rounds-1 || got.LastPingAt == nil {
		t.Errorf("%v %+v", err, got)
	}
}

func TestInvalidMonitors(t *testing.T) {
	c := newControl(t)
	for _, tt := range []struct {
		change       func(m *belfry.Monitor)
		field, words string
	}{
		{func(m *belfry.Monitor) { m.Name = "" }, "name", "is required"},
		{func(m *belfry.Monitor) { m.Name = belfry.NewID(time.Now()).String() }, "name", "must not look like an id"},
		{func(m *belfry.Monitor) { m.EverySeconds = 0 }, "every_seconds", "or set cron"},
		{func(m *belfry.Monitor) { m.EverySeconds = 5 }, "every_seconds", "must be from 10"},
		{func(m *belfry.Monitor) { m.Cron = "0 3 * * *" }, "cron", "cannot be combined"},
		{func(m *belfry.Monitor) { m.Timezone = "Europe/Berlin" }, "timezone", "is the time zone of cron"},
		{func(m *belfry.Monitor) { m.EverySeconds, m.Cron = 0, "0 25 * * *" }, "cron", "column 3"},
		{func(m *belfry.Monitor) { m.EverySeconds, m.Cron = 0, "PT5M" }, "cron", "is not a cron expression"},
		{func(m *belfry.Monitor) { m.EverySeconds, m.Cron, m.Timezone = 0, "0 3 * * *", "Europe/Berlim" }, "timezone", "there is no time zone"},
		{func(m *belfry.Monitor) { m.Tags = []string{"a b"} }, "tags[0]", "may contain"},
		{func(m *belfry.Monitor) { m.GraceSeconds = -1 }, "grace_seconds", "must be from 1"},
	} {
		_, err := c.CreateMonitor(t.Context(), ns, settings(func(m *belfry.Monitor) {
			m.Name, m.EverySeconds = "backup", 60
			tt.change(m)
		}))
		oneError(t, err, tt.field, tt.words)
	}
}

func TestMonitorsByNameAndID(t *testing.T) {
	c := newControl(t)
	m := createMonitor(t, c, func(*belfry.Monitor) {})
	put := func(ref string, change func(m *belfry.Monitor)) (belfry.Monitor, bool, error) {
		return c.PutMonitor(t.Context(), ns, ref, settings(change))
	}
	got, created, err := put("backup", func(m *belfry.Monitor) { m.Cron = "@daily" })
	if err != nil || created || got.ID != m.ID || got.Token != m.Token || got.EverySeconds != 0 || got.GraceSeconds != 3600 || !got.CreatedAt.Equal(m.CreatedAt) {
		t.Errorf("%v %v %+v", err, created, got)
	}
	other, created, err := put("other", func(m *belfry.Monitor) { m.EverySeconds = 60 })
	if err != nil || !created || other.Token == m.Token || other.Token == (belfry.Token{}) || other.Name != "other" {
		t.Errorf("%v %v %+v", err, created, other)
	}
	_, _, err = put("other", func(m *belfry.Monitor) { m.Name, m.EverySeconds = "another", 60 })
	oneError(t, err, "name", "is not the name in the path")
	_, _, err = put(belfry.NewID(time.Now()).String(), func(m *belfry.Monitor) { m.EverySeconds = 60 })
	codeOf(t, err, belfry.NotFound)
	_, err = c.EditMonitor(t.Context(), ns, other.ID.String(), settings(func(m *belfry.Monitor) { m.Name = "backup" }))
	codeOf(t, err, belfry.Conflict)
	_, err = c.CreateMonitor(t.Context(), ns, settings(func(m *belfry.Monitor) { m.Name, m.EverySeconds = "backup", 60 }))
	codeOf(t, err, belfry.Conflict)
	codeOf(t, second(c.Monitor(t.Context(), "elsewhere", "backup")), belfry.NotFound)
	if err := c.DeleteMonitor(t.Context(), ns, "backup"); err != nil {
		t.Fatal(err)
	}
	codeOf(t, c.DeleteMonitor(t.Context(), ns, "backup"), belfry.NotFound)
	for _, token := range []string{m.Token.String(), "", "x", belfry.NewToken().String(), belfry.Token{}.String()} {
		codeOf(t, c.Ping(t.Context(), token, belfry.PingSuccess), belfry.NotFound)
	}
	for i := range 3 {
		put(fmt.Sprint("m", i), func(m *belfry.Monitor) { m.EverySeconds = 60 })
	}
	newestFirst := func(a, b belfry.Monitor) int { return b.ID.Compare(a.ID) } // those of one millisecond are in any order
	list, next, err := c.ListMonitors(t.Context(), ns, store.Page{Limit: 3})
	if err != nil || len(list) != 3 || !slices.IsSortedFunc(list, newestFirst) || list[0].Status != belfry.MonitorNew || next.ID != list[2].ID {
		t.Errorf("%v %+v %+v", err, list, next)
	}
}
