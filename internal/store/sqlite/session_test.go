package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestAnEndedContextStartsNothing(t *testing.T) {
	s := openStore(t)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	job := newJob(t, s, s.Now(), "* * * * *")
	if err := s.CreateJobs(gone, seq(job), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("create: got %v", err)
	}
	if _, err := s.Job(gone, job.Job.Namespace, job.Job.ID); !errors.Is(err, context.Canceled) {
		t.Errorf("look up: got %v", err)
	}
	if _, err := s.Job(ctx, job.Job.Namespace, job.Job.ID); belfry.CodeOf(err) != belfry.NotFound {
		t.Errorf("it was created all the same: %v", err)
	}
}

func TestAWriteOutlivesItsContext(t *testing.T) {
	s := openStore(t)
	job := newJob(t, s, s.Now(), "* * * * *")
	create(t, s, job)
	life, cancel := context.WithCancel(ctx)
	got, err := s.EditJob(life, job.Job.Namespace, job.Job.ID, func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		cancel() // the caller goes away while the transaction is open
		job.Name = "renamed"
		return &store.Change{Job: job, Step: plan.Step{Seen: p, Next: p}}, nil
	})
	if err != nil || got.Name != "renamed" {
		t.Errorf("got %q, %v", got.Name, err)
	}
}

func TestWaitingForTheWriterEndsWithTheContext(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := openDir(t, dir)
		defer closeStore(t, s)
		job := newJob(t, s, s.Now(), "* * * * *")
		create(t, s, job)
		busy, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			_, _ = s.EditJob(ctx, job.Job.Namespace, job.Job.ID, func(belfry.Job, plan.Plan, time.Time) (*store.Change, error) {
				close(busy)
				time.Sleep(time.Hour)
				return nil, nil
			})
		}()
		<-busy
		short, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if _, err := s.Hold(short, belfry.ID{1}, []string{"x"}, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second writer: got %v", err)
		}
		if _, err := s.Job(ctx, job.Job.Namespace, job.Job.ID); err != nil {
			t.Errorf("a reader waits for the writer: %v", err)
		}
		<-done
		if _, err := s.Hold(ctx, belfry.ID{1}, []string{"x"}, time.Minute); err != nil {
			t.Errorf("after the first writer: %v", err)
		}
	})
}

func TestAPanicLeavesTheStoreUsable(t *testing.T) {
	s := openStore(t)
	job := newJob(t, s, s.Now(), "* * * * *")
	create(t, s, job)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = s.EditJob(ctx, job.Job.Namespace, job.Job.ID, func(belfry.Job, plan.Plan, time.Time) (*store.Change, error) { panic("oops") })
	}()
	create(t, s, newJob(t, s, s.Now(), "* * * * *"))
}

// TestAFullDisk bounds the file, which fails as a full disk does.
func TestAFullDisk(t *testing.T) {
	s := openStore(t)
	bound := func(pragma string) {
		t.Helper()
		err := s.write(ctx, "bound the file", func(t *tx) error {
			var pages int
			return t.get([]any{&pages}, pragma)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	bound(`PRAGMA max_page_count = 60`)
	jobs := make([]store.NewJob, 500)
	for i := range jobs {
		jobs[i] = newJob(t, s, s.Now(), "* * * * *")
	}
	err := s.CreateJobs(ctx, seq(jobs...), nil)
	if belfry.CodeOf(err) != belfry.Unavailable || !strings.Contains(err.Error(), "create jobs") {
		t.Fatalf("got %v, wants unavailable", err)
	}
	if listed, err := s.ListJobs(ctx, belfry.DefaultNamespace, belfry.JobFilter{}, store.Page{Limit: 1}); err != nil || len(listed.Jobs) != 0 {
		t.Errorf("%d jobs were kept (%v), wants none", len(listed.Jobs), err)
	}
	bound(`PRAGMA max_page_count = 1000000`)
	create(t, s, jobs...)
}

// TestAForeignWriter lets another tool keep the file busy.
func TestAForeignWriter(t *testing.T) {
	s := openStore(t)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(s.dir, databaseFile)+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = s.write(ctx, "be impatient", func(t *tx) error {
		var ms int
		return t.get([]any{&ms}, `PRAGMA busy_timeout = 1`)
	})
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Hold(ctx, belfry.ID{1}, []string{"x"}, time.Minute); belfry.CodeOf(err) != belfry.Unavailable {
		t.Errorf("while it is busy: got %v", err)
	}
	if err := foreign.Rollback(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Hold(ctx, belfry.ID{1}, []string{"x"}, time.Minute); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestALostConnectionIsReplaced leaves a transaction open behind the session's
// back, so that beginning fails, and rolling back too.
func TestALostConnectionIsReplaced(t *testing.T) {
	s := openStore(t)
	err := s.write(ctx, "end early", func(t *tx) error {
		if err := t.command(`ROLLBACK`); err != nil {
			return err
		}
		return errors.New("after that")
	})
	if err == nil || !strings.Contains(err.Error(), "after that") {
		t.Errorf("got %v", err)
	}
	create(t, s, newJob(t, s, s.Now(), "* * * * *"))
}

func TestReadersCannotWrite(t *testing.T) {
	s := openStore(t)
	err := s.read(ctx, "write", func(t *tx) error {
		_, err := t.exec(`DELETE FROM settings`)
		return err
	})
	if err == nil {
		t.Error("a reader wrote")
	}
}

func TestSettingsThatDurabilityRestsOn(t *testing.T) {
	s := openStore(t)
	err := s.write(ctx, "look", func(x *tx) error {
		for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2"} {
			var got string
			if err := x.get([]any{&got}, `PRAGMA `+pragma); err != nil {
				return err
			}
			if got != want {
				t.Errorf("%s is %s, wants %s", pragma, got, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
