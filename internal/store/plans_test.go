package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// upcoming gives the jobs of a window, in order.
func (f *fixture) upcoming(t tb, w store.Window) []belfry.ID {
	t.Helper()
	found, err := f.Upcoming(ctx, w)
	if err != nil {
		t.Fatalf("look at window %+v: %v", w, err)
	}
	jobs := make([]belfry.ID, len(found))
	for i, d := range found {
		jobs[i] = d.Plan.JobID
		if i > 0 && d.Plan.NextAt.Before(found[i-1].Plan.NextAt) {
			t.Errorf("the plan at %v comes after the one at %v", d.Plan.NextAt, found[i-1].Plan.NextAt)
		}
	}
	return jobs
}

func TestUpcomingTellsAllThatADecisionNeeds(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		given := f.job(f.minutesAgo(5), inNamespace("ours"), withTimeout(77))
		f.create(t, given)
		job := f.edit(t, given.Job, revise(t, withTimeout(78)))
		f.fire(t, f.step(t, job))
		found := f.due(t)
		if len(found) != 1 {
			t.Fatalf("%d plans are due, wants 1", len(found))
		}
		d := found[0]
		if d.Namespace != "ours" || d.Revision != 2 || d.Plan != f.plan(t, job.ID) {
			t.Errorf("found %+v, stored is %+v", d, f.plan(t, job.ID))
		}
		want := plan.Plan{
			JobID: job.ID, Shard: given.Plan.Shard, Version: 3, NextAt: given.Plan.NextAt.Add(time.Minute), NominalAt: given.Plan.NextAt.Add(time.Minute),
			FiredFor: given.Plan.NextAt, RunsMade: 1, ZoneVersion: given.Plan.ZoneVersion,
		}
		if d.Plan != want {
			t.Errorf("the plan is %+v, wants %+v", d.Plan, want)
		}
		if s := f.decide(t, found)[0]; s.Policy.Spec != job.Spec {
			t.Errorf("the spec is %+v, wants %+v", s.Policy.Spec, job.Spec)
		}
		other := f.job(f.minutesAgo(5), inNamespace("ours"), withTimeout(78))
		f.create(t, other)
		if found := f.due(t); len(found) != 2 || found[0].Spec != found[1].Spec {
			t.Errorf("equal specs have different texts: %+v", found)
		}
	})
}

func TestUpcomingKeepsToItsWindow(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		at := f.minutesAgo(0)
		instants := []time.Time{at.Add(-time.Hour), at, at.Add(time.Microsecond), at.Add(time.Minute), at.Add(time.Hour)}
		var jobs []belfry.ID
		for _, instant := range instants {
			job := f.job(instant)
			f.create(t, job)
			jobs = append(jobs, job.Job.ID)
		}
		for _, tt := range []struct {
			name         string
			after, until time.Time
			want         []belfry.ID
		}{
			{"everything until an instant, that included", time.Time{}, at, jobs[:2]},
			{"nothing at the instant after which it starts", at, at.Add(time.Minute), jobs[2:4]},
			{"a microsecond counts", at.Add(-time.Microsecond), at, jobs[1:2]},
			{"an empty window", at, at, nil},
			{"a window that ends before it starts", at.Add(time.Hour), at, nil},
			{"everything", time.Time{}, at.Add(24 * time.Hour), jobs},
		} {
			got := f.upcoming(t, store.Window{Shards: f.all(), After: tt.after, Until: tt.until, Limit: 10})
			if !slices.Equal(got, tt.want) {
				t.Errorf("%s: got %v, wants %v", tt.name, got, tt.want)
			}
		}
	})
}

func TestUpcomingKeepsToItsShards(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		want := map[int][]belfry.ID{}
		for i := range 24 {
			job := f.job(f.minutesAgo(100 - i))
			f.create(t, job)
			want[job.Plan.Shard] = append(want[job.Plan.Shard], job.Job.ID)
		}
		for shard := range f.Shards() {
			if got := f.upcoming(t, store.Window{Shards: []int{shard}, Until: f.Now(), Limit: 100}); !slices.Equal(got, want[shard]) {
				t.Errorf("shard %d has %v, wants %v", shard, got, want[shard])
			}
		}
		if got := f.upcoming(t, store.Window{Shards: []int{0, 3}, Until: f.Now(), Limit: 100}); len(got) != len(want[0])+len(want[3]) {
			t.Errorf("two shards have %d plans, wants %d", len(got), len(want[0])+len(want[3]))
		}
		if got := f.upcoming(t, store.Window{Until: f.Now(), Limit: 100}); len(got) != 0 {
			t.Errorf("no shard has %d plans", len(got))
		}
	})
}

