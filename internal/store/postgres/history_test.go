package postgres

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

// The runs and skips of an instant are found in every table, and in ranges.
func TestRunsAtFindsRunsAndRanges(t *testing.T) {
	s := openEmpty(t)
	job, other := uuid(newJob(t, s).Job.ID), uuid(newJob(t, s).Job.ID)
	zero := s.Now().Truncate(time.Hour)
	minute := func(n int) time.Time { return zero.Add(time.Duration(n) * time.Minute) }
	batch := &pgx.Batch{}
	for _, id := range []any{job, other} {
		batch.Queue(`INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
			attempt, settled_at, http_status, error, output, skipped_to, skipped_count)
			SELECT gen_random_uuid(), 0, 'default', $1, 1, 'scheduled', state, state, $2::timestamptz + a * interval '1 minute', $2, $2, $1, 1, 1, $2, 0, '', '',
			       $2::timestamptz + b * interval '1 minute', n
			  FROM (VALUES ('succeeded', 1, NULL, 0), ('skipped', 2, 2, 1), ('skipped', 3, 9, 7), ('discarded', 10, NULL, 0), ('cancelled', 10, NULL, 0), ('skipped', 20, 20, 4)) v (state, a, b, n)`, id, zero)
		batch.Queue(`INSERT INTO belfry.dead (id, shard, namespace, job_id, revision, kind, lane, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
			timeout_ms, attempt, failures, lost, died_at, fingerprint)
			VALUES (gen_random_uuid(), 0, 'default', $1, 1, 'scheduled', 'x', 'poison', $2, $2, $2, $1, 1, 1, 1, 1, 0, $2, 'x')`, id, minute(11))
		batch.Queue(`INSERT INTO belfry.runs (id, shard, namespace, job_id, revision, kind, lane, state, rank, scheduled_at, ready_at, fired_at, fired_by, epoch, timeout_ms, attempt, failures, lost)
			VALUES (gen_random_uuid(), 0, 'default', $1, 1, 'backfill', 'x', 'waiting', 1, $2, $2, $2, $1, 1, 1, 0, 0, 0)`, id, minute(5))
	}
	if err := s.pool.SendBatch(t.Context(), batch).Close(); err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int][]belfry.RunStatus{
		0: {}, 1: {"succeeded"}, 2: {"skipped"}, 3: {"skipped"}, 5: {"skipped", "waiting"}, 9: {"skipped"}, 10: {"cancelled", "discarded"}, 11: {"dead"}, 12: {}, 20: {"skipped"}, 21: {},
	} {
		runs, err := s.RunsAt(t.Context(), "default", job.Bytes, minute(n))
		if err != nil {
			t.Fatal(err)
		}
		got := []belfry.RunStatus{}
		for _, run := range runs {
			if got = append(got, run.Status); run.JobID != job.Bytes {
				t.Errorf("minute %d: a run of another job", n)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("minute %d has %v, want %v", n, got, want)
		}
	}
	if runs, err := s.RunsAt(t.Context(), "other", job.Bytes, minute(1)); err != nil || len(runs) != 0 {
		t.Errorf("another namespace has %v: %v", runs, err)
	}
}

