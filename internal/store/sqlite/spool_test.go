package sqlite

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// several makes more jobs than are kept in memory.
func several(t *testing.T, s *Store) []store.NewJob {
	t.Helper()
	jobs := make([]store.NewJob, store.SpoolJobs+200)
	for i := range jobs {
		jobs[i] = newJob(t, s, s.Now(), "*/5 * * * *")
	}
	last := &jobs[len(jobs)-1]
	last.Job.Name, last.Job.State, last.Job.Payload = "the last", belfry.JobPaused, nil
	last.Plan.NextAt = time.Time{}
	return jobs
}

func TestSpoolHoldsManyJobs(t *testing.T) {
	s := openStore(t)
	jobs := several(t, s)
	handed := 0
	err := s.CreateJobs(ctx, func(yield func(store.NewJob, error) bool) {
		for _, job := range jobs {
			if handed++; !yield(job, nil) {
				return
			}
		}
		// Whoever hands jobs in slowly does not keep others from writing.
		if _, err := s.Hold(ctx, belfry.ID{1}, []string{"x"}, time.Minute); err != nil {
			t.Errorf("another writer: %v", err)
		}
	}, nil)
	if err != nil || handed != len(jobs) {
		t.Fatalf("took %d of %d jobs: %v", handed, len(jobs), err)
	}
	for _, want := range []store.NewJob{jobs[0], jobs[store.SpoolJobs-1], jobs[store.SpoolJobs], jobs[len(jobs)-1]} {
		got, err := s.Job(ctx, want.Job.Namespace, want.Job.ID)
		if err != nil {
			t.Fatal(err)
		}
		diff := cmp.Diff(want.Job, got, cmpopts.IgnoreFields(belfry.Job{}, "NextRunAt", "Manifest.Status"),
			cmpopts.EquateComparable(belfry.Optional[int]{}, belfry.Optional[float64]{}))
		if diff != "" {
			t.Errorf("the job differs (-want +got):\n%s", diff)
		}
		if (got.NextRunAt == nil) != want.Plan.NextAt.IsZero() {
			t.Errorf("the next run is at %v, wants %v", got.NextRunAt, want.Plan.NextAt)
		}
		found, err := s.PlansByJob(ctx, []belfry.ID{want.Job.ID})
		if err != nil || len(found) != 1 || found[0].Plan != want.Plan {
			t.Errorf("got the plan %+v (%v), wants %+v", found, err, want.Plan)
		}
	}
	if ids, many := s.ChangedJobs(); !many || len(ids) != 0 {
		t.Errorf("%d changes are named, many %v; wants them not to be named", len(ids), many)
	}
	onlyOwnFiles(t, s.dir)
}

func TestSpooledJobsAreAllOrNone(t *testing.T) {
	s := openStore(t)
	jobs := several(t, s)
	broken := errors.New("the body broke off")
	err := s.CreateJobs(ctx, func(yield func(store.NewJob, error) bool) {
		for _, job := range jobs {
			if !yield(job, nil) {
				return
			}
		}
		yield(store.NewJob{}, broken)
	}, nil)
	if err != broken {
		t.Errorf("got %v, wants the sequence's error as it is", err)
	}
	jobs[3].Job.Name = "the last" // which the last one has as well
	if err := s.CreateJobs(ctx, seq(jobs...), nil); belfry.CodeOf(err) != belfry.Conflict {
		t.Errorf("got %v, wants a conflict", err)
	}
	if listed, err := s.ListJobs(ctx, belfry.DefaultNamespace, belfry.JobFilter{}, store.Page{Limit: 1}); err != nil || len(listed.Jobs) != 0 {
		t.Errorf("%d jobs were kept (%v), wants none", len(listed.Jobs), err)
	}
	onlyOwnFiles(t, s.dir)
}

func TestSpoolHoldsLargePayloads(t *testing.T) {
	s := openStore(t)
	large := json.RawMessage(`"` + string(bytes.Repeat([]byte("x"), belfry.MaxPayload-2)) + `"`)
	job := newJob(t, s, s.Now(), "*/5 * * * *")
	job.Job.Payload = large
	waiting, err := store.FillSpool(ctx, s.dir, seq(slices.Repeat([]store.NewJob{job}, 40)...))
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	if waiting.InMemory() || waiting.Len() != 40 {
		t.Errorf("%d jobs are held, all in memory: %v", waiting.Len(), waiting.InMemory())
	}
	for range 2 {
		n := 0
		err := waiting.Each(func(row *store.NewRow) error {
			n++
			if !bytes.Equal(row.Payload, large) {
				t.Errorf("payload %d came back with %d bytes", n, len(row.Payload))
			}
			return nil
		})
		if err != nil || n != 40 {
			t.Errorf("%d came back: %v", n, err)
		}
	}
}

// onlyOwnFiles expects nothing but the database and its lock in the directory.
func onlyOwnFiles(t *testing.T, dir string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		switch f.Name() {
		case databaseFile, databaseFile + "-wal", databaseFile + "-shm", lockFile:
		default:
			t.Errorf("%s was left behind", f.Name())
		}
	}
}
