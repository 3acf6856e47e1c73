package share

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestDivide(t *testing.T) {
	for _, tt := range []struct {
		name         string
		slots, limit int
		parties      []Party
		want         []int
		heldBack     bool
	}{
		{"one namespace has all slots", 100, 100, []Party{{Demand: 10_000}}, []int{100}, false},
		{"one namespace gets no more than it asks for", 100, 100, []Party{{Demand: 7}}, []int{7}, false},
		{"the reserve of an idle namespace stays free", 100, 100, []Party{{Demand: 10_000}, {}}, []int{74, 0}, true},
		{"a namespace takes from its own reserve", 100, 26, []Party{{Held: 74, Demand: 10_000}, {Demand: 3}}, []int{0, 3}, true},
		{"both need all slots", 100, 100, []Party{{Demand: 10_000}, {Demand: 10_000}}, []int{50, 49}, true},
		{"both need all slots, and weigh 1 and 3", 20, 20, []Party{{Weight: 1, Demand: 10_000}, {Weight: 3, Demand: 10_000}}, []int{5, 14}, true},
		{"a slot that is freed goes to who has fewer for its weight", 20, 2, []Party{{Weight: 1, Held: 5, Demand: 9}, {Weight: 3, Held: 13, Demand: 9}}, []int{0, 1}, true},
		{"a reserve is one slot at least", 20, 20, []Party{{Weight: 1000, Demand: 99}, {Weight: 1}}, []int{18, 0}, true},
		{"all reserves together are half of the slots", 10, 10, append([]Party{{Demand: 99}}, make([]Party, 50)...), append([]int{5}, make([]int, 50)...), true},
		{"a namespace without a slot gets one of many that are in reserve", 10, 5, append([]Party{{Held: 5, Demand: 99}, {Demand: 2}}, make([]Party, 50)...), append([]int{0, 1}, make([]int, 50)...), true},
		{"two slots", 2, 2, []Party{{Demand: 9}, {}}, []int{1, 0}, true},
		{"one slot is for whoever comes first", 1, 1, []Party{{Demand: 9}, {}}, []int{1, 0}, false},
		{"a new namespace gets the slot that was kept for it", 10, 1, []Party{{Held: 5, Demand: 9}, {Held: 4, Demand: 9}, {Demand: 2}}, []int{0, 0, 1}, false},
		{"a new namespace finds no slot", 9, 0, []Party{{Held: 9, Demand: 9}, {Demand: 1}}, []int{0, 0}, false},
		{"slots that nobody counts", 10, 4, []Party{{Held: 10, Demand: 9}}, []int{4}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			heldBack := Divide(tt.slots, tt.limit, tt.parties)
			if got := grants(tt.parties); !slices.Equal(got, tt.want) || heldBack != tt.heldBack {
				t.Errorf("gives %v, held back: %v; want %v and %v", got, heldBack, tt.want, tt.heldBack)
			}
		})
	}
}

func grants(parties []Party) (list []int) {
	for _, p := range parties {
		list = append(list, p.Grant)
	}
	return list
}

// TestDivideKeepsReserves fills and empties the slots of a worker in a random order. Nobody
// ever waits for a slot of its own reserve, and nothing waits beside free slots that no
// reserve needs.
func TestDivideKeepsReserves(t *testing.T) {
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		slots := 1 + rng.IntN(40)
		parties := make([]Party, 1+rng.IntN(6))
		weights, spare := 0, newcomers(slots)
		if len(parties) == 1 {
			spare = 0
		}
		for i := range parties {
			parties[i].Weight = 1 + rng.IntN(4)
			weights += parties[i].Weight
		}
		reserve := func(p *Party) int { return max(slots*p.Weight/(2*weights), 1) }
		for range 40 {
			free := slots
			for i := range parties {
				p := &parties[i]
				p.Held -= rng.IntN(p.Held + 1)
				if p.Demand = rng.IntN(2 * slots); rng.IntN(3) == 0 {
					p.Demand = 0
				}
				free -= p.Held
			}
			limit := free
			if rng.IntN(2) == 0 {
				limit = rng.IntN(free + 1)
			}
			heldBack := Divide(slots, limit, parties)
			granted, left, needed := 0, 0, 0 // all reserves that are left, and what they are needed for now
			for i := range parties {
				p := &parties[i]
				if p.Grant < 0 || p.Grant > p.Demand {
					t.Fatalf("seed %d: a grant of %d for a demand of %d", seed, p.Grant, p.Demand)
				}
				granted += p.Grant
				p.Held += p.Grant
				left += max(reserve(p)-p.Held, 0)
				needed += max(min(reserve(p)-p.Held, p.Demand-p.Grant), 0)
			}
			unmet := slices.ContainsFunc(parties, func(p Party) bool { return p.Grant < p.Demand })
			switch free -= granted; {
			case granted > limit:
				t.Fatalf("seed %d: %d of %d slots are given", seed, granted, limit)
			case needed > 0 && granted < limit:
				t.Fatalf("seed %d: somebody waits for its reserve beside %d free slots: %+v", seed, limit-granted, parties)
			case unmet && granted < limit && free > min(left+spare, slots/2):
				t.Fatalf("seed %d: work waits beside %d free slots, and %d are in reserve: %+v", seed, free, left, parties)
			case unmet && granted < limit && !heldBack:
				t.Fatalf("seed %d: nobody is told that work waits", seed)
			case len(parties) <= slots/2 && limit+granted > 0 && free < 0:
				t.Fatalf("seed %d: %d slots are free", seed, free)
			}
			if total := sumReserves(parties, reserve); total <= slots/2 && free < left {
				t.Fatalf("seed %d: %d slots are free, and reserves need %d: %+v", seed, free, left, parties)
			}
		}
	}
}

func sumReserves(parties []Party, reserve func(*Party) int) (n int) {
	for i := range parties {
		n += reserve(&parties[i])
	}
	return n
}

// TestDivideByWeight has two namespaces with more work than slots run short runs: they
// complete in the ratio of their weights.
func TestDivideByWeight(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	parties := []Party{{Weight: 1}, {Weight: 3}}
	done := make([]int, 2)
	for range 4000 {
		for i := range parties {
			p := &parties[i]
			p.Held += p.Grant
			ended := 0
			for range p.Held {
				if rng.IntN(4) == 0 {
					ended++
				}
			}
			p.Held -= ended
			done[i] += ended
			p.Demand = 1000
		}
		Divide(41, 41-parties[0].Held-parties[1].Held, parties)
	}
	if ratio := float64(done[1]) / float64(done[0]); ratio < 2.8 || ratio > 3.2 {
		t.Errorf("%d and %d runs were completed, %.2f times as many with 3 times the weight", done[0], done[1], ratio)
	}
}
