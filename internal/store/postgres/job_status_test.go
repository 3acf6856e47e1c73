package postgres

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// statusByDefinition is what the status and the last run of a job derive from: the latest
// of all records in any table, except for notes that are about no occurrence, and for the
// note that it was cancelled once a later run was fired. So does the last result, except
// that skips are not looked for before the only run, while that is live or was not fired,
// and that a run that was settled later than others, while a later one is live or dead,
// may be found, or not.
const statusByDefinition = `
SELECT j.id, j.state, p.next_at, r.running, r.waiting, greatest(r.last, h.last, d.last), CASE WHEN d.last >= coalesce(s.at, d.last) THEN 'dead' ELSE s.state END,
       coalesce(s.state, ''), s.id, s.settled_at, d.id, d.died_at, 
       r.running + r.waiting = 1 AND p.runs_made + p.runs_triggered = 1 OR p.fired_for IS NULL AND p.runs_made + p.runs_triggered = 0
  FROM belfry.jobs j
  JOIN belfry.plans p ON p.job_id = j.id
  CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE state = 'running') AS running, count(*) FILTER (WHERE state <> 'running') AS waiting,
                             max(scheduled_at) AS last FROM belfry.runs WHERE job_id = j.id) r
  LEFT JOIN LATERAL (SELECT scheduled_at AS last, id, died_at FROM belfry.dead WHERE job_id = j.id ORDER BY scheduled_at DESC LIMIT 1) d ON true
  LEFT JOIN LATERAL (SELECT max(scheduled_at) AS last FROM belfry.history WHERE job_id = j.id AND state <> 'skipped') h ON true
  LEFT JOIN LATERAL (SELECT scheduled_at AS at, state, id, settled_at FROM belfry.history WHERE job_id = j.id AND reason NOT IN ('dst_gap', 'zone_change')
                        AND (reason <> 'cancelled' OR settled_at >= ALL (SELECT fired_at FROM belfry.history WHERE job_id = j.id AND state <> 'skipped' UNION ALL SELECT fired_at FROM belfry.dead WHERE job_id = j.id))
                      ORDER BY scheduled_at DESC, id DESC LIMIT 1) s ON true`

// The status of a job is that of the definition, though only a part of history is read.
func TestJobStatusMatchesFullHistory(t *testing.T) {
	s := openEmpty(t)
	const days = 40
	if err := makePartitions(t.Context(), s.pool, s.Now().AddDate(0, 0, -days/2)); err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	batch := &pgx.Batch{}
	for range 400 {
		queueRandomJob(t, s, batch, random, days)
	}
	if err := s.pool.SendBatch(t.Context(), batch).Close(); err != nil {
		t.Fatal(err)
	}

	jobs, err := s.readJobs(t.Context(), s.pool, "")
	if err != nil || len(jobs) != 400 {
		t.Fatalf("read %d jobs: %v", len(jobs), err)
	}
	got := map[belfry.ID]belfry.Job{}
	for _, job := range jobs {
		got[job.ID] = job
	}
	rows, err := s.pool.Query(t.Context(), statusByDefinition)
	if err != nil {
		t.Fatal(err)
	}
	var (
		id       pgtype.UUID
		state    belfry.JobState
		next     pgtype.Timestamptz
		last     *time.Time
		live     belfry.LiveRuns
		outcome  pgtype.Text
		statuses = map[belfry.JobStatus]int{}
		results  = map[belfry.ResultStatus]int{}
		r        store.Results
		first    bool // no run, or the only run is live
	)
	r.Dead.Status, r.Dead.Failures = belfry.ResultDead, 1
	_, err = pgx.ForEachRow(rows, []any{&id, &state, &next, &live.Running, &live.Waiting, nullTimeColumn{&last}, &outcome,
		&r.Settled.Status, idColumn(&r.Settled.RunID), timeColumn{&r.Settled.At}, idColumn(&r.Dead.RunID), timeColumn{&r.Dead.At}, &first}, func() error {
		job := got[id.Bytes]
		var at *time.Time
		if next.Valid {
			at = &next.Time
		}
		want := belfry.StatusOf(state, at, s.Now(), live, belfry.RunStatus(outcome.String))
		if job.Status != want || fmt.Sprint(job.LastRunAt) != fmt.Sprint(last) {
			t.Errorf("job %s is %s and ran last at %v, want %s, %v", job.ID, job.Status, job.LastRunAt, want, last)
		}
		result, late := r.Last(), job.LastResult
		partly := result != nil && (result.Status == belfry.ResultDead || live.Running+live.Waiting > 0)
		if !first && !reflect.DeepEqual(late, result) && !(partly && late != nil && late.At.After(result.At)) {
			t.Errorf("the last result of job %s is %+v, want %+v", job.ID, job.LastResult, result)
		} else if result != nil {
			results[result.Status]++
		}
		statuses[want]++
		return nil
	})
	if err != nil || len(statuses) != 7 || len(results) != 5 {
		t.Errorf("the statuses are %v, the results %v, want seven and five: %v", statuses, results, err)
	}
}

