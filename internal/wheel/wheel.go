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
	"cmp"
	"hash/maphash"
	"math"
	"math/bits"
	"slices"
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

const (
	levels   = 8
	slotBits = 6
	slots    = 1 << slotBits
	slotMask = slots - 1
)

// Every entry is in exactly one list: the slots, level by level, and two more. A list is named by the index of its
// sentinel in the slab.
const (
	late   = levels*slots + iota // entries set at or before the hand
	firing                       // entries that the Advance under way has still to hand out, in order
	lists
)

// firstTick is the tick of the earliest instant, counted from 1970 and rounded down.
const firstTick = math.MinInt64/int64(time.Millisecond) - 1

// tickOf numbers ticks from the earliest instant on, so that no number is negative; they begin at whole milliseconds.
func tickOf(nanos int64) uint64 {
	tick := nanos / int64(time.Millisecond)
	if nanos%int64(time.Millisecond) < 0 {
		tick--
	}
	return uint64(tick - firstTick)
}

// startOf returns the instant at which a tick other than the first begins.
func startOf(tick uint64) int64 { return (int64(tick) + firstTick) * int64(time.Millisecond) }

// place puts an entry that is in no list where its instant and the hand say. Entries of one tick are thus always in
// one list, in the order in which they were set.
func (w *Wheel[K, V]) place(i int32) {
	at := w.entry(i).at
	if at <= w.hand {
		w.linkBefore(late, i)
		return
	}
	tick := tickOf(at)
	level := (bits.Len64((tick^w.tick)|1) - 1) / slotBits
	slot := tick >> (level * slotBits) & slotMask
	w.occupied[level] |= 1 << slot
	w.linkBefore(int32(level*slots)+int32(slot), i)
}

// first returns the earliest slot that holds an entry, and the tick at which it starts. Lower levels come first: theirs
// are the ticks that agree with the hand in more digits.
func (w *Wheel[K, V]) first() (list int32, start uint64, ok bool) {
	for level, occupied := range w.occupied {
		if occupied != 0 {
			slot := bits.TrailingZeros64(occupied)
			shift := level * slotBits
			start = w.tick>>(shift+slotBits)<<(shift+slotBits) | uint64(slot)<<shift
			return int32(level*slots + slot), start, true
		}
	}
	return none, 0, false
}

// earliest returns the earliest instant in a list, or the latest there is if the list is empty. It stops and
// returns false, if the list has more entries than effort.
func (w *Wheel[K, V]) earliest(list int32, effort int) (at int64, ok bool) {
	at = math.MaxInt64
	for i := w.entry(list).next; i != list; effort-- {
		if effort == 0 {
			return 0, false
		}
		e := w.entry(i)
		at, i = min(at, e.at), e.next
	}
	return at, true
}

// turn moves the hand forward to limit and collects what is due by then from the slots that it meets.
func (w *Wheel[K, V]) turn(limit int64) {
	target := tickOf(limit)
	for {
		list, start, ok := w.first()
		if !ok || start > target {
			break
		}
		w.tick = start
		if list >= slots {
			w.cascade(list)
			continue
		}
		w.collect(list, limit)
		if start == target { // What is left here belongs to this tick, but comes after limit.
			break
		}
	}
	w.hand, w.tick = limit, target
}

// cascade spreads the entries of the slot at which the hand stands over the levels below.
func (w *Wheel[K, V]) cascade(list int32) {
	sentinel := w.entry(list)
	i := sentinel.next
	sentinel.prev, sentinel.next = list, list
	w.vacate(list)
	for i != list {
		next := w.entry(i).next
		w.place(i)
		i = next
	}
}

// A position is where an entry stands in its list, and when it is due.
type position struct {
	at    int64
	order int32
	index int32
}

// keptBatch bounds the positions for which memory is kept between calls.
const keptBatch = 4096

// collect moves the entries that are due at limit from a list to the end of firing, in order.
func (w *Wheel[K, V]) collect(list int32, limit int64) {
	batch := w.batch[:0]
	for i := w.entry(list).next; i != list; {
		e := w.entry(i)
		if e.at <= limit {
			batch = append(batch, position{e.at, int32(len(batch)), i})
		}
		i = e.next
	}
	slices.SortFunc(batch, func(a, b position) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order))
	})
	for _, p := range batch {
		w.unlink(p.index)
		w.linkBefore(firing, p.index)
	}
	if cap(batch) > keptBatch {
		batch = nil
	}
	w.batch = batch
}

// recall makes entries that an Advance left behind wait like any other that is late, ahead of those that its due set.
func (w *Wheel[K, V]) recall() {
	for i := w.entry(firing).prev; i != firing; i = w.entry(firing).prev {
		w.unlink(i)
		w.linkBefore(w.entry(late).next, i)
	}
}

// linkBefore puts an entry that is in no list before another; before a list's sentinel means at its end.
func (w *Wheel[K, V]) linkBefore(next, i int32) {
	e, after := w.entry(i), w.entry(next)
	e.prev, e.next = after.prev, next
	w.entry(after.prev).next = i
	after.prev = i
}

// unlink takes an entry out of its list.
func (w *Wheel[K, V]) unlink(i int32) {
	e := w.entry(i)
	w.entry(e.prev).next = e.next
	w.entry(e.next).prev = e.prev
	if e.prev == e.next { // Only the sentinel is left.
		w.vacate(e.prev)
	}
}

// vacate notes that a list has become empty.
func (w *Wheel[K, V]) vacate(list int32) {
	if list < late {
		w.occupied[list/slots] &^= 1 << (list % slots)
	}
}

func (w *Wheel[K, V]) empty(list int32) bool { return w.entry(list).next == list }
