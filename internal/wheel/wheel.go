// Package wheel is a hierarchical timing wheel that reads no clock.
//
// A wheel keeps values under keys, each until an instant, and hands them out when its owner says that the instant has
// come. It is a passive data structure: it starts no goroutine, keeps no function, and reads no clock; one goroutine
// at a time may use it. Adding, moving and removing an entry cost the same however many entries there are.
//
// Time is cut into ticks of one millisecond. A tick's number is read as eight digits of six bits, one level of 64
// slots for each digit. An entry lies at the level of the highest digit in which its tick differs from the hand's, in
// the slot that this digit names. When the hand reaches a slot above the lowest level, the slot's entries move down to
// where their lower digits belong, at most once for each level. Eight digits number every tick that an int64 of
// nanoseconds can express, so nothing lies beyond the top level, and a jump of years visits only occupied slots.
//
// Ticks decide only where an entry lies. Whether it is due, and in which order, is decided by its exact instant.
//
// Instants are kept as nanoseconds, which reach from September 1677 to April 2262; one outside counts as the nearest
// instant inside. They come back in UTC.
package wheel

import (
	"hash/maphash"
	"math"
	"time"
)

// A Wheel holds entries of type V under keys of type K. A key must be equal to itself, which rules out NaN.
// A wheel keeps the memory of the most entries it ever held.
type Wheel[K comparable, V any] struct {
	hand int64  // the latest instant the wheel was advanced to, in nanoseconds
	tick uint64 // the tick of the hand

	occupied [levels]uint64 // for each level, one bit for each slot that holds an entry
	batch    []position     // reused by collect

	slab[K, V]
}

// New returns an empty wheel whose hand stands at start.
func New[K comparable, V any](start time.Time) *Wheel[K, V] {
	w := &Wheel[K, V]{hand: nanos(start)}
	w.tick = tickOf(w.hand)
	w.seed = maphash.MakeSeed()
	w.buckets = []int32{none}
	w.free = none
	for list := range int32(lists) {
		sentinel := w.entry(w.extend())
		sentinel.prev, sentinel.next = list, list
	}
	return w
}

// Set adds an entry, or moves and replaces the one that has the same key, as if that had been removed before.
// An entry at or before the hand is due at the next Advance.
func (w *Wheel[K, V]) Set(key K, at time.Time, value V) {
	i := w.find(key)
	if i == none {
		i = w.insert(key)
	} else {
		w.unlink(i)
	}
	e := w.entry(i)
	e.at, e.value = nanos(at), value
	w.place(i)
}

// Get returns the value kept under key, and whether there is one.
func (w *Wheel[K, V]) Get(key K) (V, bool) {
	if i := w.find(key); i != none {
		return w.entry(i).value, true
	}
	var zero V
	return zero, false
}

// Remove removes the entry kept under key, and reports whether there was one.
func (w *Wheel[K, V]) Remove(key K) bool {
	i := w.find(key)
	if i == none {
		return false
	}
	w.unlink(i)
	w.release(i)
	return true
}

// Len returns the number of entries.
func (w *Wheel[K, V]) Len() int { return w.count }

// Advance moves the hand to now and calls due for every entry whose instant is not after now, ordered by instant, those
// of one instant in the order in which they were set. It returns the number of calls.
//
// An entry is removed before it is handed to due. From due, every method but Advance may be called: an entry removed
// before its turn is not handed out, and one set by due waits for the next Advance even when it is already due.
// Should due panic, the entries whose turn had not come wait for the next Advance as well.
//
// The hand never goes back. With a now before the hand, only entries set behind the hand can be due, and of those
// again only the ones whose instant is not after now.
func (w *Wheel[K, V]) Advance(now time.Time, due func(key K, at time.Time, value V)) int {
	limit := nanos(now)
	w.recall()
	w.collect(late, limit)
	if limit > w.hand {
		w.turn(limit)
	}
	calls := 0
	for i := w.entry(firing).next; i != firing; i = w.entry(firing).next {
		e := w.entry(i)
		key, at, value := e.key, e.at, e.value
		w.unlink(i)
		w.release(i)
		calls++
		due(key, instant(at), value)
	}
	return calls
}

// Next returns the instant at which to advance next, or false if the wheel is empty.
//
// The instant is never later than that of any entry. Where few entries compete it is exactly the earliest one's;
// otherwise it may be one at which entries only come closer. It lies after the hand unless an entry was set at or
// before the hand, and then it is the earliest entry's. Advancing to it therefore always moves the hand or hands out an
// entry. Next compares a bounded number of entries, except that it goes through all that are late or lie in the hand's
// own millisecond.
func (w *Wheel[K, V]) Next() (time.Time, bool) {
	if w.count == 0 {
		return time.Time{}, false
	}
	if !w.empty(late) || !w.empty(firing) {
		at, _ := w.earliest(late, math.MaxInt)
		if !w.empty(firing) {
			at = min(at, w.entry(w.entry(firing).next).at)
		}
		return instant(at), true
	}
	list, start, _ := w.first()
	if start == w.tick { // The slot began at or before the hand, so that only the exact instant will do.
		at, _ := w.earliest(list, math.MaxInt)
		return instant(at), true
	}
	if at, exact := w.earliest(list, nextEffort); exact {
		return instant(at), true
	}
	return instant(startOf(start)), true
}

// nextEffort bounds the entries that Next compares in a slot that the hand has not reached.
const nextEffort = 64

var (
	firstInstant = time.Unix(0, math.MinInt64)
	lastInstant  = time.Unix(0, math.MaxInt64)
)

func nanos(t time.Time) int64 {
	switch {
	case t.Before(firstInstant):
		return math.MinInt64
	case t.After(lastInstant):
		return math.MaxInt64
	}
	return t.UnixNano()
}

func instant(nanos int64) time.Time { return time.Unix(0, nanos).UTC() }
