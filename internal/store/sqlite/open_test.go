package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestOpenMakesEverythingAndAgainChangesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there yet")
	s := openDir(t, dir)
	first := dump(t, s)
	for _, want := range []string{"table jobs", "table plans", "table runs", "table history", "index plans_due", "shards 60"} {
		if !strings.Contains(first, want) {
			t.Errorf("a new database has no %q", want)
		}
	}
	closeStore(t, s)
	s = openDir(t, dir)
	defer closeStore(t, s)
	if second := dump(t, s); second != first {
		t.Errorf("opening again changed the database:\n%s\nnow:\n%s", first, second)
	}
}

func TestOnlyTheOwnerMayReadTheFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s := openDir(t, dir)
	defer closeStore(t, s)
	create(t, s, newJob(t, s, s.Now(), "* * * * *"))
	for path, want := range map[string]os.FileMode{"": 0o700, databaseFile: 0o600, databaseFile + "-wal": 0o600, databaseFile + "-shm": 0o600, lockFile: 0o600} {
		info, err := os.Stat(filepath.Join(dir, path))
		if err != nil {
			t.Error(err)
		} else if got := info.Mode().Perm(); got != want {
			t.Errorf("%q has mode %o, wants %o", path, got, want)
		}
	}
}

func TestADirectoryMayHaveAnyName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "50% of a?b #1&c=d")
	s := openDir(t, dir)
	create(t, s, newJob(t, s, s.Now(), "* * * * *"))
	closeStore(t, s)
	if info, err := os.Stat(filepath.Join(dir, databaseFile)); err != nil || info.Size() == 0 {
		t.Errorf("the database is not where it should be: %v, %v", info, err)
	}
}

func TestOneProcessADirectory(t *testing.T) {
	dir := t.TempDir()
	s := openDir(t, dir)
	_, err := Open(ctx, Options{Dir: dir})
	var known *belfry.Error
	if !errors.As(err, &known) || known.Code != belfry.Conflict {
		t.Fatalf("opening it a second time: got %v, wants a conflict", err)
	}
	for _, want := range []string{dir, fmt.Sprintf("in use by process %d", os.Getpid())} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if err := s.Ping(ctx); err != nil {
		t.Errorf("the first one was disturbed: %v", err)
	}
	closeStore(t, s)
	closeStore(t, openDir(t, dir))
}

func TestTheNumberOfShardsIsFixed(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		name  string
		asked int
		want  int
		says  []string
	}{
		{"a negative number is refused", -1, 0, []string{"-1"}},
		{"the first start decides", 8, 8, nil},
		{"whatever is stored", 0, 8, nil},
		{"the same again", 8, 8, nil},
		{"another one is refused", 16, 0, []string{"8", "16"}},
	} {
		s, err := Open(ctx, Options{Dir: dir, Shards: tt.asked})
		if tt.says != nil {
			for _, want := range tt.says {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: got %v, wants an error with %s", tt.name, err, want)
				}
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if s.Shards() != tt.want {
			t.Errorf("%s: got %d, wants %d", tt.name, s.Shards(), tt.want)
		}
		closeStore(t, s)
	}
}

func TestADirectoryIsNeeded(t *testing.T) {
	if _, err := Open(ctx, Options{}); belfry.CodeOf(err) != belfry.Invalid {
		t.Errorf("got %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(ctx, Options{Dir: file}); err == nil {
		t.Error("a file was taken for a directory")
	}
}

// TestARestartEndsWhatWasRunning starts three times with the same run under a
// worker. Each time it is given back at once; the third time it is poison.
func TestARestartEndsWhatWasRunning(t *testing.T) {
	dir := t.TempDir()
	s := openDir(t, dir)
	create(t, s, newJob(t, s, s.Now().Add(-2*time.Minute), "* * * * *"))
	fire(t, s, steps(t, s, 1), store.FreeSlots{})
	var run *belfry.Run
	for life := 1; life <= belfry.PoisonLimit; life++ {
		runs := claim(t, s, register(t, s), 10)
		if len(runs) != 1 || runs[0].Attempt != life {
			t.Fatalf("life %d: claimed %v", life, runs)
		}
		run = runs[0]
		if leases, err := s.Hold(ctx, belfry.NewID(s.Now()), []string{"shard/1"}, time.Hour); err != nil || len(leases) != 1 || leases[0].Epoch != int64(life) {
			t.Fatalf("life %d: leases %v, %v; wants a new term at once", life, leases, err)
		}
		closeStore(t, s)
		s = openDir(t, dir)
		if workers, err := s.Workers(ctx); err != nil || len(workers) != 0 {
			t.Errorf("life %d: workers %v, %v outlived the process", life, workers, err)
		}
		if held, err := s.Held(ctx, ""); err != nil || len(held) != 0 {
			t.Errorf("life %d: leases %v, %v outlived the process", life, held, err)
		}
	}
	defer closeStore(t, s)
	got, err := s.Run(ctx, run.Namespace, run.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got.Status != belfry.RunDead || got.Reason != belfry.ReasonPoison || len(got.Attempts) != belfry.PoisonLimit {
		t.Errorf("the run is %s (%s) after %d attempts, wants it quarantined as poison", got.Status, got.Reason, len(got.Attempts))
	}
	for i, a := range got.Attempts {
		if a.Outcome != belfry.OutcomeLost || a.Number != i+1 || a.Error == "" {
			t.Errorf("attempt %d is %+v", i+1, a)
		}
	}
}

func TestNothingIsDoneAfterClose(t *testing.T) {
	s := openDir(t, t.TempDir())
	closeStore(t, s)
	closeStore(t, s) // a second time is the same
	if err := s.Ping(ctx); belfry.CodeOf(err) != belfry.Unavailable {
		t.Errorf("ping: got %v", err)
	}
	if _, err := s.Hold(ctx, belfry.ID{1}, []string{"x"}, time.Minute); belfry.CodeOf(err) != belfry.Unavailable {
		t.Errorf("hold: got %v", err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := Open(gone, Options{Dir: t.TempDir()}); !errors.Is(err, context.Canceled) {
		t.Errorf("open: got %v", err)
	}
}