func TestUpcomingNeverSplitsAnInstant(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		at := f.minutesAgo(60)
		for i, ties := range []int{1, 6, 2, 1} {
			for range ties {
				f.create(t, f.job(at.Add(time.Duration(i)*time.Minute)))
			}
		}
		for limit, want := range map[int]int{1: 1, 2: 7, 5: 7, 7: 7, 8: 9, 9: 9, 10: 10, 11: 10} {
			if got := f.upcoming(t, store.Window{Shards: f.all(), Until: f.Now(), Limit: limit}); len(got) != want {
				t.Errorf("with limit %d there are %d plans, wants %d", limit, len(got), want)
			}
		}
		// A caller that goes on after the last instant sees everything once.
		seen := map[belfry.ID]bool{}
		w := store.Window{Shards: f.all(), Until: f.Now(), Limit: 2}
		for range 10 {
			found, err := f.Upcoming(ctx, w)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range found {
				if seen[d.Plan.JobID] {
					t.Errorf("job %s came twice", d.Plan.JobID)
				}
				seen[d.Plan.JobID] = true
				w.After = d.Plan.NextAt
			}
			if len(found) < w.Limit {
				break
			}
		}
		if len(seen) != 10 {
			t.Errorf("pages had %d plans, wants 10", len(seen))
		}
	})
}

func TestOverdueGivesTheEarliestFirst(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		var jobs []store.NewJob
		for _, minutes := range []int{50, 40, 40, 30, 20} {
			jobs = append(jobs, f.job(f.minutesAgo(minutes)))
		}
		paused := f.job(f.minutesAgo(60))
		paused.Job.State, paused.Plan.NextAt = belfry.JobPaused, time.Time{}
		f.create(t, append(jobs, paused)...)
		for _, tt := range []struct {
			before, limit int
			want          []int
		}{{20, 10, []int{50, 40, 40, 30}}, {19, 10, []int{50, 40, 40, 30, 20}}, {0, 2, []int{50, 40}}, {0, 1, []int{50}}, {50, 5, nil}} {
			found, err := f.Overdue(ctx, f.all(), f.minutesAgo(tt.before), tt.limit)
			var want []time.Time
			for _, minutes := range tt.want {
				want = append(want, f.minutesAgo(minutes))
			}
			if err != nil || !slices.EqualFunc(found, want, func(d store.Due, at time.Time) bool { return d.Plan.NextAt.Equal(at) }) {
				t.Errorf("before %d minutes ago, at most %d: %+v (%v), wants %v", tt.before, tt.limit, found, err, want)
			}
			for _, d := range found {
				if d.Plan != f.plan(t, d.Plan.JobID) || d.Namespace != belfry.DefaultNamespace || d.Revision != 1 || d.Spec == "" {
					t.Errorf("found %+v", d)
				}
			}
		}
		for shard := range f.Shards() {
			found, err := f.Overdue(ctx, []int{shard}, f.Now(), 10)
			for _, d := range found {
				if d.Plan.Shard != shard {
					t.Errorf("shard %d has a plan of shard %d (%v)", shard, d.Plan.Shard, err)
				}
			}
		}
	})
}

func TestFindGivesThePlansOfJobs(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		var ids []belfry.ID
		for range 5 {
			ids = append(ids, f.created(t, 5).ID)
		}
		f.fire(t, f.step(t, f.found(t, belfry.Job{ID: ids[1], Namespace: belfry.DefaultNamespace})))
		found, err := f.PlansByJob(ctx, []belfry.ID{ids[3], newID(), ids[1]})
		if err != nil || len(found) != 2 {
			t.Fatalf("found %d plans (%v), wants 2", len(found), err)
		}
		for _, d := range found {
			if d.Plan != f.plan(t, d.Plan.JobID) || d.Spec == "" || d.Revision != 1 || d.Namespace != belfry.DefaultNamespace || d.Plan.JobID != ids[3] && d.Plan.JobID != ids[1] {
				t.Errorf("found %+v", d)
			}
		}
		if found, err := f.PlansByJob(ctx, nil); err != nil || len(found) != 0 {
			t.Errorf("found %d plans of no job (%v)", len(found), err)
		}
	})
}

