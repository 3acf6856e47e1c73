package scheduler

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// round runs a round of a search, and returns the jobs that the loop would compare.
func (s *planStore) round(t *testing.T, o *overdueSearch, shards ...int) (found []belfry.ID) {
	t.Helper()
	o.overdue = make(chan []store.Planned, 100)
	if err := o.round(t.Context(), shards); err != nil {
		t.Fatal(err)
	}
	close(o.overdue)
	for page := range o.overdue {
		for _, p := range page {
			found = append(found, p.Plan.JobID)
		}
	}
	return found
}

// addOverdue adds a plan that is due now and overdue after a second.
func (s *planStore) addOverdue(shard int) belfry.ID {
	s.now = s.now.Add(time.Millisecond)
	id := belfry.NewID(s.now)
	s.plans = append(s.plans, store.Planned{Plan: plan.Plan{JobID: id, Shard: shard, Version: 1, NextAt: s.now}})
	return id
}

// A round reads a limited number of plans, all are read after some rounds, again and
// again, and one that has become due lately is read in the next round.
func TestOverdueSearchCostsTheSameWhateverTheBacklog(t *testing.T) {
	s := newPlanStore()
	for i := range 200 {
		s.addOverdue(i % 2)
	}
	s.now = s.now.Add(time.Second)
	o := newOverdueSearch(New(s, Options{}))
	o.page = 20
	for cycle := range 3 {
		seen := map[belfry.ID]bool{}
		for range 12 { // one more reaches the end, and the plans grow by some
			late := s.addOverdue(0)
			s.now = s.now.Add(time.Second)
			found := s.round(t, o, 0, 1)
			if len(found) > 2*o.page {
				t.Fatalf("a round reads %d plans", len(found))
			}
			here := map[belfry.ID]bool{}
			for _, job := range found {
				seen[job], here[job] = true, true
			}
			if cycle > 0 && !here[late] {
				t.Errorf("a plan that has become due is not read in the next round")
			}
		}
		for i, p := range s.plans[:200] {
			if !seen[p.Plan.JobID] {
				t.Errorf("in cycle %d plan %d was not read", cycle, i)
			}
		}
	}
}

// The nodes of a cluster together read as many plans as one node alone.
func TestOverdueSearchReadsAsLargeAPartAsTheNodeOwns(t *testing.T) {
	s := newPlanStore()
	for i := range 200 {
		s.addOverdue(i % 2)
	}
	s.now = s.now.Add(time.Second)
	for _, shards := range [][]int{{0, 1}, {1}} {
		o := newOverdueSearch(New(s, Options{}))
		o.page = 20
		if found := s.round(t, o, shards...); len(found) != 10*len(shards) {
			t.Errorf("%d plans of %d shards were read", len(found), len(shards))
		}
	}
}

// A few plans are read in every round, and each of them once.
func TestOverdueSearchReadsFewPlansInEveryRound(t *testing.T) {
	s := newPlanStore()
	for i := range 10 {
		s.addOverdue(i % 2)
	}
	o := newOverdueSearch(New(s, Options{}))
	for range 3 {
		s.addOverdue(0)
		s.now = s.now.Add(time.Second)
		if found := s.round(t, o, 0, 1); len(found) != len(s.plans) {
			t.Errorf("%d of %d plans were read", len(found), len(s.plans))
		}
	}
	if found := s.round(t, o); len(found) != 0 || len(o.all) != 0 || len(o.recent) != 0 {
		t.Errorf("without a shard %d plans were read, and positions of %d shards are kept", len(found), len(o.all))
	}
}

func TestOverdueRestIsLongerTheFewerShardsANodeOwns(t *testing.T) {
	for _, tt := range []struct {
		took          time.Duration
		owned, shards int
		want          time.Duration
	}{
		{10 * time.Millisecond, 60, 60, 500 * time.Millisecond},
		{10 * time.Millisecond, 20, 60, 1500 * time.Millisecond},
		{10 * time.Millisecond, 1, 60, 10 * time.Second},
		{10 * time.Millisecond, 0, 60, 10 * time.Second},
		{time.Second, 60, 60, 50 * time.Second},
		{time.Second, 20, 60, 50 * time.Second},
		{0, 20, 60, 0},
	} {
		if got := restAfter(tt.took, tt.owned, tt.shards); got != tt.want {
			t.Errorf("after %v with %d of %d shards a node rests %v, wants %v", tt.took, tt.owned, tt.shards, got, tt.want)
		}
	}
}