// queueRandomJob makes a job with a history of some days: occurrences that were run,
// skipped alone or in ranges, dead or still live, triggered runs, runs that took days to
// settle, and notes about clock changes and updates of time-zone data.
func queueRandomJob(t *testing.T, s *Store, batch *pgx.Batch, random *rand.Rand, days int) {
	job := newJob(t, s)
	id, now := uuid(job.Job.ID), s.Now()
	at := now.Add(-time.Duration(1+random.IntN(days*24)) * time.Hour)
	var mark time.Time
	made, triggered, live := 0, 0, false
	for range random.IntN(5) {
		first := at
		settled := at.Add(time.Duration(random.IntN(60)) * time.Second)
		if random.IntN(5) == 0 {
			settled = settled.Add(time.Duration(random.IntN(10*24)) * time.Hour)
		}
		manual := random.IntN(4) == 0
		count := &made
		if manual && random.IntN(5) > 0 { // the others count as made
			count = &triggered
		}
		if random.IntN(4) == 0 {
			reason := []belfry.Reason{belfry.ReasonDSTGap, belfry.ReasonZoneChange}[random.IntN(2)]
			queueHistory(batch, id, belfry.RunSkipped, reason, at.Add(time.Duration(random.IntN(9)-4)*24*time.Hour), settled)
		}
		switch random.IntN(6) {
		case 0, 1, 2:
			state := []belfry.RunStatus{belfry.RunSucceeded, belfry.RunSucceeded, belfry.RunCancelled, belfry.RunDiscarded}[random.IntN(4)]
			queueHistory(batch, id, state, "", first, settled)
			*count++
		case 3:
			if random.IntN(2) == 0 && !manual { // a range, recorded at its end
				at = at.Add(time.Duration(random.IntN(10*24)) * time.Hour)
				settled = at
			} else {
				*count++ // skipped because an earlier run was live
			}
			queueHistory(batch, id, belfry.RunSkipped, belfry.ReasonMissed, first, settled)
		case 4:
			queueDead(batch, id, first, settled)
			*count++
		case 5:
			if live {
				continue
			}
			state := []string{"ready", "running"}[random.IntN(2)]
			batch.Queue(`INSERT INTO belfry.runs (id, shard, namespace, job_id, revision, kind, lane, state, rank, scheduled_at, ready_at, fired_at, fired_by, epoch,
				timeout_ms, attempt, failures, lost, worker, token, deadline_at)
				SELECT gen_random_uuid(), 0, 'default', $1::uuid, 1, 'scheduled', 'x', $3::text, 1, $2::timestamptz, $2, $2, $1, 1, 1, 1, 0, 0, held, held, CASE WHEN held IS NOT NULL THEN $2::timestamptz END
				FROM (SELECT CASE WHEN $3 = 'running' THEN $1::uuid END AS held) x`, id, first, state)
			live = true
			*count++
		}
		if !manual {
			mark = at
		}
		at = at.Add(time.Duration(1+random.IntN(72)) * time.Hour)
	}
	if random.IntN(3) == 0 { // an edit moved the high-water mark to where there is no occurrence
		mark = at.Add(time.Duration(random.IntN(72)) * time.Hour)
	}
	state, next := belfry.JobActive, pgtype.Timestamptz{}
	created := now.AddDate(0, 0, -2*days)
	edited := created
	switch random.IntN(7) {
	case 0:
		state = belfry.JobPaused
	case 1:
		next = timestamptz(now.AddDate(1, 0, 0))
	case 2, 3: // it was cancelled before another occurrence, some time after the last
		edited = at.Add(time.Duration(random.IntN(10*24)) * time.Hour)
		queueHistory(batch, id, belfry.RunSkipped, belfry.ReasonCancelled, edited.Add(time.Hour), edited.Add(time.Millisecond))
	case 4:
		edited = now
	case 5: // the same, but a run was fired before that occurrence
		edited = at.Add(time.Duration(random.IntN(10*24)) * time.Hour)
		queueHistory(batch, id, belfry.RunSkipped, belfry.ReasonCancelled, edited.Add(time.Duration(2+random.IntN(100))*time.Hour), edited.Add(time.Millisecond))
		at = edited.Add(time.Hour)
		if mark, made = at, made+1; random.IntN(3) == 0 {
			queueDead(batch, id, at, at.Add(time.Second))
		} else {
			queueHistory(batch, id, belfry.RunSucceeded, "", at, at.Add(time.Second))
		}
	}
	batch.Queue(`INSERT INTO belfry.jobs (id, shard, namespace, revision, state, spec, created_at, updated_at, queue, type)
		VALUES ($1, 0, 'default', 1, $2, '{}', $3, $4, 'default', 'http')`, id, string(state), created, edited)
	batch.Queue(`INSERT INTO belfry.plans (job_id, shard, version, next_at, nominal_at, fired_for, runs_made, runs_triggered, zone_version) VALUES ($1, 0, 1, $2, $2, $3, $4, $5, '')`,
		id, next, timestamptz(mark), made, triggered)
}

func queueHistory(batch *pgx.Batch, job pgtype.UUID, state belfry.RunStatus, reason belfry.Reason, at, settled time.Time) {
	batch.Queue(`INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
		attempt, settled_at, http_status, error, output, skipped_count)
		VALUES (gen_random_uuid(), 0, 'default', $1, 1, 'scheduled', $2, $5, $3, $3, $3, $1, 1, 1, $4, 200, '', '', 0)`, job, string(state), at, settled, string(reason))
}

func queueDead(batch *pgx.Batch, job pgtype.UUID, at, died time.Time) {
	batch.Queue(`INSERT INTO belfry.dead (id, shard, namespace, job_id, revision, kind, lane, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
		timeout_ms, attempt, failures, lost, died_at, fingerprint)
		VALUES (gen_random_uuid(), 0, 'default', $1, 1, 'scheduled', 'x', 'out_of_retries', $2, $2, $2, $1, 1, 1, 1, 1, 0, $3, 'x')`, job, at, died)
}
