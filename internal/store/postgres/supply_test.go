package postgres

import (
	"errors"
	"fmt"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/store"
)

// sequence gives n jobs without plans worth mentioning, and then does something.
func sequence(t *testing.T, s *Store, n int, then func(yield func(store.NewJob, error) bool)) func(yield func(store.NewJob, error) bool) {
	return func(yield func(store.NewJob, error) bool) {
		for i := range n {
			job := newJob(t, s)
			job.Job.Name = fmt.Sprint("job ", i)
			if !yield(job, nil) {
				return
			}
		}
		if then != nil {
			then(yield)
		}
	}
}

func countJobs(t *testing.T, s *Store) (n int) {
	t.Helper()
	if err := s.pool.QueryRow(t.Context(), `SELECT count(*) FROM belfry.jobs j JOIN belfry.plans p ON p.job_id = j.id`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestJobsAreStoredWhateverTheSizesOfTheBatches(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate)})
	total := 0
	for _, n := range []int{maxInsertJobs, maxInsertJobs + 1, maxInsertJobs + 2, copyBatchJobs, copyBatchJobs + 1, 2*copyBatchJobs + 7} {
		if _, err := s.pool.Exec(t.Context(), `UPDATE belfry.jobs SET name = NULL`); err != nil {
			t.Fatal(err)
		}
		if err := s.CreateJobs(t.Context(), sequence(t, s, n, nil), nil); err != nil {
			t.Fatalf("%d jobs: %v", n, err)
		}
		total += n
		if got := countJobs(t, s); got != total {
			t.Errorf("after %d more there are %d jobs, wants %d", n, got, total)
		}
	}
}

func TestASequenceThatFailsLeavesNothing(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate)})
	trouble := errors.New("line 17 is wrong")
	for _, n := range []int{0, 1, maxInsertJobs, maxInsertJobs + 1, copyBatchJobs, copyBatchJobs + 10} {
		err := s.CreateJobs(t.Context(), sequence(t, s, n, func(yield func(store.NewJob, error) bool) { yield(store.NewJob{}, trouble) }), nil)
		if !errors.Is(err, trouble) {
			t.Errorf("after %d jobs: got %v, wants the sequence's own error", n, err)
		}
		if got := countJobs(t, s); got != 0 {
			t.Errorf("after %d jobs and an error, %d are there", n, got)
		}
	}
}

func TestASequenceThatPanicsDoesSoBeforeItsCaller(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate)})
	for _, n := range []int{0, maxInsertJobs + 1, copyBatchJobs + 10, 2*copyBatchJobs + 10} {
		func() {
			defer func() {
				if got := recover(); got != "boom" {
					t.Errorf("after %d jobs: recovered %v", n, got)
				}
			}()
			s.CreateJobs(t.Context(), sequence(t, s, n, func(func(store.NewJob, error) bool) { panic("boom") }), nil)
		}()
		if got := countJobs(t, s); got != 0 {
			t.Errorf("after %d jobs and a panic, %d are there", n, got)
		}
	}
	if err := s.CreateJobs(t.Context(), sequence(t, s, 1, nil), nil); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

// A conflict is found while the batch after it is already being produced.
func TestASequenceEndsBeforeItsCallReturns(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate)})
	if err := s.CreateJobs(t.Context(), sequence(t, s, 1, nil), nil); err != nil {
		t.Fatal(err)
	}
	ended := false
	err := s.CreateJobs(t.Context(), func(yield func(store.NewJob, error) bool) {
		defer func() { ended = true }()
		sequence(t, s, 4*copyBatchJobs, nil)(yield)
	}, nil)
	if belfry.CodeOf(err) != belfry.Conflict {
		t.Errorf("got %v, wants a conflict", err)
	}
	if !ended {
		t.Error("the sequence was left half way")
	}
	if got := countJobs(t, s); got != 1 {
		t.Errorf("there are %d jobs, wants the one from before", got)
	}
}
