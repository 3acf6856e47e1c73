package wheel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	ms   = time.Millisecond
	year = 365 * 24 * time.Hour
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// take advances the wheel and returns the keys it handed out, in order, as one word each.
func take[V comparable](t *testing.T, w *Wheel[string, V], now time.Time) string {
	t.Helper()
	var keys []string
	calls := w.Advance(now, func(key string, at time.Time, _ V) {
		if at.After(now) {
			t.Errorf("%s at %v was handed out early, at %v", key, at, now)
		}
		keys = append(keys, key)
	})
	if calls != len(keys) {
		t.Errorf("Advance returned %d after %d calls", calls, len(keys))
	}
	check(t, w)
	return strings.Join(keys, " ")
}

func TestAdvanceHandsOutWhatIsDue(t *testing.T) {
	type step struct {
		to   time.Duration // from noon
		want string
	}
	tests := []struct {
		name  string
		set   map[string]time.Duration // in order of key
		steps []step
	}{
		{"an empty wheel has nothing to hand out", nil, []step{{0, ""}, {year, ""}}},
		{"an entry comes at its instant, once", map[string]time.Duration{"a": 5 * ms}, []step{{5*ms - 1, ""}, {5 * ms, "a"}, {6 * ms, ""}}},
		{"an entry at the hand is due at once", map[string]time.Duration{"a": 0}, []step{{0, "a"}}},
		{"an entry before the hand is due at once", map[string]time.Duration{"a": -year}, []step{{0, "a"}}},
		{"an entry later in the hand's tick stays", map[string]time.Duration{"a": 300, "b": 700}, []step{{299, ""}, {300, "a"}, {699, ""}, {ms, "b"}}},
		{"one instant keeps the order of setting", map[string]time.Duration{"a": ms, "b": ms, "c": ms}, []step{{ms, "a b c"}}},
		{"instants within a tick are ordered", map[string]time.Duration{"a": ms + 3, "b": ms + 1, "c": ms + 2, "d": ms + 1}, []step{{2 * ms, "b d c a"}}},
		{"late entries come first and in order", map[string]time.Duration{"a": 1, "b": -2, "c": -3, "d": -2, "e": 0}, []step{{year, "c b d e a"}}},
		{"a jump keeps the order over all levels", map[string]time.Duration{"a": 90 * year, "b": 63 * ms, "c": 64 * ms, "d": time.Hour, "e": year, "f": 24 * time.Hour},
			[]step{{63 * ms, "b"}, {100 * year, "c d f e a"}}},
		{"a step just short of each entry hands out none", map[string]time.Duration{"a": 64 * ms, "b": 4096 * ms, "c": 262144 * ms},
			[]step{{64*ms - 1, ""}, {4096*ms - 1, "a"}, {262144*ms - 1, "b"}, {262144 * ms, "c"}}},
		{"going back hands out only what is due there", map[string]time.Duration{"a": -5 * ms, "b": -3 * ms, "c": ms},
			[]step{{-6 * ms, ""}, {-4 * ms, "a"}, {-3*ms - 1, ""}, {-3 * ms, "b"}, {ms - 1, ""}, {ms, "c"}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := New[string, int](noon)
			for key := 'a'; key <= 'z'; key++ {
				if at, ok := test.set[string(key)]; ok {
					w.Set(string(key), noon.Add(at), 0)
				}
			}
			for _, step := range test.steps {
				if got := take(t, w, noon.Add(step.to)); got != step.want {
					t.Errorf("advanced to noon %+v: got %q, want %q", step.to, got, step.want)
				}
			}
			if w.Len() != 0 {
				t.Errorf("%d entries were never handed out", w.Len())
			}
		})
	}
}

func TestSetMovesAndReplaces(t *testing.T) {
	w := New[string, int](noon)
	w.Set("a", noon.Add(ms), 1)
	w.Set("b", noon.Add(time.Hour), 1)
	w.Set("a", noon.Add(time.Hour), 2)
	if value, ok := w.Get("a"); value != 2 || !ok || w.Len() != 2 {
		t.Fatalf("Get(a) is %d, %t among %d entries, want 2, true among 2", value, ok, w.Len())
	}
	if got := take(t, w, noon.Add(ms)); got != "" {
		t.Errorf("the instant that a left brought %q", got)
	}
	if got := take(t, w, noon.Add(time.Hour)); got != "b a" {
		t.Errorf("got %q, want b a: an entry that moves goes behind those already there", got)
	}
	if _, ok := w.Get("a"); ok {
		t.Error("an entry is still kept after it was handed out")
	}
}

