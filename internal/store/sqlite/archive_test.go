package sqlite

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// oneOff is a job that has been due for a minute, with what a change makes of it.
func oneOff(t *testing.T, s *Store, change func(*belfry.Job)) store.NewJob {
	t.Helper()
	at := s.Now().Add(-time.Minute).Truncate(time.Second)
	job := newJob(t, s, at, at.Format(time.RFC3339))
	if change != nil {
		change(&job.Job)
	}
	return job
}

// endAll fires all that is due, and finishes it with the outcome.
func endAll(t *testing.T, s *Store, outcome belfry.Outcome) {
	t.Helper()
	worker := register(t, s)
	fired := fire(t, s, steps(t, s, 1000), store.FreeSlots{Worker: worker, Lanes: []string{testLane}, Free: 1000})
	finish(t, s, outcome, fired.Claimed...)
}

// TestARepeatedCreateDoesNotRestoreAnArchivedJob repeats the create of a job that was archived
// before its creator got the reply.
func TestARepeatedCreateDoesNotRestoreAnArchivedJob(t *testing.T) {
	s := openStore(t)
	job := oneOff(t, s, func(j *belfry.Job) { j.Name = "once" })
	create(t, s, job)
	endAll(t, s, belfry.OutcomeSucceeded)
	create(t, s, job)
	for table, want := range map[string]int{"jobs": 0, "plans": 0, "runs": 0, "ended": 1, "history": 1} {
		if n := count(t, s, `SELECT count(*) FROM `+table); n != want {
			t.Errorf("%d rows are in %s, wants %d", n, table, want)
		}
	}
	got, err := s.Job(ctx, job.Job.Namespace, job.Job.ID)
	if err != nil || got.State != belfry.JobEnded || got.Status != belfry.StatusCompleted || string(got.Payload) != string(job.Job.Payload) || got.Spec != job.Job.Spec {
		t.Errorf("the job is found as %+v (%v)", got, err)
	}
	again := oneOff(t, s, func(j *belfry.Job) { j.Name = "once" })
	create(t, s, again) // its name is free
	if id, err := s.JobIDByName(ctx, job.Job.Namespace, "once"); err != nil || id != again.Job.ID {
		t.Errorf("the name leads to %s (%v), wants the live job", id, err)
	}
}

// TestArchivedJobsAreListedAmongLiveOnes has completed jobs in both places, in turn,
// and asks for pages of several sizes that may read few of them.
func TestArchivedJobsAreListedAmongLiveOnes(t *testing.T) {
	s := openStore(t)
	var want []belfry.ID
	for i := range 12 {
		job := oneOff(t, s, func(j *belfry.Job) { j.Name, j.Queue = fmt.Sprintf("job %d", i), "default" })
		job.Plan.Once = i%3 != 0 // the others stay, as if they had been made before there was such a thing
		create(t, s, job)
		want = append(want, job.Job.ID)
	}
	worker := register(t, s)
	due := steps(t, s, 1000)
	for i := range due {
		due[i].Next.Once = due[i].Seen.Once
	}
	finish(t, s, belfry.OutcomeSucceeded, fire(t, s, due, store.FreeSlots{Worker: worker, Lanes: []string{testLane}, Free: 1000}).Claimed...)
	if n := count(t, s, `SELECT count(*) FROM ended`); n != 8 {
		t.Fatalf("%d jobs have ended, wants 8", n)
	}
	slices.SortFunc(want, func(a, b belfry.ID) int { return b.Compare(a) })
	for _, s.ScanLimit = range []int{2, 3, 100} {
		for limit := 1; limit < 14; limit += 3 {
			got := listed(t, s, belfry.JobFilter{Status: belfry.StatusCompleted, Search: "JOB"}, limit)
			if !slices.Equal(got, want) {
				t.Errorf("pages of %d that read %d have %v, wants %v", limit, s.ScanLimit, got, want)
			}
		}
	}
	if got := listed(t, s, belfry.JobFilter{}, 100); len(got) != 4 {
		t.Errorf("%d jobs are listed without a status, wants 4", len(got))
	}
	if got := listed(t, s, belfry.JobFilter{Status: belfry.StatusFailed}, 100); len(got) != 0 {
		t.Errorf("%d jobs are listed as failed", len(got))
	}
}

// listed gives the ids on all pages of a list.
func listed(t *testing.T, s *Store, filter belfry.JobFilter, limit int) (ids []belfry.ID) {
	t.Helper()
	page := store.Page{Limit: limit}
	for next := (belfry.ID{1}); !next.IsZero(); page.After.ID = next {
		list, err := s.ListJobs(ctx, belfry.DefaultNamespace, filter, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, job := range list.Jobs {
			ids = append(ids, job.ID)
		}
		next = list.Next
	}
	return ids
}

// TestArchiveScansAllCandidates leaves the job of a dead letter alone, and
// finds the others in steps.
func TestArchiveScansAllCandidates(t *testing.T) {
	s := openStore(t)
	for range 7 {
		create(t, s, oneOff(t, s, func(j *belfry.Job) { j.MaxRetries = belfry.Some(0) }))
	}
	endAll(t, s, belfry.OutcomeFailed)
	fill(t, s, 0, `DELETE FROM dead WHERE id <> (SELECT min(id) FROM dead)`)
	var after belfry.ID
	archived, calls := 0, 0
	for more := true; more; more = !after.IsZero() {
		n, next, err := s.Archive(ctx, s.allShards(), after, 3)
		if err != nil {
			t.Fatal(err)
		}
		archived, calls, after = archived+n, calls+1, next
	}
	if left := count(t, s, `SELECT count(*) FROM jobs`); archived != 6 || calls != 3 || left != 1 {
		t.Errorf("in %d calls %d jobs were archived and %d are left, wants 3, 6 and 1", calls, archived, left)
	}
	if n, next, err := s.Archive(ctx, nil, belfry.ID{}, 3); n != 0 || !next.IsZero() || err != nil {
		t.Errorf("without shards %d were archived, up to %s (%v)", n, next, err)
	}
}
