package postgres

import (
	"context"
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
	maxInsertJobs  = 50      // in one INSERT; more are copied
	copyBatchJobs  = 5000    // in one COPY
	copyBatchBytes = 4 << 20 // of payload in one COPY
)

var (
	jobColumns = []string{"id", "shard", "namespace", "name", "revision", "state", "spec", "payload", "created_at", "updated_at",
		"tags", "queue", "type", "handler", "trigrams"}
	planColumns = []string{"job_id", "shard", "version", "next_at", "nominal_at", "fired_for", "runs_made", "zone_version", "one_off"}
)

// CreateJobs stores a few jobs in one statement, and many by COPY.
func (s *Store) CreateJobs(ctx context.Context, jobs iter.Seq2[store.NewJob, error], r *store.Request) error {
	ctx, cancel := detach(ctx, bulkTimeout)
	defer cancel()
	next, end := iter.Pull2(jobs)
	batches := &jobBatcher{next: next, end: end}
	defer batches.stop()
	first := batches.fill(nil, maxInsertJobs+1)
	if first.err != nil || len(first.jobs) == 0 && r == nil {
		return first.err
	}
	var ids []belfry.ID
	var err error
	if first.last && r == nil && len(oneOffIDs(first.jobs)) == 0 {
		ids, err = appendJobIDs(nil, first.jobs), insertJobs(ctx, s.pool, first.jobs)
	} else {
		err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			return withRequestKey(ctx, tx, r, func() error {
				if !first.last {
					return copyAllJobs(ctx, tx, first, batches, &ids)
				}
				ids = appendJobIDs(nil, first.jobs)
				if err := insertJobs(ctx, tx, first.jobs); err != nil {
					return err
				}
				return checkNotEnded(ctx, tx, first.jobs)
			})
		})
	}
	if err != nil {
		return s.createError(ctx, ids, r, err)
	}
	s.notifier.notifyPlans(len(ids) > maxInsertJobs, ids...)
	return nil
}

func appendJobIDs(ids []belfry.ID, jobs []store.NewJob) []belfry.ID {
	for i := range jobs {
		ids = append(ids, jobs[i].Job.ID)
	}
	return ids
}

func oneOffIDs(jobs []store.NewJob) (ids []pgtype.UUID) {
	for i := range jobs {
		if jobs[i].Plan.Once {
			ids = append(ids, uuid(jobs[i].Job.ID))
		}
	}
	return ids
}

var errAlreadyEnded = errors.New("a job with this id has ended already")

// checkNotEnded fails if one of the jobs, which were just inserted, was created before
// and has ended since: the reply to an earlier call was lost.
func checkNotEnded(ctx context.Context, tx pgx.Tx, jobs []store.NewJob) error {
	oneOffs := oneOffIDs(jobs)
	if len(oneOffs) == 0 {
		return nil
	}
	var ended bool
	err := tx.QueryRow(ctx, `/* create */ SELECT EXISTS (SELECT 1 FROM belfry.ended WHERE id = ANY($1))`, oneOffs).Scan(&ended)
	if err == nil && ended {
		return errAlreadyEnded
	}
	return err
}

func copyAllJobs(ctx context.Context, tx pgx.Tx, first jobBatch, batches *jobBatcher, ids *[]belfry.ID) error {
	// A caller may need longer to produce the next jobs than a session may idle.
	if _, err := tx.Exec(ctx, `SET LOCAL idle_in_transaction_session_timeout = '60s'`); err != nil {
		return err
	}
	for b := batches.fill(first.jobs, copyBatchJobs); ; b = batches.prefetched() {
		if b.err != nil {
			return b.err
		}
		if !b.last {
			batches.prefetch(copyBatchJobs)
		}
		*ids = appendJobIDs(*ids, b.jobs)
		if err := copyJobs(ctx, tx, b.jobs); err != nil {
			return err
		}
		if err := checkNotEnded(ctx, tx, b.jobs); err != nil || b.last {
			return err
		}
		clear(b.jobs)
		batches.spare = b.jobs[:0]
	}
}