func TestRemove(t *testing.T) {
	w := New[string, int](noon)
	w.Set("a", noon.Add(ms), 1)
	if !w.Remove("a") || w.Remove("a") || w.Len() != 0 {
		t.Error("an entry is removed once")
	}
	if _, ok := w.Next(); ok {
		t.Error("an empty wheel has a next instant")
	}
	if got := take(t, w, noon.Add(year)); got != "" {
		t.Errorf("the removed entry came back as %q", got)
	}
}

func TestDueMayChangeTheWheel(t *testing.T) {
	w := New[string, int](noon)
	for _, key := range strings.Fields("a b c d e") {
		w.Set(key, noon.Add(ms), 0)
	}
	now := noon.Add(2 * ms)
	var got []string
	w.Advance(now, func(key string, at time.Time, _ int) {
		check(t, w)
		got = append(got, key)
		switch key {
		case "a":
			if next, ok := w.Next(); !ok || !next.Equal(noon.Add(ms)) {
				t.Errorf("Next is %v, %t while entries of %v wait for their turn", next, ok, noon.Add(ms))
			}
			w.Set("a", at, 1)                    // due again at once
			w.Remove("b")                        // before its turn
			w.Set("c", now.Add(ms), 1)           // put off before its turn
			w.Set("d", noon.Add(-time.Hour), 1)  // due, but set anew
			w.Set("f", noon.Add(time.Second), 1) // new
		case "e":
			w.Set("a", now, 2)
		}
	})
	if want := []string{"a", "e"}; !slices.Equal(got, want) {
		t.Errorf("handed out %v, want %v", got, want)
	}
	if next, ok := w.Next(); !ok || !next.Equal(noon.Add(-time.Hour)) {
		t.Errorf("Next is %v, %t, want the instant of the entry that is latest", next, ok)
	}
	if got := take(t, w, now); got != "d a" {
		t.Errorf("the next Advance brought %q, want d a", got)
	}
	if got := take(t, w, noon.Add(time.Second)); got != "c f" {
		t.Errorf("the last Advance brought %q, want c f", got)
	}
}

func TestEntriesSurviveAPanicOfDue(t *testing.T) {
	w := New[string, int](noon)
	for i, key := range strings.Fields("a b c d") {
		w.Set(key, noon.Add(time.Duration(i/2)*ms), 0) // a and b, then c and d
	}
	func() {
		defer func() { _ = recover() }()
		w.Advance(noon.Add(time.Second), func(key string, at time.Time, _ int) {
			w.Set(key, at.Add(ms), 1)
			if key == "b" {
				panic("halfway")
			}
		})
	}()
	check(t, w)
	if next, _ := w.Next(); !next.Equal(noon.Add(ms)) {
		t.Errorf("Next is %v, want %v", next, noon.Add(ms))
	}
	if got := take(t, w, noon); got != "" {
		t.Errorf("going back brought %q early", got)
	}
	if got := take(t, w, noon.Add(time.Second)); got != "c d a b" {
		t.Errorf("got %q, want c d a b", got)
	}
}

func TestInstantsOutOfRangeCountAsTheNearestInside(t *testing.T) {
	first, last := time.Unix(0, math.MinInt64), time.Unix(0, math.MaxInt64)
	w := New[string, int](time.Time{})
	w.Set("far", time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), 0)
	w.Set("last", last, 0)
	w.Set("almost", last.Add(-1), 0)
	w.Set("second", first.Add(1), 0)
	w.Set("never", time.Time{}, 0)
	w.Set("first", first, 0)
	check(t, w)
	for _, step := range []struct {
		now  time.Time
		want string
	}{
		{time.Time{}, "never first"},
		{first, ""},
		{first.Add(1), "second"},
		{last.Add(-2), ""},
		{last.Add(-1), "almost"},
		{last, "far last"},
	} {
		var keys []string
		w.Advance(step.now, func(key string, _ time.Time, _ int) { keys = append(keys, key) })
		check(t, w)
		if got := strings.Join(keys, " "); got != step.want {
			t.Errorf("at %v got %q, want %q", step.now, got, step.want)
		}
	}
}

func TestTicksAreWholeMilliseconds(t *testing.T) {
	const tick = int64(ms)
	for _, at := range []int64{math.MinInt64 + 2*tick, -tick - 1, -tick, -tick + 1, -1, 0, 1, tick - 1, tick, noon.UnixNano() + 1, math.MaxInt64} {
		if start := startOf(tickOf(at)); start > at || at-start >= tick || start%tick != 0 {
			t.Errorf("the tick of %d starts at %d", at, start)
		}
	}
	if first, last := tickOf(math.MinInt64), tickOf(math.MaxInt64); first != 0 || last>>(levels*slotBits) != 0 {
		t.Errorf("ticks run from %d to %d, want from 0 to what %d levels can tell apart", first, last, levels)
	}
}

