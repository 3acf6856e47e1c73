package wheel

import "math/bits"

// A failer is a testing.TB or a *rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// check fails the test unless the wheel's parts agree with one another: every entry is in the one list that its instant
// and the hand name, is found by its key, and every other place in the slab is free and forgotten.
func check[K comparable, V comparable](t failer, w *Wheel[K, V]) {
	t.Helper()
	if want := tickOf(w.hand); w.tick != want {
		t.Fatalf("the hand at %d is in tick %d, want %d", w.hand, w.tick, want)
	}
	linked := 0
	for list := range int32(lists) {
		if list < late {
			if got, want := w.occupied[list/slots]>>(list%slots)&1 == 1, !w.empty(list); got != want {
				t.Fatalf("slot %d is marked occupied: %t, want %t", list, got, want)
			}
		}
		prev := list
		for i := w.entry(list).next; i != list; i = w.entry(i).next {
			e := w.entry(i)
			if e.prev != prev {
				t.Fatalf("entry %v of list %d has %d before it, want %d", e.key, list, e.prev, prev)
			}
			if got := home(w, e.at); got != list && list != firing {
				t.Fatalf("entry %v at %d is in list %d, want %d", e.key, e.at, list, got)
			}
			if got := w.find(e.key); got != i {
				t.Fatalf("find(%v) is %d, want %d", e.key, got, i)
			}
			prev = i
			linked++
		}
		if got := w.entry(list).prev; got != prev {
			t.Fatalf("list %d ends in %d, want %d", list, got, prev)
		}
	}
	if linked != w.Len() {
		t.Fatalf("%d entries are in lists, but Len is %d", linked, w.Len())
	}
	chained := 0
	for _, i := range w.buckets {
		for ; i != none; i = w.entry(i).chain {
			chained++
		}
	}
	if chained != linked {
		t.Fatalf("%d entries are in chains, want %d", chained, linked)
	}
	free := 0
	for i := w.free; i != none; i = w.entry(i).next {
		if got, want := *w.entry(i), (entry[K, V]{next: w.entry(i).next}); got != want {
			t.Fatalf("the free entry %d still holds %+v", i, got)
		}
		free++
	}
	if got, want := lists+linked+free, int(w.size); got != want {
		t.Fatalf("%d sentinels, entries and free places, want %d", got, want)
	}
}

// home says digit by digit, as the package comment does, in which list an instant belongs.
func home[K comparable, V any](w *Wheel[K, V], at int64) int32 {
	if at <= w.hand {
		return late
	}
	tick, hand := tickOf(at), w.tick
	if bits.Len64(tick) > levels*slotBits {
		return none
	}
	for level := levels - 1; ; level-- {
		digit := tick >> (slotBits * level) % slots
		if level == 0 || digit != hand>>(slotBits*level)%slots {
			return int32(level*slots) + int32(digit)
		}
	}
}
