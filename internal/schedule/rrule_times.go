package schedule

import (
	"math/bits"
	"slices"
)

// timeSet is a set of times of day, in seconds: every hour with every minute with
// every second of three sets.
type timeSet struct {
	hours, minutes, seconds uint64
	perHour, perMinute, len int
}

func newTimeSet(hours, minutes, seconds uint64) timeSet {
	s := timeSet{hours: hours, minutes: minutes, seconds: seconds}
	s.perMinute = bits.OnesCount64(seconds)
	s.perHour = s.perMinute * bits.OnesCount64(minutes)
	s.len = s.perHour * bits.OnesCount64(hours)
	return s
}

// has says whether a time is in the set.
func (s *timeSet) has(t int) bool {
	return s.hours>>(t/3600)&(s.minutes>>(t/60%60))&(s.seconds>>(t%60))&1 != 0
}

// next returns the first time that is not before the given one, or -1.
func (s *timeSet) next(from int) int {
	hour, minute, second := from/3600, from/60%60, from%60
	if s.hours>>hour&1 != 0 {
		if left := s.seconds >> second; left != 0 && s.minutes>>minute&1 != 0 {
			return from + bits.TrailingZeros64(left)
		}
		if left := s.minutes >> (minute + 1); left != 0 {
			minute += 1 + bits.TrailingZeros64(left)
			return (hour*60+minute)*60 + bits.TrailingZeros64(s.seconds)
		}
	}
	left := s.hours >> (hour + 1)
	if left == 0 {
		return -1
	}
	hour += 1 + bits.TrailingZeros64(left)
	return (hour*60+bits.TrailingZeros64(s.minutes))*60 + bits.TrailingZeros64(s.seconds)
}

// rank returns how many times of the set are before the given one.
func (s *timeSet) rank(t int) int {
	hour, minute, second := t/3600, t/60%60, t%60
	n := bits.OnesCount64(s.hours&(1<<hour-1)) * s.perHour
	if s.hours>>hour&1 != 0 {
		n += bits.OnesCount64(s.minutes&(1<<minute-1)) * s.perMinute
		if s.minutes>>minute&1 != 0 {
			n += bits.OnesCount64(s.seconds & (1<<second - 1))
		}
	}
	return n
}

// nth returns the n-th time, counted from 0.
func (s *timeSet) nth(n int) int {
	hour := nthBit(s.hours, n/s.perHour)
	minute := nthBit(s.minutes, n%s.perHour/s.perMinute)
	return (hour*60+minute)*60 + nthBit(s.seconds, n%s.perMinute)
}

// nthBit returns the n-th of the bits that are set, counted from 0.
func nthBit(set uint64, n int) int {
	for ; n > 0; n-- {
		set &= set - 1
	}
	return bits.TrailingZeros64(set)
}

// positions is what BYSETPOS chooses from the elements of a period, which are
// counted from 0 here.
type positions struct {
	front []int // in order
	back  []int // in order, to be added to the number of elements
}

func newPositions(setPos []int) *positions {
	if setPos == nil {
		return nil
	}
	p := &positions{}
	for _, n := range setPos {
		if n > 0 {
			p.front = append(p.front, n-1)
		} else {
			p.back = append(p.back, n)
		}
	}
	return p
}

// next returns the first chosen element from the n-th on, of so many in all, or
// -1. Without positions, every element is chosen.
func (p *positions) next(n, total int) int {
	if p != nil {
		chosen := total
		if i, _ := slices.BinarySearch(p.front, n); i < len(p.front) {
			chosen = p.front[i]
		}
		if i, _ := slices.BinarySearch(p.back, n-total); i < len(p.back) {
			chosen = min(chosen, total+p.back[i])
		}
		n = chosen
	}
	if n >= total {
		return -1
	}
	return n
}

// none says whether nothing is chosen of any number of elements up to the given
// one.
func (p *positions) none(most int) bool {
	return p != nil && (len(p.front) == 0 || p.front[0] >= most) && (len(p.back) == 0 || -p.back[len(p.back)-1] > most)
}

// len returns how many of so many elements are chosen.
func (p *positions) len(total int) (n int) {
	if p == nil {
		return total
	}
	for i := p.next(0, total); i >= 0; i = p.next(i+1, total) {
		n++
	}
	return n
}
