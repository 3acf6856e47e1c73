// Package share divides the slots of a worker among namespaces.
//
// A run cannot be preempted, so slots are kept free in advance: of its fair part of the slots,
// by weight, every namespace has half in reserve, one slot at least, and all reserves together
// have at most half of the slots. One slot of ten or more is for a namespace that is not known
// yet. What no reserve needs is for whoever has work, and goes to the namespace that holds the
// fewest slots for its weight. Without others a namespace may have all slots.
package share

// Party is a namespace that may need slots.
type Party struct {
	Weight int
	Held   int // slots that it has
	Demand int // runs that could start
	Grant  int // what Divide gives it: how many of them may
}

// Divide gives parties at most limit of the free slots of a worker. It says whether demand is
// left because of the reserves of others.
func Divide(slots, limit int, parties []Party) (heldBack bool) {
	free, weights, reserved := slots, 0, 0
	for i := range parties {
		p := &parties[i]
		p.Weight, p.Grant = max(p.Weight, 1), 0
		weights += p.Weight
		free -= p.Held
	}
	if len(parties) > 1 {
		reserved = newcomers(slots)
	}
	left := make([]int, len(parties)) // of reserves
	var hungry []int
	for i := range parties {
		p := &parties[i]
		left[i] = max(max(slots*p.Weight/(2*weights), 1)-p.Held, 0)
		reserved += left[i]
		if p.Demand > 0 {
			hungry = append(hungry, i)
		}
	}
	for free = max(free, limit); limit > 0 && len(hungry) > 0; {
		next := 0
		for k := range hungry {
			if a, b := &parties[hungry[k]], &parties[hungry[next]]; (a.Held+a.Grant+1)*b.Weight < (b.Held+b.Grant+1)*a.Weight {
				next = k
			}
		}
		i := hungry[next]
		p := &parties[i]
		switch {
		case left[i] > 0:
			left[i]--
			reserved--
		case free <= min(reserved, slots/2): // and so it stays: what is free falls at least as fast
			heldBack = true
			hungry = append(hungry[:next], hungry[next+1:]...)
			continue
		}
		p.Grant++
		free--
		limit--
		if p.Grant == p.Demand {
			hungry = append(hungry[:next], hungry[next+1:]...)
		}
	}
	return heldBack
}

// newcomers is how many slots are kept for namespaces that have no jobs yet.
func newcomers(slots int) int { return min(slots/10, 1) }