func copyJobs(ctx context.Context, tx pgx.Tx, jobs []store.NewJob) error {
	if len(jobs) == 0 {
		return nil
	}
	var specs store.SpecEncoder
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{"belfry", "jobs"}, jobColumns, pgx.CopyFromSlice(len(jobs), func(i int) ([]any, error) {
		j := &jobs[i].Job
		spec, err := specs.Encode(j.Spec)
		return []any{uuid(j.ID), jobs[i].Plan.Shard, j.Namespace, text(j.Name), j.Revision, string(j.State), spec,
			text(string(j.Payload)), j.CreatedAt, j.CreatedAt,
			tagsColumn(j), storable(j.Queue), storable(j.Type), handlerColumn(j.Spec), jobTrigrams(j)}, err
	})); err != nil {
		return err
	}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"belfry", "plans"}, planColumns, pgx.CopyFromSlice(len(jobs), func(i int) ([]any, error) {
		p := &jobs[i].Plan
		return []any{uuid(p.JobID), p.Shard, p.Version, timestamptz(p.NextAt), timestamptz(p.NominalAt), timestamptz(p.FiredFor), p.RunsMade, p.ZoneVersion, p.Once}, nil
	}))
	return err
}

// insertJobs stores jobs and plans in one statement. Arrays within an array are passed
// as text.
func insertJobs(ctx context.Context, q querier, jobs []store.NewJob) error {
	if len(jobs) == 0 {
		return nil
	}
	type row = store.NewJob
	var encoder store.SpecEncoder
	specs := make([]string, len(jobs))
	for i := range jobs {
		var err error
		if specs[i], err = encoder.Encode(jobs[i].Job.Spec); err != nil {
			return err
		}
	}
	_, err := q.Exec(ctx, `/* create */
WITH job AS (
  INSERT INTO belfry.jobs (id, shard, namespace, name, revision, state, spec, payload, created_at, updated_at, tags, queue, type, handler, trigrams)
  SELECT id, shard, namespace, name, revision, state, spec, payload, created_at, created_at, tags::text[], queue, type, handler, trigrams::bigint[]
    FROM unnest($1::uuid[], $2::integer[], $3::text[], $4::text[], $5::integer[], $6::text[], $7::text[], $8::text[], $9::timestamptz[],
                $16::text[], $17::text[], $18::text[], $19::text[], $20::text[])
      AS j (id, shard, namespace, name, revision, state, spec, payload, created_at, tags, queue, type, handler, trigrams))
INSERT INTO belfry.plans (job_id, shard, version, next_at, nominal_at, fired_for, runs_made, zone_version, one_off)
SELECT * FROM unnest($1::uuid[], $2::integer[], $10::bigint[], $11::timestamptz[], $12::timestamptz[], $13::timestamptz[], $14::bigint[], $15::text[], $21::boolean[])`,
		column(jobs, func(r *row) pgtype.UUID { return uuid(r.Job.ID) }),
		column(jobs, func(r *row) int32 { return int32(r.Plan.Shard) }),
		column(jobs, func(r *row) string { return r.Job.Namespace }),
		column(jobs, func(r *row) pgtype.Text { return text(r.Job.Name) }),
		column(jobs, func(r *row) int32 { return int32(r.Job.Revision) }),
		column(jobs, func(r *row) string { return string(r.Job.State) }),
		specs,
		column(jobs, func(r *row) pgtype.Text { return text(string(r.Job.Payload)) }),
		column(jobs, func(r *row) time.Time { return r.Job.CreatedAt }),
		column(jobs, func(r *row) int64 { return r.Plan.Version }),
		column(jobs, func(r *row) pgtype.Timestamptz { return timestamptz(r.Plan.NextAt) }),
		column(jobs, func(r *row) pgtype.Timestamptz { return timestamptz(r.Plan.NominalAt) }),
		column(jobs, func(r *row) pgtype.Timestamptz { return timestamptz(r.Plan.FiredFor) }),
		column(jobs, func(r *row) int64 { return r.Plan.RunsMade }),
		column(jobs, func(r *row) string { return r.Plan.ZoneVersion }),
		column(jobs, func(r *row) pgtype.Text { return arrayLiteral(tagsColumn(&r.Job)) }),
		column(jobs, func(r *row) string { return storable(r.Job.Queue) }),
		column(jobs, func(r *row) string { return storable(r.Job.Type) }),
		column(jobs, func(r *row) pgtype.Text { return handlerColumn(r.Job.Spec) }),
		column(jobs, func(r *row) pgtype.Text { return arrayLiteral(jobTrigrams(&r.Job)) }),
		column(jobs, func(r *row) bool { return r.Plan.Once }))
	return err
}

