package scheduler

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// A database that lost its newest part has plans whose occurrence was fired as far as the
// scheduler knows. It is fired again soon, and an event says why.
func TestRewoundDatabaseFiresAgain(t *testing.T) {
	inBubble(t, func(b *bubble) {
		job := b.create("*/10 * * * *", nil)
		other := b.create("*/10 * * * *", nil)
		b.start(&polledStore{Store: b.store})
		b.sleep(10*time.Minute + 30*time.Second)
		if len(b.handled()) != 2 {
			b.Fatalf("%d runs started before the rewind", len(b.handled()))
		}
		b.exec(`DELETE FROM history WHERE job_id = ?`, job[:])
		b.exec(`UPDATE plans SET version = version - 1, next_at = nominal_at - 600000000, nominal_at = nominal_at - 600000000, fired_for = NULL, runs_made = 0 WHERE job_id = ?`, job[:])
		b.sleep(5 * time.Second)
		calls := b.handled()
		if len(calls) != 3 || calls[2].run.JobID != job {
			b.Errorf("5 seconds after the rewind there are %d calls: %+v", len(calls), calls)
		}
		b.sleep(10 * time.Minute)
		if n := len(b.handled()); n != 5 || len(b.runs(other)) != 2 {
			b.Errorf("after the next occurrence there are %d calls, and the other job has %d runs", n, len(b.runs(other)))
		}
		events, err := b.store.ListEvents(b.Context(), "default", belfry.EventFilter{}, store.Page{Limit: 10})
		if err != nil || len(events) != 1 || events[0].Kind != belfry.EventDatabaseRewound || events[0].Count != 1 {
			b.Errorf("the events are %+v (%v)", events, err)
		}
	})
}

// exec changes the database behind the store's back.
func (b *bubble) exec(query string, args ...any) {
	b.Helper()
	db, err := sql.Open("sqlite", filepath.Join(b.dir, "belfry.db"))
	if err == nil {
		_, err = db.Exec(query, args...)
	}
	if err != nil {
		b.Fatal(err)
	}
	if err := db.Close(); err != nil {
		b.Error(err)
	}
}
