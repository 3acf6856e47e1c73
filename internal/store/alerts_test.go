package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

func putChannel(t tb, f *fixture, c belfry.Channel) belfry.Channel {
	t.Helper()
	saved, err := f.PutChannel(ctx, c)
	if err != nil {
		t.Fatalf("put a channel: %v", err)
	}
	return saved
}

func channels(t tb, f *fixture, namespace string) []belfry.Channel {
	t.Helper()
	list, err := f.Channels(ctx, namespace)
	if err != nil {
		t.Fatalf("list channels: %v", err)
	}
	return list
}

func TestChannels(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		ops := belfry.Channel{Name: "ops", Namespace: "ours", Type: belfry.ChannelSlack, URL: "https://example.com/x", Alerts: []belfry.Subscription{{On: belfry.AlertFailing, Count: 2}}}
		first := putChannel(t, f, ops)
		putChannel(t, f, belfry.Channel{Name: "mail", Namespace: "ours", Type: belfry.ChannelEmail, To: []string{"a@example.com"}})
		putChannel(t, f, belfry.Channel{Name: "ops", Namespace: "theirs", Type: belfry.ChannelWebhook})
		all := channels(t, f, "ours")
		if len(all) != 2 || all[0].Name != "mail" || all[1].Name != "ops" || len(channels(t, f, "")) != 3 {
			t.Fatalf("the channels are %+v", all)
		}
		ignored := cmpopts.IgnoreFields(belfry.Channel{}, "CreatedAt", "UpdatedAt")
		wantEqual(t, "the channel", all[1], ops, ignored)

		for n := range 2 {
			if err := f.SetChannelResult(ctx, "ours", "ops", "it answered 500", time.Minute); err != nil {
				t.Fatal(err)
			}
			got := channels(t, f, "ours")[1]
			if got.Failures != n+1 || got.Error != "it answered 500" || got.NextTryAt == nil || got.NextTryAt.Sub(f.Now()) < 50*time.Second || got.SentAt != nil {
				t.Errorf("after %d failures: %+v", n+1, got)
			}
		}
		if err := f.SetChannelResult(ctx, "ours", "ops", "", 0); err != nil {
			t.Fatal(err)
		}
		if got := channels(t, f, "ours")[1]; got.Failures != 0 || got.Error != "" || got.NextTryAt != nil || got.SentAt == nil {
			t.Errorf("after a success: %+v", got)
		}
		for _, earlier := range []time.Duration{0, time.Minute} {
			if err := errors.Join(f.SetChannelResult(ctx, "ours", "ops", "it answered 500", earlier), f.SetChannelResult(ctx, "ours", "ops", "b@example.com was refused", 0)); err != nil {
				t.Fatal(err)
			}
			if got := channels(t, f, "ours")[1]; got.Failures != 0 || got.Error != "b@example.com was refused" || got.NextTryAt != nil || got.SentAt == nil {
				t.Errorf("after a success that has an error: %+v", got)
			}
		}

		if same := putChannel(t, f, ops); !same.UpdatedAt.Equal(first.UpdatedAt) {
			t.Errorf("a channel that did not change is %+v, was %+v", same, first)
		}
		ops.URL = "https://example.com/y"
		saved := putChannel(t, f, ops)
		if saved.URL != ops.URL || !saved.CreatedAt.Equal(first.CreatedAt) || saved.UpdatedAt.Before(first.UpdatedAt) {
			t.Errorf("the replaced channel is %+v, was %+v", saved, first)
		}
		if err := f.DeleteChannel(ctx, "ours", "ops"); err != nil {
			t.Fatal(err)
		}
		wantCode(t, "delete it again", f.DeleteChannel(ctx, "ours", "ops"), belfry.NotFound)
		if len(channels(t, f, "")) != 2 {
			t.Error("more than the channel was deleted")
		}
	})
}

func (f *fixture) newAlert(key string, sendAt time.Time) store.AlertRecord {
	now := f.Now().UTC().Truncate(time.Microsecond)
	return store.AlertRecord{Key: key, SendAt: sendAt, Jobs: []belfry.ID{newID()}, Alert: belfry.Alert{
		ID: newID(), Namespace: namespace, Channel: "ops", Status: belfry.AlertFiring, StartedAt: now, LatestAt: now, Count: 3, Message: "three runs died",
		Subscription: belfry.Subscription{On: belfry.AlertDead}, Items: []belfry.AlertItem{{Name: "a", Error: "boom"}},
	}}
}

func (f *fixture) saveAlerts(t tb, want int, alerts ...store.AlertRecord) {
	t.Helper()
	if n, err := f.SaveAlerts(ctx, alerts); err != nil || n != want {
		t.Fatalf("save %d alerts: saved %d (%v), want %d", len(alerts), n, err, want)
	}
}

func (f *fixture) alert(t tb, id belfry.ID) store.AlertRecord {
	t.Helper()
	a, err := f.Alert(ctx, namespace, id)
	if err != nil {
		t.Fatalf("read an alert: %v", err)
	}
	return a
}

