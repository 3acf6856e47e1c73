package store_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

func (f *fixture) namespacePlans(t *testing.T, namespace, queue string, limit int) (jobs []belfry.ID, complete bool) {
	t.Helper()
	plans, complete, err := f.NamespacePlans(ctx, namespace, queue, limit)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range plans {
		jobs = append(jobs, p.Plan.JobID)
	}
	slices.SortFunc(jobs, belfry.ID.Compare)
	return jobs, complete
}

func TestNamespacePlans(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		a, b := f.job(f.minutesAgo(-5), withNamespace("ours")), f.job(f.minutesAgo(3), withNamespace("ours"), withQueue("mail"))
		paused := f.job(time.Time{}, withNamespace("ours"))
		theirs := f.job(f.minutesAgo(-5), withNamespace("theirs"))
		f.createJobs(t, a, b, paused, theirs)
		plans, complete, err := f.NamespacePlans(ctx, "ours", "", 3)
		if err != nil || !complete || len(plans) != 2 {
			t.Fatalf("got %+v, complete %v (%v)", plans, complete, err)
		}
		i := slices.IndexFunc(plans, func(p store.Planned) bool { return p.Plan.JobID == b.Job.ID })
		if diff := cmp.Diff(b.Plan, plans[i].Plan); diff != "" {
			t.Error(diff)
		}
		dues, err := f.PlansByJob(ctx, []belfry.ID{b.Job.ID})
		if err != nil || dues[0].Digest() != plans[i].Digest {
			t.Errorf("the digest is %x, want that of %+v (%v)", plans[i].Digest, dues, err)
		}
		if jobs, complete := f.namespacePlans(t, "ours", "", 2); complete || len(jobs) != 0 {
			t.Errorf("above the limit: %v, complete %v", jobs, complete)
		}
		if jobs, complete := f.namespacePlans(t, "ours", "mail", 1); !complete || !slices.Equal(jobs, []belfry.ID{b.Job.ID}) {
			t.Errorf("of a queue: %v, complete %v", jobs, complete)
		}
		if jobs, complete := f.namespacePlans(t, "ours", belfry.DefaultQueue, 3); !complete || !slices.Contains(jobs, a.Job.ID) {
			t.Errorf("of the default queue: %v, complete %v", jobs, complete)
		}
		if jobs, complete := f.namespacePlans(t, "nobody", "", 1); !complete || len(jobs) != 0 {
			t.Errorf("of nobody: %v, complete %v", jobs, complete)
		}
	})
}

// Every plan has the same chance, whenever its job was created, and the weights add up.
func TestSamplePlans(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		if plans, _, err := f.SamplePlans(ctx, 100); err != nil || len(plans) != 0 {
			t.Fatalf("of an empty store: %d plans (%v)", len(plans), err)
		}
		const jobs, size, rounds = 3000, 400, 10
		var created []store.NewJob
		for i := range jobs {
			at := f.minutesAgo(-i)
			if i%3 == 0 {
				at = time.Time{} // paused
			}
			created = append(created, f.job(at))
		}
		f.createJobs(t, created...)
		middle := created[jobs/2].Job.ID
		check := func(want float64) {
			t.Helper()
			drawn, early, estimate := 0, 0, 0.0
			for range rounds {
				plans, weight, err := f.SamplePlans(ctx, size)
				if err != nil || len(plans) < size/8 || len(plans) > 8*size {
					t.Fatalf("drew %d plans (%v), want about %d", len(plans), err, size)
				}
				for _, p := range plans {
					if p.Plan.NextAt.IsZero() || p.Digest == (store.Digest{}) {
						t.Fatalf("drew %+v", p)
					}
					if p.Plan.JobID.Compare(middle) < 0 {
						early++
					}
				}
				drawn += len(plans)
				estimate += float64(len(plans)) * weight / rounds
			}
			if estimate < 0.7*want || estimate > 1.3*want {
				t.Errorf("estimated %.0f plans, want about %.0f", estimate, want)
			}
			if share := float64(early) / float64(drawn); share < 0.35 || share > 0.65 {
				t.Errorf("%.2f of them are of older jobs, want half", share)
			}
		}
		check(jobs * 2 / 3)

		// Most jobs are gone.
		var gone []belfry.ID
		for i, job := range created {
			if i%30 != 1 {
				gone = append(gone, job.Job.ID)
			}
		}
		for ids := range slices.Chunk(gone, 500) {
			list := "'" + strings.Join(textsOf(ids), "','") + "'"
			if !f.server {
				list = "x'" + strings.ReplaceAll(strings.Join(textsOf(ids), "',x'"), "-", "") + "'"
			}
			f.exec(t, `DELETE FROM plans WHERE job_id IN (`+list+`)`)
			f.exec(t, `DELETE FROM jobs WHERE id IN (`+list+`)`)
		}
		total := 0.0
		for range 60 {
			plans, weight, err := f.SamplePlans(ctx, size)
			if err != nil {
				t.Fatal(err)
			}
			total += float64(len(plans)) * weight
		}
		if got := total / 60; got < 70 || got > 130 {
			t.Errorf("estimated %.0f plans, want about 100", got)
		}
	})
}

func textsOf(ids []belfry.ID) (list []string) {
	for _, id := range ids {
		list = append(list, id.String())
	}
	return list
}

func TestDatabaseAndRunningAttempts(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		d, err := f.Database(ctx)
		kind := map[bool]string{true: "postgresql", false: "sqlite"}[f.server]
		if err != nil || d.Kind != kind || d.Version == "" || strings.Contains(d.Version, " ") || d.Bytes < 1<<14 {
			t.Errorf("the database is %+v (%v)", d, err)
		}
		run := f.startRun(t)
		running, err := f.Running(ctx)
		if err != nil || len(running) != 1 || running[run.WorkerID] != 1 {
			t.Errorf("running are %v (%v), want one of %s", running, err, run.WorkerID)
		}
		workers, err := f.Workers(ctx)
		if err != nil || len(workers) != 1 || workers[0].StartedAt.IsZero() || workers[0].StartedAt.After(workers[0].LastSeen) {
			t.Errorf("the workers are %+v (%v)", workers, err)
		}
	})
}
