package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// apiKey makes a key with every field set.
func (f *fixture) apiKey(id string) store.APIKey {
	now := f.Now().UTC().Truncate(time.Microsecond)
	return store.APIKey{Order: newID(), Hash: store.Hash{1, 2, byte(len(id))}, APIKey: belfry.APIKey{
		ID: id, Name: "deploy", Role: belfry.RoleWorker, Namespaces: []string{"a", "b"}, Queues: []string{"q"}, Commands: true, CreatedAt: now,
		CreatedBy: &belfry.Actor{Kind: belfry.ActorKey, ID: "x", Name: "y"}, ExpiresAt: new(now.Add(time.Hour)), RevokedAt: &now, ReplacedBy: "other",
	}}
}

func TestAPIKeys(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		want, unset := f.apiKey("k1"), cmpopts.EquateComparable(belfry.Optional[int]{})
		for i, created := range []bool{true, false} {
			if got, err := f.CreateAPIKey(ctx, want); err != nil || got != created {
				t.Fatalf("call %d created it: %t (%v)", i, got, err)
			}
		}
		taken := f.apiKey("k1")
		if created, err := f.CreateAPIKey(ctx, taken); created || err != nil {
			t.Errorf("an id was taken twice (%v)", err)
		}
		second := f.apiKey("k2")
		if _, err := f.CreateAPIKey(ctx, second); err != nil {
			t.Fatal(err)
		}
		list, err := f.ListAPIKeys(ctx, store.Page{Limit: 10})
		if diff := cmp.Diff([]store.APIKey{second, want}, list, unset); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
		if list, _ = f.ListAPIKeys(ctx, store.Page{Limit: 10, After: store.Position{ID: second.Order}}); len(list) != 1 || list[0].ID != "k1" {
			t.Errorf("the second page is %+v", list)
		}

		f.backdate(t, time.Hour, "api_keys", "changed_at", "1 = 1")
		used := want.CreatedAt.Add(time.Minute)
		for _, at := range []time.Time{used, want.CreatedAt} { // that comes late
			if err := f.UseAPIKeys(ctx, map[string]time.Time{"k1": at, "none": at}); err != nil {
				t.Fatal(err)
			}
		}
		_, now, err := f.ChangedAPIKeys(ctx, time.Time{})
		if err != nil || now.Before(want.CreatedAt) {
			t.Fatalf("the time is %s (%v)", now, err)
		}
		if changed, _, err := f.ChangedAPIKeys(ctx, now.Add(-time.Minute)); err != nil || len(changed) != 0 {
			t.Errorf("a use is a change: %+v (%v)", changed, err)
		}
		want.LastUsedAt = &used

		third := f.apiKey("k3")
		edited, err := f.EditAPIKey(ctx, "k1", func(k store.APIKey, at time.Time) (*store.APIKey, *store.APIKey, error) {
			if diff := cmp.Diff(want, k, unset); diff != "" || at.Before(now) {
				t.Errorf("at %s the key is %s", at, diff)
			}
			k.ReplacedBy = "k3"
			return &k, &third, nil
		})
		if want.ReplacedBy = "k3"; err != nil || cmp.Diff(want, edited, unset) != "" {
			t.Errorf("%v %s", err, cmp.Diff(want, edited, unset))
		}
		changed, _, err := f.ChangedAPIKeys(ctx, now.Add(-time.Minute))
		if err != nil || len(changed) != 2 {
			t.Errorf("what has changed is %+v (%v)", changed, err)
		}

		refused := errors.New("refused")
		if _, err := f.EditAPIKey(ctx, "k1", func(k store.APIKey, _ time.Time) (*store.APIKey, *store.APIKey, error) {
			return nil, new(f.apiKey("k4")), refused
		}); !errors.Is(err, refused) {
			t.Errorf("a refused edit: %v", err)
		}
		nothing := func(store.APIKey, time.Time) (*store.APIKey, *store.APIKey, error) { return nil, nil, nil }
		if k, err := f.EditAPIKey(ctx, "k3", nothing); err != nil || k.ID != "k3" {
			t.Errorf("an edit that changes nothing: %+v, %v", k, err)
		}
		if _, err := f.EditAPIKey(ctx, "none", nothing); belfry.CodeOf(err) != belfry.NotFound {
			t.Errorf("a key that does not exist: %v", err)
		}
		if n := f.count(t, `SELECT count(*) FROM api_keys`); n != 3 {
			t.Errorf("there are %d keys, want 3", n)
		}
	})
}
