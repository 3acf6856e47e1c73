package wheel

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"slices"
	"time"
)

// A slab stores entries in chunks that never move, names them by index, and finds them by key.
//
// The index is a hash table whose chains run through the entries themselves. It grows by one bucket for each entry
// (linear hashing), so that no Set has to rehash everything and a bucket costs four bytes.
type slab[K comparable, V any] struct {
	chunks []*[chunkSize]entry[K, V]
	size   int32 // entries in chunks that are or were in use
	free   int32 // the first entry released and not used again; next leads to the others
	count  int   // entries that have a key

	seed    maphash.Seed
	buckets []int32 // the first entry of each chain
}

type entry[K comparable, V any] struct {
	key        K
	value      V
	at         int64
	prev, next int32 // the neighbours in its list
	chain      int32 // the next entry of the same bucket
}

const (
	none      = -1
	chunkBits = 10
	chunkSize = 1 << chunkBits
)

func (s *slab[K, V]) entry(i int32) *entry[K, V] {
	return &s.chunks[i>>chunkBits][i&(chunkSize-1)]
}

// extend returns the index of an entry that was never used.
func (s *slab[K, V]) extend() int32 {
	i := s.size
	if i%chunkSize == 0 {
		s.chunks = append(s.chunks, new([chunkSize]entry[K, V]))
	}
	s.size++
	return i
}

// find returns the index of the entry under key, or none.
func (s *slab[K, V]) find(key K) int32 {
	for i := *s.bucket(key); i != none; {
		e := s.entry(i)
		if e.key == key {
			return i
		}
		i = e.chain
	}
	return none
}

// insert returns the index of a new entry under a key that is not there yet; the entry is in no list.
func (s *slab[K, V]) insert(key K) int32 {
	i := s.free
	if i == none {
		i = s.extend()
	} else {
		s.free = s.entry(i).next
	}
	s.count++
	if s.count > len(s.buckets) {
		s.split()
	}
	s.entry(i).key = key
	s.enchain(i)
	return i
}

// release forgets an entry that is in no list.
func (s *slab[K, V]) release(i int32) {
	e := s.entry(i)
	link := s.bucket(e.key)
	for *link != i {
		link = &s.entry(*link).chain
	}
	*link = e.chain
	*e = entry[K, V]{next: s.free}
	s.free = i
	s.count--
}

// bucket returns the head of the chain to which key belongs: the one that as many low bits of its hash name as there
// are buckets for, or one bit less where that bucket is not there yet.
func (s *slab[K, V]) bucket(key K) *int32 {
	hash := maphash.Comparable(s.seed, key)
	last := uint64(len(s.buckets) - 1)
	width := bits.Len64(last)
	b := hash & (1<<width - 1)
	if b > last {
		b &= 1<<(width-1) - 1
	}
	return &s.buckets[b]
}

// split adds a bucket and shares out the chain of the one that stood in for it.
func (s *slab[K, V]) split() {
	added := uint64(len(s.buckets))
	old := added &^ (1 << (bits.Len64(added) - 1))
	i := s.buckets[old]
	s.buckets[old] = none
	s.buckets = append(s.buckets, none)
	for i != none {
		next := s.entry(i).chain
		s.enchain(i)
		i = next
	}
}

func (s *slab[K, V]) enchain(i int32) {
	e := s.entry(i)
	head := s.bucket(e.key)
	e.chain, *head = *head, i
}

// Trim removes up to n entries, the furthest ones, of those after an instant. It returns how many it removed, and the
// earliest of their instants. It goes through the slots of what it removes, and all of the last one.
func (w *Wheel[K, V]) Trim(n int, after time.Time) (removed int, earliest time.Time) {
	limit := nanos(after)
	first := int64(0)
	for level := levels - 1; level >= 0; level-- { // Lower levels come first in time.
		for occupied := w.occupied[level]; occupied != 0 && removed < n; {
			slot := bits.Len64(occupied) - 1
			occupied &^= 1 << slot
			for _, p := range w.furthest(int32(level*slots+slot), n-removed, limit) {
				if removed == 0 || p.at < first {
					first = p.at
				}
				w.unlink(p.index)
				w.release(p.index)
				removed++
			}
		}
	}
	if removed == 0 {
		return 0, time.Time{}
	}
	return removed, instant(first)
}

// furthest returns the n entries of a list that are furthest after an instant, or all that are after it if there are
// fewer.
func (w *Wheel[K, V]) furthest(list int32, n int, after int64) []position {
	var found []position
	for i := w.entry(list).next; i != list; i = w.entry(i).next {
		if at := w.entry(i).at; at > after {
			found = append(found, position{at: at, index: i})
		}
	}
	if len(found) > n {
		slices.SortFunc(found, func(a, b position) int { return cmp.Compare(b.at, a.at) })
		found = found[:n]
	}
	return found
}
