package store_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestTraceLinksAreKept(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		const first, second = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-11111111111111111111111111111111-2222222222222222-01"
		a, b, c := newID(), newID(), newID()
		for _, link := range []string{first, second} { // The first is kept.
			if err := f.AddTraceLinks(ctx, []belfry.ID{a, b}, link); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.AddTraceLinks(ctx, []belfry.ID{c}, second); err != nil {
			t.Fatal(err)
		}
		got, err := f.TraceLinks(ctx, []belfry.ID{a, c, newID()})
		if diff := cmp.Diff(map[belfry.ID]string{a: first, c: second}, got); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
		f.backdate(t, store.TraceLinkRetention, "trace_links", "created_at", "id = ?", c)
		if _, err := f.Prune(ctx, store.OutageRetention); err != nil {
			t.Fatal(err)
		}
		if got, err = f.TraceLinks(ctx, []belfry.ID{a, b, c}); err != nil || len(got) != 2 || got[c] != "" {
			t.Errorf("after pruning there are %v %v", got, err)
		}
	})
}
