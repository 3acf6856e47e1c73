package store_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfry-sh/belfry/internal/store"
)

func TestOutagesAreKept(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		now := f.Now().Truncate(time.Second)
		first := store.Outage{Shard: 1, To: now.Add(-time.Hour)}
		second := store.Outage{Shard: 0, From: now.Add(-time.Minute), To: now.Add(-time.Second)}
		other := store.Outage{Shard: 2, From: now.Add(-time.Minute), To: now}
		for range 2 { // Repeating a call does nothing.
			if err := f.RecordOutages(ctx, []store.Outage{second, other, first}); err != nil {
				t.Fatal(err)
			}
		}
		got, err := f.Outages(ctx, []int{0, 1})
		if diff := cmp.Diff([]store.Outage{first, second}, got); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
		f.backdate(t, store.OutageRetention, "outages", "ended_at", "shard = ?", 0)
		if _, err := f.Prune(ctx, store.OutageRetention); err != nil {
			t.Fatal(err)
		}
		if got, err = f.Outages(ctx, []int{0, 1, 2}); err != nil || len(got) != 2 {
			t.Errorf("after pruning there are %v %v", got, err)
		}
	})
}
