package store_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

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
	reached := map[int]store.Position{}
	for _, p := range found {
		at, before := store.Position{At: p.Plan.NextAt, ID: p.Plan.JobID}, reached[p.Plan.Shard]
		if cmp.Or(at.At.Compare(before.At), at.ID.Compare(before.ID)) <= 0 {
			t.Errorf("the plan at %v comes after the one at %v", at, before)
		}
		reached[p.Plan.Shard] = at
	}
	return jobsInOrder(found)
}

// jobsInOrder lists the jobs of plans, earliest first.
func jobsInOrder(plans []store.Planned) (jobs []belfry.ID) {
	slices.SortFunc(plans, func(a, b store.Planned) int {
		return cmp.Or(a.Plan.NextAt.Compare(b.Plan.NextAt), a.Plan.JobID.Compare(b.Plan.JobID))
	})
	for _, p := range plans {
		jobs = append(jobs, p.Plan.JobID)
	}
	return jobs
}

func TestUpcomingHasAllThatADecisionNeeds(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		given := f.job(f.minutesAgo(5), withNamespace("ours"), withTimeout(77))
		f.createJobs(t, given)
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
		other := f.job(f.minutesAgo(5), withNamespace("ours"), withTimeout(78))
		f.createJobs(t, other)
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
			f.createJobs(t, job)
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
			w := store.AllUntil(tt.until, f.allShards(), 10)
			for shard := range w.After {
				w.After[shard] = store.Window{Until: tt.after}.End()
			}
			got := f.upcoming(t, w)
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
			f.createJobs(t, job)
			want[job.Plan.Shard] = append(want[job.Plan.Shard], job.Job.ID)
		}
		for shard := range f.Shards() {
			if got := f.upcoming(t, store.AllUntil(f.Now(), []int{shard}, 100)); !slices.Equal(got, want[shard]) {
				t.Errorf("shard %d has %v, wants %v", shard, got, want[shard])
			}
		}
		if got := f.upcoming(t, store.AllUntil(f.Now(), []int{0, 3}, 100)); len(got) != len(want[0])+len(want[3]) {
			t.Errorf("two shards have %d plans, wants %d", len(got), len(want[0])+len(want[3]))
		}
		if got := f.upcoming(t, store.Window{Until: f.Now(), Limit: 100}); len(got) != 0 {
			t.Errorf("no shard has %d plans", len(got))
		}
	})
}

// A caller that continues after the last plan of a page sees every plan once, in order,
// also where several have the same instant.
func TestUpcomingPages(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		at := f.minutesAgo(60)
		for i, ties := range []int{1, 6, 2, 1} {
			for range ties {
				f.createJobs(t, f.job(at.Add(time.Duration(i)*time.Minute)))
			}
		}
		paused := f.job(f.minutesAgo(60))
		paused.Job.State, paused.Plan.NextAt = belfry.JobPaused, time.Time{}
		f.createJobs(t, paused)
		want := f.upcoming(t, store.AllUntil(f.Now(), f.allShards(), 100))
		if len(want) != 10 {
			t.Fatalf("there are %d plans, wants 10", len(want))
		}
		for limit := 1; limit <= 11; limit++ {
			var got []store.Planned
			for w := store.AllUntil(f.Now(), f.allShards(), limit); len(w.After) > 0; {
				page, err := f.Upcoming(ctx, w)
				if err != nil || len(page) > limit*f.Shards() {
					t.Fatalf("a page has %d plans: %v", len(page), err)
				}
				got = append(got, page...)
				end := w.End()
				w.After = w.Reached(page)
				maps.DeleteFunc(w.After, func(_ int, at store.Position) bool { return at == end })
			}
			if jobs := jobsInOrder(got); !slices.Equal(jobs, want) {
				t.Errorf("pages of %d plans of a shard have %v, wants %v", limit, jobs, want)
			}
		}
	})
}

func TestPlansByJob(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		var ids []belfry.ID
		for range 5 {
			ids = append(ids, f.createJob(t, 5).ID)
		}
		f.fire(t, f.step(t, f.getJob(t, belfry.Job{ID: ids[1], Namespace: belfry.DefaultNamespace})))
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

// zoneUpdatePlans scans the plans of some shards that are older than a release.
func (f *fixture) zoneUpdatePlans(t tb, shards []int, release string, limit int) (found []store.Due) {
	t.Helper()
	var after belfry.ID
	for {
		due, next, err := f.PlansForZoneUpdate(ctx, shards, release, after, limit)
		if err != nil || len(due) > limit {
			t.Fatalf("scan %d plans for a zone update: got %d, %v", limit, len(due), err)
		}
		if found = append(found, due...); next.IsZero() {
			return found
		}
		if next.Compare(after) <= 0 {
			t.Fatalf("after %s the scan continues after %s", after, next)
		}
		after = next
	}
}

func TestPlansForZoneUpdateFindsPlansOfAnOlderRelease(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		made := func(release string, change func(*store.NewJob), changes ...func(*belfry.Job)) belfry.Job {
			job := f.job(f.minutesAgo(-600), changes...)
			job.Plan.ZoneVersion = release
			if change != nil {
				change(&job)
			}
			f.createJobs(t, job)
			return job.Job
		}
		var want []belfry.ID
		for i := range 12 {
			release := []string{"2024b", "", "2025a", "1999z"}[i%4]
			job := made(release, nil, withName(fmt.Sprint("report ", i)), withKeys("{{name}}-{{scheduled_at}}"))
			want = append(want, job.ID)
			made("2025b", nil)
			made("2026a", nil)
			made("2025c", nil)
		}
		paused := made("2024b", func(j *store.NewJob) { j.Job.State, j.Plan.NextAt = belfry.JobPaused, time.Time{} })
		want = append(want, paused.ID)
		made("2024b", func(j *store.NewJob) { j.Plan.NextAt, j.Plan.NominalAt = time.Time{}, time.Time{} })
		gone := made("2024b", nil)
		f.edit(t, gone, deleteJob(t))
		f.exec(t, `UPDATE plans SET nominal_at = ? WHERE job_id = ?`, f.minutesAgo(-600), gone.ID)

		for _, limit := range []int{1, 2, 3, 13, 14, 1000} {
			var got []belfry.ID
			for _, d := range f.zoneUpdatePlans(t, f.allShards(), "2025b", limit) {
				got = append(got, d.Plan.JobID)
				alone, err := f.PlansByJob(ctx, []belfry.ID{d.Plan.JobID})
				if err != nil || len(alone) != 1 || !gocmp.Equal(alone[0], d, asStored) {
					t.Errorf("found %+v, alone it is %+v (%v)", d, alone, err)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("by %d there are %v, wants %v", limit, got, want)
			}
		}
		n := 0
		for shard := range f.Shards() {
			for _, d := range f.zoneUpdatePlans(t, []int{shard}, "2025b", 2) {
				if n++; d.Plan.Shard != shard {
					t.Errorf("a plan of shard %d is among those of %d", d.Plan.Shard, shard)
				}
			}
		}
		if none := f.zoneUpdatePlans(t, nil, "2025b", 10); n != len(want) || len(none) != 0 {
			t.Errorf("the shards have %d, no shard has %d", n, len(none))
		}
		if none := f.zoneUpdatePlans(t, f.allShards(), "", 10); len(none) != 0 {
			t.Errorf("%d plans are older than everything", len(none))
		}
		if due, next, err := f.PlansForZoneUpdate(ctx, f.allShards(), "2025b", want[3], 0); len(due) != 0 || next != want[3] || err != nil {
			t.Errorf("asked for none, got %d, to go on after %s, %v", len(due), next, err)
		}
	})
}