// createError explains why jobs were not created. An id that exists already may be our
// own: the reply to an earlier commit of the same jobs was lost. With a request it is
// not, since the key of the request would have been found first.
func (s *Store) createError(ctx context.Context, ids []belfry.ID, r *store.Request, err error) error {
	var refused *pgconn.PgError
	if taken := errors.As(err, &refused) && refused.Code == uniqueViolation; !taken && !errors.Is(err, errAlreadyEnded) {
		return wrapError("create jobs", err)
	}
	if r == nil {
		var existing int
		if err := s.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM belfry.jobs WHERE id = ANY($1)) + (SELECT count(*) FROM belfry.ended WHERE id = ANY($1))`,
			uuids(ids)).Scan(&existing); err != nil {
			return wrapError("create jobs", err)
		}
		if existing == len(ids) {
			return nil
		}
	}
	if refused == nil || refused.ConstraintName != "jobs_name" {
		return belfry.Errorf(belfry.Conflict, "one of the jobs exists already: %w", err)
	}
	return wrapError("create jobs", nameConflict(err, duplicateName(refused.Detail)))
}

// duplicateName finds the name in a detail such as
// "Key (namespace, name)=(default, report) already exists.".
func duplicateName(detail string) string {
	_, key, _ := strings.Cut(detail, ")=(")
	key, _, _ = strings.Cut(key, ") already exists")
	_, name, _ := strings.Cut(key, ", ")
	return name
}

// jobBatcher reads batches of new jobs from a sequence. It produces the next batch
// while the one before is sent to the server.
type jobBatcher struct {
	next    func() (store.NewJob, error, bool)
	end     func()
	pending chan jobBatch  // nil: nothing is being prefetched
	spare   []store.NewJob // memory of an earlier batch
}

// jobBatch is some jobs of a sequence, or why there are no more.
type jobBatch struct {
	jobs  []store.NewJob
	last  bool
	err   error
	panic any // of the sequence
}

// fill appends to jobs until there are n, the batch has enough bytes, or the sequence
// ends.
func (b *jobBatcher) fill(jobs []store.NewJob, n int) jobBatch {
	for bytes := 0; len(jobs) < n && bytes < copyBatchBytes; {
		job, err, ok := b.next()
		if !ok || err != nil {
			return jobBatch{jobs: jobs, last: !ok, err: err}
		}
		jobs = append(jobs, job)
		bytes += len(job.Job.Payload)
	}
	return jobBatch{jobs: jobs}
}

func (b *jobBatcher) prefetch(n int) {
	b.pending = make(chan jobBatch, 1)
	go func(spare []store.NewJob, pending chan<- jobBatch) {
		var batch jobBatch
		defer func() {
			batch.panic = recover()
			pending <- batch
		}()
		batch = b.fill(spare, n)
	}(b.spare, b.pending)
	b.spare = nil
}

// prefetched waits for the batch. A panic of the sequence continues here, in the
// goroutine of the caller.
func (b *jobBatcher) prefetched() jobBatch {
	batch := <-b.pending
	b.pending = nil
	if batch.panic != nil {
		panic(batch.panic)
	}
	return batch
}

// stop ends the sequence, after a prefetch has returned.
func (b *jobBatcher) stop() {
	if b.pending != nil {
		<-b.pending
	}
	b.end()
}
