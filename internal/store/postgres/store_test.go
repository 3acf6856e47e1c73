package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestShardsAreFixedAtFirstStart(t *testing.T) {
	url := pgtest.Database(t, Migrate)
	if s := open(t, Options{URL: url, Shards: 8}); s.Shards() != 8 {
		t.Errorf("got %d shards, want 8", s.Shards())
	}
	if s := open(t, Options{URL: url}); s.Shards() != 8 {
		t.Errorf("reopened with %d shards, want 8", s.Shards())
	}
	_, err := Open(t.Context(), Options{URL: url, Shards: 9})
	if belfry.CodeOf(err) != belfry.Invalid || !strings.Contains(err.Error(), "8") || !strings.Contains(err.Error(), "9") {
		t.Errorf("opened with another number of shards: %v", err)
	}
}

func TestOpenHidesPasswordOfBadURL(t *testing.T) {
	_, err := Open(t.Context(), Options{URL: "postgres://u:hunter2@host:notaport/db"})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

func TestNotificationsReachOtherProcesses(t *testing.T) {
	url := pgtest.Database(t, Migrate)
	sender, receiver := open(t, Options{URL: url}), open(t, Options{URL: url})
	wake := receiver.Wakeups(t.Context(), store.TopicPlans)
	<-wake // it listens
	receiver.ChangedJobs()
	job := newJob(t, sender)
	createJobs(t, sender, job)
	select {
	case <-wake:
	case <-time.After(time.Minute):
		t.Fatal("no notification came")
	}
	if ids, many := receiver.ChangedJobs(); many || len(ids) != 1 || ids[0] != job.Job.ID {
		t.Errorf("got %v, many %v, want %s", ids, many, job.Job.ID)
	}
}
