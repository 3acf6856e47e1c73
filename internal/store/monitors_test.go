package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// monitor makes a monitor with every field set.
func (f *fixture) monitor(namespace, name string) belfry.Monitor {
	now := f.Now().UTC().Truncate(time.Microsecond)
	at := func(minutes int) *time.Time { return new(now.Add(time.Duration(minutes) * time.Minute)) }
	return belfry.Monitor{
		ID: newID(), Namespace: namespace, Name: name, Token: belfry.NewToken(), EverySeconds: 60, Cron: "0 3 * * *", Timezone: "Europe/Berlin", GraceSeconds: 30,
		Description: "täglich", Tags: []string{"a", "b"}, Paused: true, LastPingAt: at(-3), StartedAt: at(-2), FailedAt: at(-1), DueAt: at(1), AlertAt: now.Add(time.Hour),
		CreatedAt: now.Add(-time.Hour), UpdatedAt: now,
	}
}

func (f *fixture) createMonitor(t tb, m belfry.Monitor) belfry.Monitor {
	t.Helper()
	if err := f.CreateMonitor(ctx, m); err != nil {
		t.Fatalf("create a monitor: %v", err)
	}
	return m
}

func TestMonitorsAreFoundByTokenIDAndName(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		want := f.createMonitor(t, f.monitor("ours", "backup"))
		f.createMonitor(t, want) // Repeating a call does nothing.
		f.createMonitor(t, f.monitor("theirs", "backup"))
		for _, key := range []store.MonitorKey{{Token: want.Token}, {Namespace: "ours", ID: want.ID}, {Namespace: "ours", Name: "backup"}} {
			got, err := f.Monitor(ctx, key)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%+v: %v %s", key, err, diff)
			}
		}
		bare := f.createMonitor(t, belfry.Monitor{ID: newID(), Namespace: "ours", Name: "bare", Token: belfry.NewToken(), EverySeconds: 60, CreatedAt: want.CreatedAt, UpdatedAt: want.CreatedAt})
		if got, err := f.Monitor(ctx, store.MonitorKey{Token: bare.Token}); err != nil || cmp.Diff(bare, got) != "" {
			t.Errorf("without pings: %v %s", err, cmp.Diff(bare, got))
		}
		for _, key := range []store.MonitorKey{{Token: belfry.NewToken()}, {}, {Namespace: "theirs", ID: want.ID}, {Namespace: "nobody", Name: "backup"}} {
			if _, err := f.Monitor(ctx, key); belfry.CodeOf(err) != belfry.NotFound {
				t.Errorf("%+v: got %v, want NotFound", key, err)
			}
		}
		if err := f.CreateMonitor(ctx, f.monitor("ours", "backup")); belfry.CodeOf(err) != belfry.Conflict {
			t.Errorf("a name that is taken: got %v, want Conflict", err)
		}
	})
}