func TestATriggerIsAWishUntilItIsFired(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.created(t, -60, inNamespace("ours"), parallel)
		other := f.created(t, -60)
		first := f.trigger(t, job, `"mine"`)
		second := f.trigger(t, other, "")
		third := f.trigger(t, job, "")
		if err := f.Trigger(ctx, []plan.Trigger{first}, nil); err != nil {
			t.Errorf("trigger again: %v", err)
		}
		wishes := f.wishes(t)
		if len(wishes) != 3 {
			t.Fatalf("there are %d triggers, wants 3", len(wishes))
		}
		for i, want := range []plan.Trigger{first, second, third} {
			got := wishes[i].Trigger
			if got.ID != want.ID || got.JobID != want.JobID || got.Namespace != want.Namespace || got.Shard != want.Shard ||
				got.Kind != want.Kind || !got.At.Equal(want.At) || string(got.Payload) != string(want.Payload) {
				t.Errorf("trigger %d is %+v, wants %+v", i, got, want)
			}
		}
		if d := wishes[0].Due; d.Plan != f.plan(t, job.ID) || d.Namespace != "ours" || d.Revision != 1 || d.Spec == "" {
			t.Errorf("the trigger came with %+v", d)
		}
		if found, err := f.PendingTriggers(ctx, f.all(), 2); err != nil || len(found) != 2 || found[0].Trigger.ID != first.ID {
			t.Errorf("with limit 2: %+v (%v)", found, err)
		}
		for shard := range f.Shards() {
			found, err := f.PendingTriggers(ctx, []int{shard}, 10)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range found {
				if w.Trigger.Shard != shard || w.Due.Plan.Shard != shard {
					t.Errorf("shard %d has a trigger of shard %d", shard, w.Trigger.Shard)
				}
			}
		}
		wantCode(t, "trigger what is not there", f.Trigger(ctx, f.one(belfry.Job{ID: newID(), Namespace: "ours"}), nil), belfry.NotFound)
	})
}

func TestPromoteMakesDueRetriesReady(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.worker(t)
		const size = 8
		for range size {
			f.created(t, 5)
		}
		f.fireDue(t)
		byShard := map[int]int{}
		for _, run := range f.claim(t, worker, size) {
			f.accepted(t, run, belfry.OutcomeFailed)
			byShard[belfry.ShardOf(run.JobID, f.Shards())]++
		}
		soonest := read(t, f, scanTime, `SELECT min(ready_at) FROM runs WHERE state = 'retry'`)[0]
		promote := func(shards []int, limit, want int) time.Time {
			t.Helper()
			n, next, err := f.Promote(ctx, shards, limit)
			if err != nil || n != want {
				t.Fatalf("promoted %d (%v), wants %d", n, err, want)
			}
			return next
		}
		if next := promote(f.all(), 10, 0); !next.Equal(soonest) {
			t.Errorf("the next retry is due at %v, wants %v", next, soonest)
		}
		if f.count(t, `SELECT count(*) FROM runs WHERE state = 'retry'`) != size || len(f.claim(t, worker, size)) != 0 {
			t.Error("retries were promoted before they were due")
		}
		f.backdate(t, time.Hour, "runs", "ready_at", "")
		var shard int
		for shard = range byShard {
			break
		}
		if next := promote([]int{shard}, size, byShard[shard]); !next.IsZero() {
			t.Errorf("another retry of shard %d is due at %v, wants none", shard, next)
		}
		left := size - byShard[shard]
		if next := promote(f.all(), left-1, left-1); next.IsZero() || next.After(f.Now()) {
			t.Errorf("one due retry is left, and the next is said to be due at %v", next)
		}
		if next := promote(f.all(), 10, 1); !next.IsZero() {
			t.Errorf("none is left, and the next is said to be due at %v", next)
		}
		promote(f.all(), 10, 0)
		promote(nil, 10, 0)
		again := f.claim(t, worker, size+1)
		if len(again) != size {
			t.Fatalf("claimed %d runs after the promotion, wants %d", len(again), size)
		}
		for _, run := range again {
			if run.Attempt != 2 {
				t.Errorf("a promoted run is at attempt %d, wants 2", run.Attempt)
			}
		}
	})
}

func TestReadyCountsUpToTheLimitOfALane(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		if got, err := f.CountReady(ctx, 10); err != nil || len(got) != 0 {
			t.Errorf("an empty store has %v (%v) ready", got, err)
		}
		for queue, size := range map[string]int{"small": 2, "large": 7} {
			for i := range size {
				f.created(t, 5, inQueue(queue), named(fmt.Sprint(queue, i)))
			}
		}
		f.fireDue(t)
		for limit, want := range map[int]map[string]int{
			100: {"small/http": 2, "large/http": 7},
			5:   {"small/http": 2, "large/http": 5},
			1:   {"small/http": 1, "large/http": 1},
		} {
			got, err := f.CountReady(ctx, limit)
			if err != nil || got["small/http"] != want["small/http"] || got["large/http"] != want["large/http"] || len(got) != 2 {
				t.Errorf("with limit %d: %v (%v), wants %v", limit, got, err, want)
			}
		}
		f.claim(t, f.worker(t), 2, "small/http")
		if got, err := f.CountReady(ctx, 100); err != nil || got["small/http"] != 0 || got["large/http"] != 7 {
			t.Errorf("after a claim: %v (%v)", got, err)
		}
	})
}