func TestRunWait(t *testing.T) {
	s := openEmpty(t)
	serial, other := newJob(t, s).Job.ID, newJob(t, s).Job.ID
	now := s.Now()
	insert := func(job belfry.ID, state, lane string, rank, minute int) belfry.ID {
		t.Helper()
		id := belfry.NewID(now.Add(time.Duration(minute) * time.Minute))
		execSQL(t, s, `INSERT INTO belfry.runs (id, shard, namespace, job_id, revision, kind, lane, state, rank, scheduled_at, ready_at, fired_at, fired_by, epoch, timeout_ms, attempt, failures, lost,
				worker, token, deadline_at, cancel_requested_at)
			SELECT $1::uuid, 0, 'default', $2, 1, 'scheduled', $4, $3::text, $5, $6::timestamptz, $6, $6, $1, 1, 1, 1, 0, 0, held, held, CASE WHEN held IS NOT NULL THEN $6::timestamptz END, CASE WHEN held IS NOT NULL THEN $6::timestamptz END
			  FROM (SELECT CASE WHEN $3 = 'running' THEN $1::uuid END AS held) x`, uuid(id), uuid(job), state, lane, rank, now.Add(time.Duration(minute)*time.Minute))
		return id
	}
	running := insert(serial, "running", "a", 1, 50)
	var waiting []belfry.ID
	for i := range 12 {
		waiting = append(waiting, insert(serial, "waiting", "a", 1, i))
	}
	insert(other, "ready", "a", 10, 0)
	insert(other, "ready", "a", 20, 0)
	ready := insert(other, "ready", "a", 30, 7)
	insert(other, "ready", "b", 5, 0)
	insert(other, "retry", "a", 5, 0)
	insert(other, "running", "b", 5, 0)
	for _, tt := range []struct {
		name string
		run  belfry.ID
		want store.RunWait
	}{
		{"running", running, store.RunWait{State: belfry.RunRunning, ReadyAt: now.Add(50 * time.Minute), Lane: "a", Running: 1, Cancel: true}},
		{"ready", ready, store.RunWait{State: belfry.RunReady, ReadyAt: now.Add(7 * time.Minute), Lane: "a", Ahead: 2, Running: 1}},
		{"first", waiting[0], store.RunWait{State: belfry.RunWaiting, ReadyAt: now, Lane: "a", Running: 1, Before: []belfry.ID{running}}},
		{"third", waiting[2], store.RunWait{State: belfry.RunWaiting, ReadyAt: now.Add(2 * time.Minute), Lane: "a", Running: 1, Before: []belfry.ID{running, waiting[0], waiting[1]}}},
		{"last", waiting[11], store.RunWait{State: belfry.RunWaiting, ReadyAt: now.Add(11 * time.Minute), Lane: "a", Running: 1, Before: append([]belfry.ID{running}, waiting[:9]...)}},
	} {
		got, err := s.RunWait(t.Context(), "default", tt.run)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if _, err := s.RunWait(t.Context(), "other", tt.run); belfry.CodeOf(err) != belfry.NotFound {
			t.Errorf("%s: another namespace: %v", tt.name, err)
		}
	}
}

func TestListEventsPages(t *testing.T) {
	s := openEmpty(t)
	var want []belfry.Event
	for i := range 7 {
		at := s.Now().Add(time.Duration(i) * time.Second)
		e := belfry.Event{ID: belfry.NewID(at), Namespace: "default", Kind: belfry.EventLargeCatchUp, At: at, Message: fmt.Sprint("event ", i), Count: int64(i)}
		if i%2 == 0 {
			e.JobID = belfry.NewID(at)
		}
		want = slices.Insert(want, 0, e)
		for _, event := range []belfry.Event{e, {ID: belfry.NewID(at), Namespace: "other", At: at}} {
			execSQL(t, s, `INSERT INTO belfry.events (id, shard, namespace, job_id, kind, at, message, count) VALUES ($1, 0, $2, $3, $4, $5, $6, $7)`,
				uuid(event.ID), event.Namespace, uuid(event.JobID), string(event.Kind), event.At, event.Message, event.Count)
		}
	}
	for _, limit := range []int{1, 3, 7, 8} {
		var got []belfry.Event
		for page := (store.Page{Limit: limit}); ; page.After.ID = got[len(got)-1].ID {
			events, err := s.ListEvents(t.Context(), "default", belfry.EventFilter{}, page)
			if err != nil || len(events) > limit {
				t.Fatalf("a page of %d has %d: %v", limit, len(events), err)
			}
			if len(events) == 0 {
				break
			}
			got = append(got, events...)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("pages of %d (-want +got):\n%s", limit, diff)
		}
	}
}

// Whether a job has recovered is read from its latest records, however many it has.
func TestLastSuccessReadsOnlyTheLatest(t *testing.T) {
	s := openEmpty(t)
	job := belfry.NewID(s.Now())
	settle := func(n int, before string) {
		execSQL(t, s, `INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch, attempt, settled_at, http_status, error, output, skipped_count)
			SELECT gen_random_uuid(), 0, 'default', $1, 1, 'scheduled', 'succeeded', '', at, at, at, gen_random_uuid(), 1, 1, at, 200, '', '', 0
			  FROM (SELECT now() - $3::interval - i * interval '1 millisecond' AS at FROM generate_series(1, $2) i) x`, uuid(job), n, before)
		execSQL(t, s, `ANALYZE belfry.history`)
	}
	settle(1000, "1 minute")
	execSQL(t, s, `INSERT INTO belfry.failing (job_id, namespace, since, latest_at, failures, run_id, error) VALUES ($1, 'default', now(), now(), 1, $1, 'x')`, uuid(job))
	for name, read := range map[string]func() int{
		"recovered":    func() int { return buffersRead(t, s, sqlstore.ListFailing, notNull(belfry.ID{}), 100) },
		"last success": func() int { return buffersRead(t, s, sqlstore.ListSuccesses, uuids([]belfry.ID{job}), s.Now()) },
	} {
		t.Run(name, func(t *testing.T) {
			wantSameBuffers(t, s, 100, read, func() { settle(30_000, "2 minutes") })
		})
	}
}
