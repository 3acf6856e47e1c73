package wheel

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"
)

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
