package postgres

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func open(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestMigrationsRunFromEmptyTwiceAndAtOnce(t *testing.T) {
	url := pgtest.Database(t, nil)
	done := make(chan error)
	for range 4 {
		go func() { done <- Migrate(context.Background(), url) }()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	before := columns(t, url)
	if err := Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	if after := columns(t, url); !slices.Equal(before, after) || len(after) < 50 {
		t.Errorf("migrating again changed the schema from\n%v\nto\n%v", before, after)
	}
}

func TestANewerSchemaIsRefused(t *testing.T) {
	url := pgtest.Database(t, Migrate)
	exec(t, url, `INSERT INTO belfry.migrations VALUES (9999, clock_timestamp())`)
	_, err := Open(t.Context(), Options{URL: url})
	if err == nil || !strings.Contains(err.Error(), "9999") {
		t.Errorf("got %v", err)
	}
}

func TestTheNumberOfShardsIsFixedAtTheFirstStart(t *testing.T) {
	url := pgtest.Database(t, Migrate)
	if s := open(t, Options{URL: url, Shards: 8}); s.Shards() != 8 {
		t.Errorf("got %d shards, want 8", s.Shards())
	}
	if s := open(t, Options{URL: url}); s.Shards() != 8 {
		t.Errorf("reopened with %d shards, want 8", s.Shards())
	}
	_, err := Open(t.Context(), Options{URL: url, Shards: 9})
	if belfry.CodeOf(err) != belfry.Invalid || !strings.Contains(err.Error(), "8") || !strings.Contains(err.Error(), "9") {
		t.Errorf("asking for another number: %v", err)
	}
}

func TestABadURLIsRefusedWithoutItsPassword(t *testing.T) {
	_, err := Open(t.Context(), Options{URL: "postgres://u:hunter2@host:notaport/db"})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

func TestHistoryHasAPartitionADay(t *testing.T) {
	url := pgtest.Database(t, Migrate)
	s := open(t, Options{URL: url})
	names, err := partitionNames(t.Context(), s.pool)
	if err != nil {
		t.Fatal(err)
	}
	today := time.Now().UTC()
	for d := -1; d <= daysAhead; d++ {
		if name := today.AddDate(0, 0, d).Format(partitionName); !names[name] {
			t.Errorf("partition %s is missing; there are %v", name, names)
		}
	}
	old := today.AddDate(0, 0, -200)
	if err := makePartitions(t.Context(), s.pool, old); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Prune(t.Context(), 90*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	if names, _ = partitionNames(t.Context(), s.pool); names[old.Format(partitionName)] || !names[today.Format(partitionName)] {
		t.Errorf("after pruning 90 days there are %v", names)
	}
}

func TestHintsReachOtherProcesses(t *testing.T) {
	url := pgtest.Database(t, Migrate)
	here, there := open(t, Options{URL: url}), open(t, Options{URL: url})
	wake := there.Wakeups(t.Context(), store.TopicPlans)
	<-wake // what was said before it listened
	there.ChangedJobs()
	job := newJob(t, here)
	if err := here.CreateJobs(t.Context(), func(yield func(store.NewJob, error) bool) { yield(job, nil) }, nil); err != nil {
		t.Fatal(err)
	}
	select {
	case <-wake:
	case <-time.After(10 * time.Second):
		t.Fatal("no hint came")
	}
	if ids, many := there.ChangedJobs(); many || len(ids) != 1 || ids[0] != job.Job.ID {
		t.Errorf("got %v, many %v, want %s", ids, many, job.Job.ID)
	}
}

func newJob(t *testing.T, s *Store) store.NewJob {
	t.Helper()
	spec := belfry.DefaultSpec()
	spec.Type, spec.Schedule, spec.Timezone = belfry.TypeHTTP, "* * * * *", "UTC"
	policy, err := plan.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	now := s.Now()
	id := belfry.NewID(now)
	return store.NewJob{
		Job:  belfry.Job{ID: id, Namespace: "default", Revision: 1, State: belfry.JobActive, Manifest: belfry.Manifest{Spec: spec}, CreatedAt: now},
		Plan: plan.First(id, belfry.ShardOf(id, s.Shards()), policy, now),
	}
}

func columns(t *testing.T, url string) []string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	rows, err := conn.Query(t.Context(), `SELECT table_name || '.' || column_name || ' ' || data_type FROM information_schema.columns WHERE table_schema = 'belfry' ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func exec(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}