func (f *fixture) claimAlerts(t tb) []store.AlertRecord {
	t.Helper()
	alerts, err := f.ClaimAlerts(ctx, namespace, "ops", time.Minute, 10)
	if err != nil {
		t.Fatalf("claim alerts: %v", err)
	}
	return alerts
}

func TestAlertsAreSavedByVersion(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		a := f.newAlert("k", time.Time{})
		f.saveAlerts(t, 1, a)
		got := f.alert(t, a.ID)
		a.Version = 1
		wantEqual(t, "the alert", got, a)
		f.saveAlerts(t, 0, f.newAlert("k", time.Time{})) // the key has an open one
		other := f.newAlert("other", time.Time{})
		f.saveAlerts(t, 1, other)

		got.Count = 5
		f.saveAlerts(t, 1, got)
		f.saveAlerts(t, 0, got) // the version has passed
		got = f.alert(t, a.ID)
		if got.Count != 5 || got.Version != 2 {
			t.Errorf("the saved alert is %+v", got)
		}
		got.Status = belfry.AlertResolved
		f.saveAlerts(t, 1, got)
		again := f.newAlert("k", time.Time{})
		f.saveAlerts(t, 1, again) // its key is free

		list := func(filter belfry.AlertFilter, after belfry.ID) (ids []belfry.ID) {
			alerts, err := f.ListAlerts(ctx, namespace, filter, store.Page{Limit: 2, After: store.Position{ID: after}})
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range alerts {
				ids = append(ids, a.ID)
			}
			return ids
		}
		wantEqual(t, "the first page", list(belfry.AlertFilter{}, belfry.ID{}), []belfry.ID{again.ID, other.ID})
		wantEqual(t, "the second page", list(belfry.AlertFilter{}, other.ID), []belfry.ID{a.ID})
		wantEqual(t, "those that are resolved", list(belfry.AlertFilter{Status: belfry.AlertResolved}, belfry.ID{}), []belfry.ID{a.ID})
		wantEqual(t, "those of another channel", list(belfry.AlertFilter{Channel: "mail"}, belfry.ID{}), nil)
		recent := func(since time.Time) int {
			alerts, err := f.RecentAlerts(ctx, since)
			if err != nil {
				t.Fatal(err)
			}
			return len(alerts)
		}
		if all, open := recent(a.StartedAt.Add(-time.Hour)), recent(f.Now().Add(time.Hour)); all != 3 || open != 2 {
			t.Errorf("%d recent alerts, %d open ones", all, open)
		}
	})
}

func TestAlertsAreSentOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		due, later := f.newAlert("due", f.Now().Add(-time.Second)), f.newAlert("later", f.Now().Add(time.Hour))
		f.saveAlerts(t, 3, due, later, f.newAlert("nothing", time.Time{}))
		claimed := f.claimAlerts(t)
		if len(claimed) != 1 || claimed[0].ID != due.ID {
			t.Fatalf("claimed %+v", claimed)
		}
		if again := f.claimAlerts(t); len(again) != 0 {
			t.Errorf("claimed again: %+v", again)
		}
		if got := f.alert(t, due.ID); !got.ClaimedUntil.After(f.Now()) {
			t.Errorf("it is claimed until %s", got.ClaimedUntil)
		}
		if err := f.ReleaseAlert(ctx, due.ID); err != nil {
			t.Fatal(err)
		}
		if claimed = f.claimAlerts(t); len(claimed) != 1 {
			t.Fatalf("after a failure %+v is claimed", claimed)
		}
		// The alert changes while its message is sent: the change is another message.
		changed := f.alert(t, due.ID)
		changed.Count = 9
		f.saveAlerts(t, 1, changed)
		if err := f.AlertSent(ctx, due.ID, claimed[0].Version); err != nil {
			t.Fatal(err)
		}
		if got := f.alert(t, due.ID); got.SentCount != 1 || got.SentAt == nil || got.SendAt.IsZero() {
			t.Errorf("after the first message: %+v", got)
		}
		f.saveAlerts(t, 0, changed) // it was sent meanwhile, which it does not know
		claimed = f.claimAlerts(t)
		if len(claimed) != 1 || claimed[0].Count != 9 {
			t.Fatalf("claimed %+v, want the change", claimed)
		}
		if err := f.AlertSent(ctx, due.ID, claimed[0].Version); err != nil {
			t.Fatal(err)
		}
		if got := f.alert(t, due.ID); got.SentCount != 2 || !got.SendAt.IsZero() || len(f.claimAlerts(t)) != 0 {
			t.Errorf("after the second message: %+v", got)
		}
	})
}

func TestEvaluated(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for i, want := range []time.Time{{}, f.Now().UTC().Truncate(time.Microsecond), f.Now().UTC().Truncate(time.Microsecond).Add(time.Second)} {
			if i > 0 {
				if err := f.SetEvaluated(ctx, want); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := f.Evaluated(ctx); err != nil || !got.Equal(want) {
				t.Errorf("it is %s (%v), want %s", got, err, want)
			}
		}
	})
}
