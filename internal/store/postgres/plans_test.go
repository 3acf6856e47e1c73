package postgres

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// A search for few plans among many reads a bounded number at a time, and misses none.
func TestPlansForZoneUpdateScansInSteps(t *testing.T) {
	s := openEmpty(t)
	const plans = 2*zoneUpdateScanLimit + 100
	for _, sql := range []string{
		`INSERT INTO belfry.plans (job_id, shard, version, next_at, nominal_at, runs_made, zone_version)
			SELECT gen_random_uuid(), 0, 1, now(), now(), 0, '2000a' FROM generate_series(1, $1::integer)`,
		`UPDATE belfry.plans SET zone_version = '1999a' WHERE job_id IN
			(SELECT job_id FROM (SELECT job_id, row_number() OVER (ORDER BY job_id) AS n FROM belfry.plans) p WHERE n % 4000 = 0 OR n = $1)`,
		`INSERT INTO belfry.jobs (id, shard, namespace, revision, state, spec, created_at, updated_at, queue, type)
			SELECT job_id, 0, 'default', 1, 'active', '{}', now(), now(), 'default', 'http' FROM belfry.plans WHERE $1 > 0`,
	} {
		execSQL(t, s, sql, plans)
	}
	want, err := collectIDs(t.Context(), s.pool, `SELECT job_id FROM belfry.plans WHERE zone_version = '1999a' ORDER BY job_id`)
	if err != nil || len(want) != 5 {
		t.Fatalf("%d plans have the older release, %v", len(want), err)
	}
	var got []pgtype.UUID
	var after belfry.ID
	calls := 0
	for {
		due, next, err := s.PlansForZoneUpdate(t.Context(), []int{0}, "2000a", after, 10)
		if err != nil {
			t.Fatal(err)
		}
		calls++
		for _, d := range due {
			got = append(got, uuid(d.Plan.JobID))
		}
		if after = next; next.IsZero() {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || calls != 3 {
		t.Errorf("after %d calls, want 3:\n%s", calls, diff)
	}
}

// An edit at the instant of an occurrence is applied, also by a process that believes the
// server's clock to be ahead.
func TestEditAtTheInstantOfAnOccurrence(t *testing.T) {
	s := openEmpty(t)
	job := newJob(t, s)
	job.Plan.NominalAt = s.Now().Add(time.Minute)
	job.Plan.NextAt = job.Plan.NominalAt
	createJobs(t, s, job)
	ahead := *s.clock.Load()
	ahead.server = ahead.server.Add(5 * time.Minute)
	s.clock.Store(&ahead)
	paused, err := s.EditJob(t.Context(), job.Job.Namespace, job.Job.ID, func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		job.State = belfry.JobPaused
		return &store.Change{Job: job, Step: plan.Pause(subjectOf(t, job), p, now)}, nil
	})
	if err != nil || paused.State != belfry.JobPaused {
		t.Errorf("the job is %s (%v)", paused.State, err)
	}
}
