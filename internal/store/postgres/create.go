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
	fewJobs      = 50      // go to the server in one statement
	jobsAtATime  = 5000    // go to the server in one COPY
	bytesAtATime = 4 << 20 // of payload, so that large ones do not pile up
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
	in := newSupply(jobs)
	defer in.stop()
	first := in.take(nil, fewJobs+1)
	if first.err != nil || len(first.jobs) == 0 && r == nil {
		return first.err
	}
	var ids []belfry.ID
	if first.last && r == nil && len(onceOf(first.jobs)) == 0 {
		ids, err = idsOf(nil, first.jobs), insertFew(ctx, s.work, first.jobs)
	} else {
		err = pgx.BeginFunc(ctx, s.work, func(tx pgx.Tx) error {
			return keyed(ctx, tx, r, func() error {
				if !first.last {
					return insertMany(ctx, tx, first, in, &ids)
				}
				ids = idsOf(nil, first.jobs)
				if err := insertFew(ctx, tx, first.jobs); err != nil {
					return err
				}
				return notEnded(ctx, tx, first.jobs)
			})
		})
	}
	if err != nil {
		return s.whyNotCreated(ctx, ids, r, err)
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

// onceOf gives the ids of the one-offs.
func onceOf(jobs []store.NewJob) (ids []pgtype.UUID) {
	for i := range jobs {
		if jobs[i].Plan.Once {
			ids = append(ids, uuid(jobs[i].Job.ID))
		}
	}
	return ids
}

// errEnded says that a job was there before, and has ended since.
var errEnded = errors.New("a job with this id has ended already")

// notEnded makes sure that none of the jobs, which were just stored, has ended
// before: then the reply to an earlier call was lost.
func notEnded(ctx context.Context, tx pgx.Tx, jobs []store.NewJob) error {
	once := onceOf(jobs)
	if len(once) == 0 {
		return nil
	}
	var ended bool
	err := tx.QueryRow(ctx, `/* create */ SELECT EXISTS (SELECT 1 FROM belfry.ended WHERE id = ANY($1))`, once).Scan(&ended)
	if err == nil && ended {
		return errEnded
	}
	return err
}

// insertMany stores the first jobs and all that follow, and notes the ids so far.
func insertMany(ctx context.Context, tx pgx.Tx, first batch, in *supply, ids *[]belfry.ID) error {
	// A caller may need longer to produce the next jobs than a session may idle.
	if _, err := tx.Exec(ctx, `SET LOCAL idle_in_transaction_session_timeout = '60s'`); err != nil {
		return err
	}
	for b := in.take(first.jobs, jobsAtATime); ; b = in.wait() {
		if b.err != nil {
			return b.err
		}
		if !b.last {
			in.fetch(jobsAtATime)
		}
		*ids = idsOf(*ids, b.jobs)
		if err := copyJobs(ctx, tx, b.jobs); err != nil {
			return err
		}
		if err := notEnded(ctx, tx, b.jobs); err != nil || b.last {
			return err
		}
		in.reuse(b.jobs)
	}
}

func copyJobs(ctx context.Context, tx pgx.Tx, jobs []store.NewJob) error {
	if len(jobs) == 0 {
		return nil
	}
	var specs specTexts
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{"belfry", "jobs"}, jobColumns, pgx.CopyFromSlice(len(jobs), func(i int) ([]any, error) {
		j := &jobs[i].Job
		spec, err := specs.of(j.Spec)
		return []any{uuid(j.ID), jobs[i].Plan.Shard, j.Namespace, text(j.Name), j.Revision, string(j.State), spec,
			text(string(j.Payload)), j.CreatedAt, j.CreatedAt,
			tagsOf(j), storable(j.Queue), storable(j.Type), handlerOf(j.Spec), gramsOf(j.Name)}, err
	})); err != nil {
		return err
	}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"belfry", "plans"}, planColumns, pgx.CopyFromSlice(len(jobs), func(i int) ([]any, error) {
		p := &jobs[i].Plan
		return []any{uuid(p.JobID), p.Shard, p.Version, stamp(p.NextAt), stamp(p.NominalAt), stamp(p.FiredFor), p.RunsMade, p.ZoneVersion, p.Once}, nil
	}))
	return err
}

// insertFew stores jobs and plans in one statement. Lists within a list travel as
// the text of an array.
func insertFew(ctx context.Context, q querier, jobs []store.NewJob) error {
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
		texts                     specTexts
		err                       error
	)
	for i := range jobs {
		j, p := &jobs[i].Job, &jobs[i].Plan
		if specs[i], err = texts.of(j.Spec); err != nil {
			return err
		}
		ids[i], shards[i], revisions[i] = uuid(j.ID), int32(p.Shard), int32(j.Revision)
		namespaces[i], states[i] = j.Namespace, string(j.State)
		names[i], payloads[i], created[i] = text(j.Name), text(string(j.Payload)), j.CreatedAt
		tags[i], grams[i], handlers[i] = arrayOf(tagsOf(j)), arrayOf(gramsOf(j.Name)), handlerOf(j.Spec)
		queues[i], types[i] = storable(j.Queue), storable(j.Type)
		versions[i], made[i], zones[i], onces[i] = p.Version, p.RunsMade, p.ZoneVersion, p.Once
		nexts[i], nominals[i], marks[i] = stamp(p.NextAt), stamp(p.NominalAt), stamp(p.FiredFor)
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
func (s *Store) whyNotCreated(ctx context.Context, ids []belfry.ID, r *store.Request, err error) error {
	var refused *pgconn.PgError
	if taken := errors.As(err, &refused) && refused.Code == "23505"; !taken && !errors.Is(err, errEnded) {
		return failed("create jobs", err)
	}
	if r == nil {
		var there int
		if err := s.work.QueryRow(ctx, `SELECT (SELECT count(*) FROM belfry.jobs WHERE id = ANY($1)) + (SELECT count(*) FROM belfry.ended WHERE id = ANY($1))`,
			uuids(ids)).Scan(&there); err != nil {
			return failed("create jobs", err)
		}
		if there == len(ids) {
			return nil
		}
	}
	if refused == nil || refused.ConstraintName != "jobs_name" {
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
