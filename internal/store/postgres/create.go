package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	fewJobs      = 50      // go to the server in one statement
	jobsAtATime  = 5000    // go to the server in one COPY
	bytesAtATime = 4 << 20 // of payload, so that large ones do not pile up
)

var (
	jobColumns  = []string{"id", "shard", "namespace", "name", "revision", "state", "spec", "payload", "created_at", "updated_at"}
	planColumns = []string{"job_id", "shard", "version", "next_at", "nominal_at", "fired_for", "runs_made", "zone_version"}
)

// CreateJobs stores new jobs with their plans, all or none: a few in one
// statement, many by COPY.
func (s *Store) CreateJobs(ctx context.Context, jobs iter.Seq2[store.NewJob, error]) error {
	ctx, cancel, err := detach(ctx, bulkTimeout)
	if err != nil {
		return err
	}
	defer cancel()
	next, stop := iter.Pull2(jobs)
	defer stop()
	batch, whole, err := take(next, nil, fewJobs+1)
	if err != nil || len(batch) == 0 {
		return err
	}
	var ids []belfry.ID
	if whole {
		ids, err = idsOf(nil, batch), s.insertFew(ctx, batch)
	} else {
		ids, err = s.insertMany(ctx, batch, next)
	}
	if err != nil {
		return s.whyNotCreated(ctx, ids, err)
	}
	s.hints.tellChanged(len(ids) > fewJobs, ids...)
	return nil
}

func idsOf(ids []belfry.ID, jobs []store.NewJob) []belfry.ID {
	for i := range jobs {
		ids = append(ids, jobs[i].Job.ID)
	}
	return ids
}

// take adds jobs to the batch until it has n, or enough bytes, or all: then
// whole is true.
func take(next func() (store.NewJob, error, bool), batch []store.NewJob, n int) (full []store.NewJob, whole bool, err error) {
	for bytes := 0; len(batch) < n && bytes < bytesAtATime; {
		job, err, ok := next()
		if !ok || err != nil {
			return batch, !ok, err
		}
		batch = append(batch, job)
		bytes += len(job.Job.Payload)
	}
	return batch, false, nil
}

// insertMany stores the batch and all that follows, and gives the ids so far.
func (s *Store) insertMany(ctx context.Context, batch []store.NewJob, next func() (store.NewJob, error, bool)) (ids []belfry.ID, err error) {
	err = pgx.BeginFunc(ctx, s.work, func(tx pgx.Tx) error {
		// A caller may need longer to produce the next jobs than a session may idle.
		if _, err := tx.Exec(ctx, `SET LOCAL idle_in_transaction_session_timeout = '60s'`); err != nil {
			return err
		}
		for whole := false; !whole; batch = batch[:0] {
			var err error
			if batch, whole, err = take(next, batch, jobsAtATime); err != nil {
				return err
			}
			ids = idsOf(ids, batch)
			if err := copyJobs(ctx, tx, batch); err != nil {
				return err
			}
		}
		return nil
	})
	return ids, err
}

func copyJobs(ctx context.Context, tx pgx.Tx, jobs []store.NewJob) error {
	if len(jobs) == 0 {
		return nil
	}
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{"belfry", "jobs"}, jobColumns, pgx.CopyFromSlice(len(jobs), func(i int) ([]any, error) {
		j := &jobs[i].Job
		spec, err := json.Marshal(j.Spec)
		return []any{uuid(j.ID), jobs[i].Plan.Shard, j.Namespace, text(j.Name), j.Revision, string(j.State), string(spec),
			text(string(j.Payload)), j.CreatedAt, j.CreatedAt}, err
	})); err != nil {
		return err
	}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"belfry", "plans"}, planColumns, pgx.CopyFromSlice(len(jobs), func(i int) ([]any, error) {
		p := &jobs[i].Plan
		return []any{uuid(p.JobID), p.Shard, p.Version, stamp(p.NextAt), stamp(p.NominalAt), stamp(p.FiredFor), p.RunsMade, p.ZoneVersion}, nil
	}))
	return err
}

func (s *Store) insertFew(ctx context.Context, jobs []store.NewJob) error {
	n := len(jobs)
	var (
		ids                       = make([]pgtype.UUID, n)
		shards, revisions         = make([]int32, n), make([]int32, n)
		namespaces, states, specs = make([]string, n), make([]string, n), make([]string, n)
		names, payloads           = make([]pgtype.Text, n), make([]pgtype.Text, n)
		created                   = make([]time.Time, n)
		versions, made            = make([]int64, n), make([]int64, n)
		nexts, nominals, marks    = make([]pgtype.Timestamptz, n), make([]pgtype.Timestamptz, n), make([]pgtype.Timestamptz, n)
		zones                     = make([]string, n)
	)
	for i := range jobs {
		j, p := &jobs[i].Job, &jobs[i].Plan
		spec, err := json.Marshal(j.Spec)
		if err != nil {
			return err
		}
		ids[i], shards[i], revisions[i] = uuid(j.ID), int32(p.Shard), int32(j.Revision)
		namespaces[i], states[i], specs[i] = j.Namespace, string(j.State), string(spec)
		names[i], payloads[i], created[i] = text(j.Name), text(string(j.Payload)), j.CreatedAt
		versions[i], made[i], zones[i] = p.Version, p.RunsMade, p.ZoneVersion
		nexts[i], nominals[i], marks[i] = stamp(p.NextAt), stamp(p.NominalAt), stamp(p.FiredFor)
	}
	_, err := s.work.Exec(ctx, `/* create */
WITH job AS (
  INSERT INTO belfry.jobs (id, shard, namespace, name, revision, state, spec, payload, created_at, updated_at)
  SELECT id, shard, namespace, name, revision, state, spec, payload, created_at, created_at
    FROM unnest($1::uuid[], $2::integer[], $3::text[], $4::text[], $5::integer[], $6::text[], $7::text[], $8::text[], $9::timestamptz[])
      AS j (id, shard, namespace, name, revision, state, spec, payload, created_at))
INSERT INTO belfry.plans (job_id, shard, version, next_at, nominal_at, fired_for, runs_made, zone_version)
SELECT * FROM unnest($1::uuid[], $2::integer[], $10::bigint[], $11::timestamptz[], $12::timestamptz[], $13::timestamptz[], $14::bigint[], $15::text[])`,
		ids, shards, namespaces, names, revisions, states, specs, payloads, created, versions, nexts, nominals, marks, made, zones)
	return err
}

// whyNotCreated explains an error. A key that is there already may be our own:
// the reply to an earlier commit of the same jobs was lost.
func (s *Store) whyNotCreated(ctx context.Context, ids []belfry.ID, err error) error {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != "23505" {
		return failed("create jobs", err)
	}
	var there int
	if err := s.work.QueryRow(ctx, `SELECT count(*) FROM belfry.jobs WHERE id = ANY($1)`, uuids(ids)).Scan(&there); err != nil {
		return failed("create jobs", err)
	}
	if there == len(ids) {
		return nil
	}
	if refused.ConstraintName != "jobs_name" {
		return belfry.Errorf(belfry.Conflict, "one of the jobs is there already: %w", err)
	}
	return failed("create jobs", nameTaken(err, takenName(refused.Detail)))
}

// takenName finds the name in a detail such as
// "Key (namespace, name)=(default, report) already exists.".
func takenName(detail string) string {
	_, key, _ := strings.Cut(detail, ")=(")
	key, _, _ = strings.Cut(key, ") already exists")
	_, name, _ := strings.Cut(key, ", ")
	return name
}
