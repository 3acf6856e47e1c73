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
	maxInsertJobs  = 50      // go to the server in one statement
	copyBatchJobs  = 5000    // go to the server in one COPY
	copyBatchBytes = 4 << 20 // of payload, so that large ones do not pile up
)

var (
	jobColumns = []string{"id", "shard", "namespace", "name", "revision", "state", "spec", "payload", "created_at", "updated_at",
		"tags", "queue", "type", "handler", "grams"}
	planColumns = []string{"job_id", "shard", "version", "next_at", "nominal_at", "fired_for", "runs_made", "zone_version", "once"}
)

// CreateJobs stores new jobs with their plans, all or none: a few in one
// statement, many by COPY. Those of a request come with its key and answer.
func (s *Store) CreateJobs(ctx context.Context, jobs iter.Seq2[store.NewJob, error], r *store.Request) error {
	ctx, cancel, err := detach(ctx, bulkTimeout)
	if err != nil {
		return err
	}
	defer cancel()
	in := newJobBatcher(jobs)
	defer in.stop()
	first := in.fill(nil, maxInsertJobs+1)
	if first.err != nil || len(first.jobs) == 0 && r == nil {
		return first.err
	}
	var ids []belfry.ID
	if first.last && r == nil && len(oneOffIDs(first.jobs)) == 0 {
		ids, err = appendJobIDs(nil, first.jobs), insertJobs(ctx, s.pool, first.jobs)
	} else {
		err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			return withRequestKey(ctx, tx, r, func() error {
				if !first.last {
					return copyAllJobs(ctx, tx, first, in, &ids)
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

// onceOf gives the ids of the one-offs.
func oneOffIDs(jobs []store.NewJob) (ids []pgtype.UUID) {
	for i := range jobs {
		if jobs[i].Plan.Once {
			ids = append(ids, uuid(jobs[i].Job.ID))
		}
	}
	return ids
}

// errEnded says that a job was there before, and has ended since.
var errAlreadyEnded = errors.New("a job with this id has ended already")

// notEnded makes sure that none of the jobs, which were just stored, has ended
// before: then the reply to an earlier call was lost.
func checkNotEnded(ctx context.Context, tx pgx.Tx, jobs []store.NewJob) error {
	once := oneOffIDs(jobs)
	if len(once) == 0 {
		return nil
	}
	var ended bool
	err := tx.QueryRow(ctx, `/* create */ SELECT EXISTS (SELECT 1 FROM belfry.ended WHERE id = ANY($1))`, once).Scan(&ended)
	if err == nil && ended {
		return errAlreadyEnded
	}
	return err
}

// insertMany stores the first jobs and all that follow, and notes the ids so far.
func copyAllJobs(ctx context.Context, tx pgx.Tx, first jobBatch, in *jobBatcher, ids *[]belfry.ID) error {
	// A caller may need longer to produce the next jobs than a session may idle.
	if _, err := tx.Exec(ctx, `SET LOCAL idle_in_transaction_session_timeout = '60s'`); err != nil {
		return err
	}
	for b := in.fill(first.jobs, copyBatchJobs); ; b = in.prefetched() {
		if b.err != nil {
			return b.err
		}
		if !b.last {
			in.prefetch(copyBatchJobs)
		}
		*ids = appendJobIDs(*ids, b.jobs)
		if err := copyJobs(ctx, tx, b.jobs); err != nil {
			return err
		}
		if err := checkNotEnded(ctx, tx, b.jobs); err != nil || b.last {
			return err
		}
		in.reuse(b.jobs)
	}
}

func copyJobs(ctx context.Context, tx pgx.Tx, jobs []store.NewJob) error {
	if len(jobs) == 0 {
		return nil
	}
	var specs specEncoder
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{"belfry", "jobs"}, jobColumns, pgx.CopyFromSlice(len(jobs), func(i int) ([]any, error) {
		j := &jobs[i].Job
		spec, err := specs.encode(j.Spec)
		return []any{uuid(j.ID), jobs[i].Plan.Shard, j.Namespace, text(j.Name), j.Revision, string(j.State), spec,
			text(string(j.Payload)), j.CreatedAt, j.CreatedAt,
			tagsColumn(j), storable(j.Queue), storable(j.Type), handlerColumn(j.Spec), nameTrigrams(j.Name)}, err
	})); err != nil {
		return err
	}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"belfry", "plans"}, planColumns, pgx.CopyFromSlice(len(jobs), func(i int) ([]any, error) {
		p := &jobs[i].Plan
		return []any{uuid(p.JobID), p.Shard, p.Version, timestamptz(p.NextAt), timestamptz(p.NominalAt), timestamptz(p.FiredFor), p.RunsMade, p.ZoneVersion, p.Once}, nil
	}))
	return err
}

// insertFew stores jobs and plans in one statement. Lists within a list travel as
// the text of an array.
func insertJobs(ctx context.Context, q querier, jobs []store.NewJob) error {
	n := len(jobs)
	if n == 0 {
		return nil
	}
	var (
		ids                       = make([]pgtype.UUID, n)
		shards, revisions         = make([]int32, n), make([]int32, n)
		namespaces, states, specs = make([]string, n), make([]string, n), make([]string, n)
		names, payloads           = make([]pgtype.Text, n), make([]pgtype.Text, n)
		created                   = make([]time.Time, n)
		tags, grams, handlers     = make([]pgtype.Text, n), make([]pgtype.Text, n), make([]pgtype.Text, n)
		queues, types             = make([]string, n), make([]string, n)
		versions, made            = make([]int64, n), make([]int64, n)
		nexts, nominals, marks    = make([]pgtype.Timestamptz, n), make([]pgtype.Timestamptz, n), make([]pgtype.Timestamptz, n)
		zones                     = make([]string, n)
		onces                     = make([]bool, n)
		texts                     specEncoder
		err                       error
	)
	for i := range jobs {
		j, p := &jobs[i].Job, &jobs[i].Plan
		if specs[i], err = texts.encode(j.Spec); err != nil {
			return err
		}
		ids[i], shards[i], revisions[i] = uuid(j.ID), int32(p.Shard), int32(j.Revision)
		namespaces[i], states[i] = j.Namespace, string(j.State)
		names[i], payloads[i], created[i] = text(j.Name), text(string(j.Payload)), j.CreatedAt
		tags[i], grams[i], handlers[i] = arrayLiteral(tagsColumn(j)), arrayLiteral(nameTrigrams(j.Name)), handlerColumn(j.Spec)
		queues[i], types[i] = storable(j.Queue), storable(j.Type)
		versions[i], made[i], zones[i], onces[i] = p.Version, p.RunsMade, p.ZoneVersion, p.Once
		nexts[i], nominals[i], marks[i] = timestamptz(p.NextAt), timestamptz(p.NominalAt), timestamptz(p.FiredFor)
	}
	_, err = q.Exec(ctx, `/* create */
WITH job AS (
  INSERT INTO belfry.jobs (id, shard, namespace, name, revision, state, spec, payload, created_at, updated_at, tags, queue, type, handler, grams)
  SELECT id, shard, namespace, name, revision, state, spec, payload, created_at, created_at, tags::text[], queue, type, handler, grams::bigint[]
    FROM unnest($1::uuid[], $2::integer[], $3::text[], $4::text[], $5::integer[], $6::text[], $7::text[], $8::text[], $9::timestamptz[],
                $16::text[], $17::text[], $18::text[], $19::text[], $20::text[])
      AS j (id, shard, namespace, name, revision, state, spec, payload, created_at, tags, queue, type, handler, grams))
INSERT INTO belfry.plans (job_id, shard, version, next_at, nominal_at, fired_for, runs_made, zone_version, once)
SELECT * FROM unnest($1::uuid[], $2::integer[], $10::bigint[], $11::timestamptz[], $12::timestamptz[], $13::timestamptz[], $14::bigint[], $15::text[], $21::boolean[])`,
		ids, shards, namespaces, names, revisions, states, specs, payloads, created, versions, nexts, nominals, marks, made, zones,
		tags, queues, types, handlers, grams, onces)
	return err
}

// whyNotCreated explains an error. A key that is there already may be our own:
// the reply to an earlier commit of the same jobs was lost. Under the key of a
// request it is not: that would have been found first.
func (s *Store) createError(ctx context.Context, ids []belfry.ID, r *store.Request, err error) error {
	var refused *pgconn.PgError
	if taken := errors.As(err, &refused) && refused.Code == "23505"; !taken && !errors.Is(err, errAlreadyEnded) {
		return wrapError("create jobs", err)
	}
	if r == nil {
		var there int
		if err := s.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM belfry.jobs WHERE id = ANY($1)) + (SELECT count(*) FROM belfry.ended WHERE id = ANY($1))`,
			uuids(ids)).Scan(&there); err != nil {
			return wrapError("create jobs", err)
		}
		if there == len(ids) {
			return nil
		}
	}
	if refused == nil || refused.ConstraintName != "jobs_name" {
		return belfry.Errorf(belfry.Conflict, "one of the jobs is there already: %w", err)
	}
	return wrapError("create jobs", nameConflict(err, duplicateName(refused.Detail)))
}

// takenName finds the name in a detail such as
// "Key (namespace, name)=(default, report) already exists.".
func duplicateName(detail string) string {
	_, key, _ := strings.Cut(detail, ")=(")
	key, _, _ = strings.Cut(key, ") already exists")
	_, name, _ := strings.Cut(key, ", ")
	return name
}

// supply takes new jobs from a sequence in batches. The next batch is produced
// while the one before travels to the server.
type jobBatcher struct {
	next    func() (store.NewJob, error, bool)
	end     func()
	pending chan jobBatch // nil: nothing was fetched
	spare   []store.NewJob
}

// batch is some jobs of a sequence, or why there are no more.
type jobBatch struct {
	jobs  []store.NewJob
	last  bool
	err   error
	panic any // of the sequence
}

func newJobBatcher(jobs iter.Seq2[store.NewJob, error]) *jobBatcher {
	next, end := iter.Pull2(jobs)
	return &jobBatcher{next: next, end: end}
}

// take adds jobs to those that are there until there are n, or enough bytes, or
// all.
func (s *jobBatcher) fill(jobs []store.NewJob, n int) jobBatch {
	for bytes := 0; len(jobs) < n && bytes < copyBatchBytes; {
		job, err, ok := s.next()
		if !ok || err != nil {
			return jobBatch{jobs: jobs, last: !ok, err: err}
		}
		jobs = append(jobs, job)
		bytes += len(job.Job.Payload)
	}
	return jobBatch{jobs: jobs}
}

// fetch begins to take a batch of n in the background.
func (s *jobBatcher) prefetch(n int) {
	s.pending = make(chan jobBatch, 1)
	go func(spare []store.NewJob, coming chan<- jobBatch) {
		var b jobBatch
		defer func() {
			b.panic = recover()
			coming <- b
		}()
		b = s.fill(spare, n)
	}(s.spare, s.pending)
	s.spare = nil
}

// wait gives the batch that was fetched. A panic of the sequence goes on here,
// where somebody may expect it.
func (s *jobBatcher) prefetched() jobBatch {
	b := <-s.pending
	s.pending = nil
	if b.panic != nil {
		panic(b.panic)
	}
	return b
}

// reuse gives a batch's memory to one that is fetched later.
func (s *jobBatcher) reuse(jobs []store.NewJob) {
	clear(jobs)
	s.spare = jobs[:0]
}

// stop ends the sequence, once nobody asks it for jobs any more.
func (s *jobBatcher) stop() {
	if s.pending != nil {
		<-s.pending
	}
	s.end()
}
