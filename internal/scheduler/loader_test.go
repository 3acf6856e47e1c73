package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// The loop has no time to parse schedules: what it gets is compiled, whether it can be
// read or not, and an error is logged once.
func TestLoaderCompilesPlansBeforeTheLoopGetsThem(t *testing.T) {
	s := New(nil, Options{})
	var dues []store.Due
	for i := range 3*compilePage - 1 {
		spec := belfry.DefaultSpec()
		spec.Schedule = fmt.Sprintf("%d %d * * *", i%60, i/60)
		if i == 7 {
			spec.Schedule = "no rule at all"
		}
		text, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		dues = append(dues, store.Due{Plan: plan.Plan{JobID: belfry.NewID(time.Now())}, Spec: string(text)})
	}
	go (&loader{Scheduler: s}).sendDues(t.Context(), dues)
	for n := 0; n < len(dues); {
		for _, p := range <-s.loads {
			if p.subject == nil || (p.subject.subject == nil) != (n == 7) {
				t.Errorf("plan %d is compiled to %+v", n, p.subject)
			}
			if _, first, err := s.subjects.use(p.subject); first != (n == 7) || (err != nil) != (n == 7) {
				t.Errorf("plan %d: first %v, %v", n, first, err)
			}
			if _, first, _ := s.subjects.use(p.subject); first {
				t.Errorf("plan %d: its error is reported again", n)
			}
			n++
		}
	}
}

// planStore is a store that has nothing but plans, and counts how many it looked up.
type planStore struct {
	Store
	now      time.Time
	plans    []store.Planned
	jobs     map[belfry.ID]store.Due
	lookedUp int
}

func newPlanStore() *planStore {
	return &planStore{now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), jobs: map[belfry.ID]store.Due{}}
}

func (s *planStore) Now() time.Time { return s.now }
func (s *planStore) Shards() int    { return 2 }

func (s *planStore) Upcoming(_ context.Context, w store.Window) (page []store.Planned, err error) {
	for shard, after := range w.After {
		n := 0
		for _, p := range s.plans {
			if p.Plan.Shard == shard && n < w.Limit && p.Plan.NextAt.After(after.At) && !p.Plan.NextAt.After(w.Until) {
				page, n = append(page, p), n+1
			}
		}
	}
	return page, nil
}

func (s *planStore) PlansByJob(_ context.Context, jobs []belfry.ID) (dues []store.Due, err error) {
	s.lookedUp += len(jobs)
	for _, job := range jobs {
		dues = append(dues, s.jobs[job])
	}
	return dues, nil
}

// add adds n plans of jobs with one spec, a second apart, in alternating shards.
func (s *planStore) add(n int, schedule string, digest bool) {
	for range n {
		at := s.Now().Add(time.Duration(1+len(s.plans)) * time.Second)
		d := store.Due{Plan: plan.Plan{JobID: belfry.NewID(at), Shard: len(s.plans) % 2, Version: 1, NextAt: at, NominalAt: at},
			Spec: string(belfry.MustJSON(belfry.Spec{Type: belfry.TypeHTTP, Schedule: schedule}))}
		p := store.Planned{Plan: d.Plan}
		if digest {
			p.Digest = d.Digest()
		}
		s.plans = append(s.plans, p)
		s.jobs[d.Plan.JobID] = d
	}
}

// loadAllPlans loads the horizon of two shards, and returns the subject of each plan.
func loadAllPlans(t *testing.T, s *planStore) (l *loader, subjects map[belfry.ID]*compiledSubject) {
	l = newLoader(New(s, Options{}))
	l.loads = make(chan []loadedPlan, len(s.plans)+10)
	l.loaded = map[int]store.Position{0: {}, 1: {}}
	for range 100 {
		if l.load(t.Context()) > 0 {
			break
		}
	}
	close(l.loads)
	subjects = map[belfry.ID]*compiledSubject{}
	for page := range l.loads {
		for _, p := range page {
			subjects[p.JobID] = p.subject
		}
	}
	return l, subjects
}

// Jobs that are alike share what was parsed, and only one of them is read. Plans from
// before there were digests are read one by one.
func TestLoaderReadsOneJobOfThoseThatAreAlike(t *testing.T) {
	s := newPlanStore()
	s.add(100, "0 3 * * *", true)
	s.add(100, "0 4 * * *", true)
	s.add(100, "0 3 * * *", true)
	s.add(10, "0 3 * * *", false)
	_, subjects := loadAllPlans(t, s)
	distinct := map[*compiledSubject]int{}
	for _, p := range s.plans {
		if c := subjects[p.Plan.JobID]; c != nil && c.err == nil {
			distinct[c]++
		}
	}
	if len(subjects) != 310 || len(distinct) != 2 || s.lookedUp != 12 {
		t.Errorf("%d plans were loaded with %d subjects, and %d were looked up; want 310, 2 and 12", len(subjects), len(distinct), s.lookedUp)
	}
}

// A job that is edited while it is read for others does not keep them back.
func TestLoaderReadsOthersIfAJobChanges(t *testing.T) {
	s := newPlanStore()
	s.add(20, "0 3 * * *", true)
	for i := range 2 { // the first of each shard
		job := s.plans[i].Plan.JobID
		edited := s.jobs[job]
		edited.Revision++
		s.jobs[job] = edited
	}
	_, subjects := loadAllPlans(t, s)
	for i, p := range s.plans {
		c := subjects[p.Plan.JobID]
		if want := s.jobs[p.Plan.JobID].Revision; c == nil || c.subject.Revision != want {
			t.Errorf("plan %d is loaded with %+v, wants revision %d", i, c, want)
		}
	}
}

// All shards are loaded to the same instant, which moves on when half of the horizon has
// run out, in pages of a limited size.
func TestLoaderLoadsTheHorizonInPages(t *testing.T) {
	l := newLoader(New(nil, Options{}))
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	l.loaded = map[int]store.Position{3: {}, 4: {}}
	w, _ := l.nextWindow(now)
	if w.Until != now.Add(horizon) || len(w.After) != 2 || w.Limit != pageSize/2 {
		t.Errorf("the first window is %+v", w)
	}
	l.loaded[3] = w.End()
	l.loaded[4] = store.Position{At: now.Add(horizon - time.Second)}
	if w, _ = l.nextWindow(now.Add(time.Second)); w.Until != now.Add(horizon) || len(w.After) != 1 || w.Limit != pageSize {
		t.Errorf("with one shard left the window is %+v", w)
	}
	l.loaded[4] = w.End()
	if w, wait := l.nextWindow(now.Add(time.Second)); len(w.After) != 0 || wait != horizon/2-time.Second {
		t.Errorf("with no shard left the window is %+v, in %v", w, wait)
	}
	later := now.Add(horizon / 2)
	if w, _ = l.nextWindow(later); w.Until != later.Add(horizon) || len(w.After) != 2 || w.After[3] != l.loaded[3] {
		t.Errorf("after half of the horizon the window is %+v", w)
	}
}