func TestInstantsComeBackInUTC(t *testing.T) {
	zone := time.FixedZone("somewhere", 2*60*60)
	w := New[string, int](noon.In(zone))
	w.Set("a", noon.Add(ms).In(zone), 0)
	next, _ := w.Next()
	w.Advance(noon.Add(ms).In(zone), func(_ string, at time.Time, _ int) {
		if at != noon.Add(ms) || next != at {
			t.Errorf("the instant came back as %v, and %v from Next, want %v", at, next, noon.Add(ms))
		}
	})
}

func TestOneTickFullOfInstantsIsOrdered(t *testing.T) {
	const entries = 50_000
	random := rand.New(rand.NewPCG(1, 2))
	w := New[int, int64](noon)
	for key := range entries {
		nanos := random.Int64N(int64(ms) / 50) // many ties
		w.Set(key, noon.Add(time.Hour+time.Duration(nanos)), nanos)
	}
	lastKey, lastNanos := -1, int64(-1)
	calls := w.Advance(noon.Add(2*time.Hour), func(key int, _ time.Time, nanos int64) {
		if nanos < lastNanos || nanos == lastNanos && key < lastKey {
			t.Fatalf("entry %d at %d came after entry %d at %d", key, nanos, lastKey, lastNanos)
		}
		lastKey, lastNanos = key, nanos
	})
	if calls != entries {
		t.Errorf("handed out %d entries, want %d", calls, entries)
	}
	if cap(w.batch) > keptBatch {
		t.Errorf("the wheel keeps memory for %d positions", cap(w.batch))
	}
}

func TestNext(t *testing.T) {
	many := func(n int, at time.Duration) (set []time.Duration) {
		for i := range n {
			set = append(set, at+time.Duration(i))
		}
		return set
	}
	tests := []struct {
		name string
		set  []time.Duration // from noon, where the hand stands
		want time.Duration
	}{
		{"one entry far away is known exactly", []time.Duration{100*year + 1}, 100*year + 1},
		{"the earliest of a few", []time.Duration{time.Hour, 3*ms + 7, 3*ms + 5, 4 * ms}, 3*ms + 5},
		{"the earliest in the hand's own tick", []time.Duration{700, 300, 500}, 300},
		{"many in the hand's own tick", many(1000, 20), 20},
		{"many in a later tick wait for its start", many(1000, 3*ms+7), 3 * ms},
		{"as many as are compared", many(nextEffort, 3*ms+7), 3*ms + 7},
		{"an entry at the hand", []time.Duration{0, 1}, 0},
		{"the earliest of those before the hand", []time.Duration{-1, -ms, ms, 0}, -ms},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := New[int, int](noon)
			for key, at := range test.set {
				w.Set(key, noon.Add(at), 0)
			}
			if got, ok := w.Next(); !ok || !got.Equal(noon.Add(test.want)) {
				t.Errorf("Next is noon %+v, %t, want noon %+v", got.Sub(noon), ok, test.want)
			}
		})
	}
}

// A loop that advances to what Next says hands out every entry at its instant and does little else.
func TestFollowingNextVisitsEveryEntryAtItsInstant(t *testing.T) {
	const entries = 5_000
	for _, spread := range []time.Duration{ms, time.Second, time.Hour, year, 100 * year} {
		t.Run(fmt.Sprint("spread over ", spread), func(t *testing.T) {
			random := rand.New(rand.NewPCG(3, uint64(spread)))
			w := New[int, time.Time](noon)
			instants := map[time.Time]bool{}
			for key := range entries {
				at := noon.Add(1 + time.Duration(random.Int64N(int64(spread))))
				w.Set(key, at, at)
				instants[at] = true
			}
			hand, advances, idle, calls := noon, 0, 0, 0
			for next, ok := w.Next(); ok; next, ok = w.Next() {
				if !next.After(hand) {
					t.Fatalf("Next is %v with the hand at %v", next, hand)
				}
				hand = next
				n := w.Advance(next, func(key int, at, value time.Time) {
					if !at.Equal(next) || !value.Equal(at) {
						t.Fatalf("entry %d of %v came at %v, as one of %v", key, value, next, at)
					}
				})
				advances, calls = advances+1, calls+n
				if n == 0 {
					idle++
				}
			}
			if calls != entries || advances-idle != len(instants) {
				t.Errorf("%d entries at %d instants, want %d at %d", calls, advances-idle, entries, len(instants))
			}
			// Next is inexact only in front of a crowd, and every crowd comes closer at most once a level.
			if most := levels * (entries/nextEffort + 1); idle > most {
				t.Errorf("%d advances handed out nothing, want at most %d", idle, most)
			}
			check(t, w)
		})
	}
}
