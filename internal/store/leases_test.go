package store_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const ttl = time.Hour

func (f *fixture) hold(t tb, owner belfry.ID, names ...string) map[string]int64 {
	t.Helper()
	leases, err := f.Hold(ctx, owner, names, ttl)
	if err != nil {
		t.Fatalf("hold %v: %v", names, err)
	}
	epochs := map[string]int64{}
	for _, l := range leases {
		if _, twice := epochs[l.Name]; twice || l.Owner != owner || !slices.Contains(names, l.Name) || l.Epoch < 1 {
			t.Errorf("asked to hold %v, got %+v", names, leases)
		}
		epochs[l.Name] = l.Epoch
	}
	return epochs
}

func (f *fixture) heldLeases(t tb, prefix string) map[string]belfry.ID {
	t.Helper()
	leases, err := f.Held(ctx, prefix)
	if err != nil {
		t.Fatalf("list leases: %v", err)
	}
	owners := map[string]belfry.ID{}
	for _, l := range leases {
		owners[l.Name] = l.Owner
	}
	if len(owners) != len(leases) {
		t.Errorf("a lease is listed twice: %+v", leases)
	}
	return owners
}

// expire makes it look as if nobody renewed the leases for longer than they last.
func (f *fixture) expire(t tb, name string) {
	t.Helper()
	if n := f.backdate(t, 2*ttl, "leases", "expires_at", "name = ?", name); n != 1 {
		t.Fatalf("%d leases are named %q, wants 1", n, name)
	}
}

func TestALeaseHasOneOwner(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		a, b := newID(), newID()
		first := f.hold(t, a, "shard/1", "shard/2")
		if len(first) != 2 {
			t.Fatalf("the first owner got %v", first)
		}
		if got := f.hold(t, b, "shard/1", "shard/3", "shard/2"); len(got) != 1 || got["shard/3"] == 0 {
			t.Errorf("the second owner got %v, wants only what is free", got)
		}
		if again := f.hold(t, a, "shard/1", "shard/2", "shard/3"); fmt.Sprint(again) != fmt.Sprint(first) {
			t.Errorf("a renewal gave %v, wants %v", again, first)
		}
		want := map[string]belfry.ID{"shard/1": a, "shard/2": a, "shard/3": b}
		if got := f.heldLeases(t, "shard/"); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the leases are %v, wants %v", got, want)
		}
		if got := f.hold(t, a); len(got) != 0 {
			t.Errorf("holding nothing gave %v", got)
		}
		if got := f.hold(t, a, "shard/4", "shard/4"); len(got) != 1 {
			t.Errorf("a name given twice gave %v", got)
		}
	})
}

func TestAnExpiredLeaseIsFreeAndItsEpochGrows(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		a, b := newID(), newID()
		first := f.hold(t, a, "duty")["duty"]
		f.expire(t, "duty")
		if got := f.heldLeases(t, ""); len(got) != 0 {
			t.Errorf("an expired lease is listed: %v", got)
		}
		second := f.hold(t, b, "duty")["duty"]
		if second <= first {
			t.Errorf("the epoch went from %d to %d, wants it to grow", first, second)
		}
		if got := f.hold(t, a, "duty"); len(got) != 0 {
			t.Errorf("the former owner got %v", got)
		}
		f.expire(t, "duty")
		third := f.hold(t, b, "duty")["duty"]
		if third < second {
			t.Errorf("the epoch went back from %d to %d", second, third)
		}
		f.expire(t, "duty")
		if fourth := f.hold(t, a, "duty")["duty"]; fourth <= third {
			t.Errorf("the epoch went from %d to %d, wants it to grow", third, fourth)
		}
	})
}

func TestARenewalLastsFromNowOn(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		a, b := newID(), newID()
		f.hold(t, a, "duty")
		f.backdate(t, ttl-time.Minute, "leases", "expires_at", "")
		f.hold(t, a, "duty")
		f.backdate(t, ttl-time.Minute, "leases", "expires_at", "")
		if got := f.hold(t, b, "duty"); len(got) != 0 {
			t.Errorf("a renewed lease was taken: %v", got)
		}
		f.backdate(t, 2*time.Minute, "leases", "expires_at", "")
		if got := f.hold(t, b, "duty"); len(got) != 1 {
			t.Errorf("an expired lease was not taken: %v", got)
		}
	})
}

func TestAReleasedLeaseIsFreeAtOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		a, b := newID(), newID()
		first := f.hold(t, a, "duty", "other")["duty"]
		for _, owner := range []belfry.ID{b, a, a} {
			if err := f.Release(ctx, owner, []string{"duty", "nobody's"}); err != nil {
				t.Fatalf("release: %v", err)
			}
			_, kept := f.heldLeases(t, "")["duty"]
			if kept != (owner == b) {
				t.Errorf("after a release by %v the lease is held: %v", owner, kept)
			}
		}
		if got := f.hold(t, b, "duty", "other"); got["duty"] <= first || len(got) != 1 {
			t.Errorf("the next owner got %v, wants an epoch above %d", got, first)
		}
		if err := f.Release(ctx, a, nil); err != nil {
			t.Errorf("release nothing: %v", err)
		}
	})
}

func TestLeasesAreListedByPrefix(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		names := []string{"shard/1", "shard/10", "Shard/1", "shardx", "100%", "1000", "a_b", "axb", `back\slash`, "ü", "'"}
		f.hold(t, newID(), names...)
		for prefix, want := range map[string]int{"": len(names), "shard/": 2, "shard/1": 2, "shard": 3, "Sh": 1, "100%": 1, "a_": 1, `back\`: 1, "ü": 1, "'": 1, "none": 0, "%": 0, "*": 0} {
			if got := f.heldLeases(t, prefix); len(got) != want {
				t.Errorf("prefix %q lists %v, wants %d", prefix, got, want)
			}
		}
	})
}

func TestARaceForLeasesHasOneWinnerEach(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		stores := []store.Store{f.Store}
		if f.reopen != nil {
			stores = append(stores, f.reopen(t), f.reopen(t))
		}
		names := make([]string, 40)
		for i := range names {
			names[i] = fmt.Sprint("shard/", i)
		}
		var mu sync.Mutex
		var wait sync.WaitGroup
		owners := map[string]belfry.ID{}
		for i := range 6 {
			owner := newID()
			wait.Go(func() {
				for range 5 {
					order := slices.Clone(names)
					rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
					leases, err := stores[i%len(stores)].Hold(ctx, owner, order, ttl)
					if err != nil {
						t.Errorf("hold: %v", err)
						return
					}
					mu.Lock()
					for _, l := range leases {
						if other, taken := owners[l.Name]; taken && other != owner || l.Epoch != 1 {
							t.Errorf("%s has two owners, or epoch %d", l.Name, l.Epoch)
						}
						owners[l.Name] = owner
					}
					mu.Unlock()
				}
			})
		}
		wait.Wait()
		if got := f.heldLeases(t, ""); len(got) != len(names) || fmt.Sprint(got) != fmt.Sprint(owners) {
			t.Errorf("%d leases are held, %d were won, wants %d", len(got), len(owners), len(names))
		}
	})
}
