package postgres

import (
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// namedJobs yields n jobs, and then calls end.
func namedJobs(t *testing.T, s *Store, n int, end func(yield func(store.NewJob, error) bool)) iter.Seq2[store.NewJob, error] {
	return func(yield func(store.NewJob, error) bool) {
		for i := range n {
			job := newJob(t, s)
			job.Job.Name = fmt.Sprint("job ", i)
			if !yield(job, nil) {
				return
			}
		}
		if end != nil {
			end(yield)
		}
	}
}

func countJobs(t *testing.T, s *Store) int {
	t.Helper()
	return countRows(t, s, `jobs j JOIN belfry.plans p ON p.job_id = j.id`)
}

func TestCreateJobsBatchSizes(t *testing.T) {
	s := openEmpty(t)
	total := 0
	for _, n := range []int{maxInsertJobs, maxInsertJobs + 1, maxInsertJobs + 2, copyBatchJobs, copyBatchJobs + 1, 2*copyBatchJobs + 7} {
		execSQL(t, s, `UPDATE belfry.jobs SET name = NULL`)
		if err := s.CreateJobs(t.Context(), namedJobs(t, s, n, nil), nil); err != nil {
			t.Fatalf("%d jobs: %v", n, err)
		}
		total += n
		if got := countJobs(t, s); got != total {
			t.Errorf("after %d more there are %d jobs, want %d", n, got, total)
		}
	}
}

func TestCreateJobsSequenceErrorStoresNothing(t *testing.T) {
	s := openEmpty(t)
	wrong := errors.New("line 17 is wrong")
	for _, n := range []int{0, 1, maxInsertJobs, maxInsertJobs + 1, copyBatchJobs, copyBatchJobs + 10} {
		err := s.CreateJobs(t.Context(), namedJobs(t, s, n, func(yield func(store.NewJob, error) bool) { yield(store.NewJob{}, wrong) }), nil)
		if !errors.Is(err, wrong) {
			t.Errorf("after %d jobs: got %v, want the sequence's own error", n, err)
		}
		if got := countJobs(t, s); got != 0 {
			t.Errorf("after %d jobs and an error, %d are stored", n, got)
		}
	}
}

func TestCreateJobsSequencePanicReachesCaller(t *testing.T) {
	s := openEmpty(t)
	for _, n := range []int{0, maxInsertJobs + 1, copyBatchJobs + 10, 2*copyBatchJobs + 10} {
		func() {
			defer func() {
				if got := recover(); got != "boom" {
					t.Errorf("after %d jobs: recovered %v", n, got)
				}
			}()
			s.CreateJobs(t.Context(), namedJobs(t, s, n, func(func(store.NewJob, error) bool) { panic("boom") }), nil)
		}()
		if got := countJobs(t, s); got != 0 {
			t.Errorf("after %d jobs and a panic, %d are stored", n, got)
		}
	}
	if err := s.CreateJobs(t.Context(), namedJobs(t, s, 1, nil), nil); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

// Jobs that take long to produce hold no connection, which firing needs too.
func TestCreateJobsHoldsNoConnectionWhileJobsAreProduced(t *testing.T) {
	s := openEmpty(t)
	const open = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' AND xact_start IS NOT NULL AND pid <> pg_backend_pid()`
	err := s.CreateJobs(t.Context(), namedJobs(t, s, 2*copyBatchJobs, func(func(store.NewJob, error) bool) {
		if n := queryInt(t, s, open); n != 0 {
			t.Errorf("%d transactions are open", n)
		}
	}), nil)
	if err != nil {
		t.Fatal(err)
	}
}

func TestCreateJobsEndsSequenceAfterConflict(t *testing.T) {
	s := openEmpty(t)
	if err := s.CreateJobs(t.Context(), namedJobs(t, s, 1, nil), nil); err != nil {
		t.Fatal(err)
	}
	ended := false
	err := s.CreateJobs(t.Context(), func(yield func(store.NewJob, error) bool) {
		defer func() { ended = true }()
		namedJobs(t, s, 4*copyBatchJobs, nil)(yield)
	}, nil)
	if belfry.CodeOf(err) != belfry.Conflict {
		t.Errorf("got %v, want a conflict", err)
	}
	if !ended {
		t.Error("the sequence was not ended")
	}
	if got := countJobs(t, s); got != 1 {
		t.Errorf("there are %d jobs, want the one from before", got)
	}
}

// Creating jobs again after a lost reply does nothing, even if they have ended
// meanwhile.
func TestCreateJobsAgainAfterTheyEnded(t *testing.T) {
	s := openEmpty(t)
	single, many := newDueJob(t, s, withName("single")), make([]store.NewJob, 3*maxInsertJobs)
	for i := range many {
		many[i] = newDueJob(t, s)
	}
	for range 2 {
		createJobs(t, s, single)
		createJobs(t, s, many...)
		if countRows(t, s, `ended`) > 0 {
			continue
		}
		for _, job := range []store.NewJob{single, many[7]} {
			fireNext(t, s, job.Job)
			finishNext(t, s, belfry.OutcomeSucceeded)
		}
	}
	if live, ended := countRows(t, s, `jobs`), countRows(t, s, `ended`); live != len(many)-1 || ended != 2 {
		t.Errorf("%d jobs are live and %d have ended, want %d and 2", live, ended, len(many)-1)
	}
	if err := s.CreateJobs(t.Context(), sequence(single, newDueJob(t, s)), nil); belfry.CodeOf(err) != belfry.Conflict {
		t.Errorf("created an ended job together with a new one: %v", err)
	}
}