func TestMonitorsAreListedInPages(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		var want []string
		for i := range 5 {
			name := fmt.Sprint("m", i)
			f.createMonitor(t, f.monitor("ours", name))
			f.createMonitor(t, f.monitor("theirs", name))
			want = append([]string{name}, want...)
		}
		var got []string
		page := store.Page{Limit: 2}
		for {
			list, err := f.ListMonitors(ctx, "ours", page)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range list {
				got, page.After.ID = append(got, m.Name), m.ID
			}
			if len(list) < page.Limit {
				break
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestMonitorsAreEditedUnderALock(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		m := f.createMonitor(t, f.monitor("ours", "backup"))
		other := f.createMonitor(t, f.monitor("ours", "other"))
		key := store.MonitorKey{Token: m.Token}
		const writers, each = 4, 5
		done := make(chan error)
		for range writers {
			go func() {
				var err error
				for range each {
					_, e := f.EditMonitor(ctx, key, func(m belfry.Monitor, now time.Time) (*belfry.Monitor, error) {
						m.EverySeconds++
						m.LastPingAt, m.FailedAt, m.UpdatedAt = &now, nil, now
						return &m, nil
					})
					err = errors.Join(err, e)
				}
				done <- err
			}()
		}
		for range writers {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		got, err := f.Monitor(ctx, key)
		if err != nil || got.EverySeconds != m.EverySeconds+writers*each || got.FailedAt != nil || got.LastPingAt == nil || !got.LastPingAt.Equal(got.UpdatedAt) || f.Now().Sub(got.UpdatedAt).Abs() > time.Minute {
			t.Errorf("%v %+v", err, got)
		}
		unchanged, err := f.EditMonitor(ctx, key, func(belfry.Monitor, time.Time) (*belfry.Monitor, error) { return nil, nil })
		if err != nil || cmp.Diff(got, unchanged) != "" {
			t.Errorf("%v %s", err, cmp.Diff(got, unchanged))
		}
		refused := errors.New("no")
		if _, err := f.EditMonitor(ctx, key, func(belfry.Monitor, time.Time) (*belfry.Monitor, error) { return nil, refused }); err != refused {
			t.Errorf("got %v, want the error of the edit", err)
		}
		if _, err := f.EditMonitor(ctx, key, func(m belfry.Monitor, _ time.Time) (*belfry.Monitor, error) {
			m.Name = other.Name
			return &m, nil
		}); belfry.CodeOf(err) != belfry.Conflict {
			t.Errorf("a name that is taken: got %v, want Conflict", err)
		}
		if _, err := f.EditMonitor(ctx, store.MonitorKey{Token: belfry.NewToken()}, nil); belfry.CodeOf(err) != belfry.NotFound {
			t.Errorf("got %v, want NotFound", err)
		}
	})
}

func TestMonitorsAreDeleted(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		m, other := f.createMonitor(t, f.monitor("ours", "backup")), f.createMonitor(t, f.monitor("theirs", "backup"))
		if err := f.DeleteMonitor(ctx, "theirs", m.ID); belfry.CodeOf(err) != belfry.NotFound {
			t.Errorf("from another namespace: got %v, want NotFound", err)
		}
		if err := f.DeleteMonitor(ctx, "ours", m.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Monitor(ctx, store.MonitorKey{Token: m.Token}); belfry.CodeOf(err) != belfry.NotFound {
			t.Errorf("got %v, want NotFound", err)
		}
		if err := f.PurgeNamespace(ctx, "theirs"); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Monitor(ctx, store.MonitorKey{Token: other.Token}); belfry.CodeOf(err) != belfry.NotFound {
			t.Errorf("after its namespace: got %v, want NotFound", err)
		}
	})
}

func TestLateMonitors(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		now := f.Now().UTC().Truncate(time.Microsecond)
		for name, alert := range map[string]time.Time{"c": now.Add(-time.Hour), "a": now, "b": now.Add(time.Microsecond), "d": {}, "B": now.Add(-time.Minute)} {
			for _, namespace := range []string{"two", "one"} {
				m := f.monitor(namespace, name)
				m.AlertAt = alert
				f.createMonitor(t, m)
			}
		}
		list, err := f.LateMonitors(ctx, now, 5)
		var got []string
		for _, m := range list {
			got = append(got, m.Namespace+"/"+m.Name)
		}
		if diff := cmp.Diff([]string{"one/B", "two/B", "one/a", "two/a", "one/c"}, got); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
	})
}

func TestLateMonitorsReadNoOthers(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		explain := `EXPLAIN QUERY PLAN SELECT id FROM monitors WHERE alert_at <= 5 ORDER BY name`
		if f.server {
			f.exec(t, `INSERT INTO monitors (id, namespace, name, token, spec, alert_at, created_at, updated_at)
				SELECT gen_random_uuid(), 'x', n::text, gen_random_uuid(), '{}', clock_timestamp() + interval '1 hour', clock_timestamp(), clock_timestamp() FROM generate_series(1, 10000) n`)
			f.exec(t, `ANALYZE monitors`)
			explain = `EXPLAIN SELECT id FROM monitors WHERE alert_at <= '2020-01-01' ORDER BY name LIMIT 100`
		}
		rows, err := f.tables.Query(explain)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		columns, _ := rows.Columns()
		plan := ""
		for rows.Next() {
			values := make([]any, len(columns))
			for i := range values {
				values[i] = new(any)
			}
			if err := rows.Scan(values...); err != nil {
				t.Fatal(err)
			}
			plan += fmt.Sprintln(*values[len(values)-1].(*any))
		}
		if err := rows.Err(); err != nil || !strings.Contains(plan, "monitors_alert") {
			t.Errorf("%v: the index is not used:\n%s", err, plan)
		}
	})
}
