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
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

const (
	maxInsertJobs  = 50      // in one INSERT; more are copied
	copyBatchJobs  = 5000    // in one COPY
	copyBatchBytes = 4 << 20 // of payload in one COPY
)

var (
	jobColumns = []string{"id", "shard", "namespace", "name", "revision", "state", "spec", "payload", "created_at", "updated_at",
		"tags", "queue", "type", "handler", "trigrams"}
	planColumns = []string{"job_id", "shard", "version", "next_at", "nominal_at", "fired_for", "runs_made", "zone_version", "one_off", "digest"}
)

// CreateJobs stores a few jobs in one statement, and many by COPY.
func (s *Store) CreateJobs(ctx context.Context, jobs iter.Seq2[store.NewJob, error], r *store.Request) error {
	pending, err := store.FillSpool(ctx, "", jobs)
	if err != nil {
		return err
	}
	defer pending.Close()
	if pending.Len() == 0 && r == nil {
		return nil
	}
	limited, err := s.IsLimited(ctx, pending.Usage())
	if err != nil {
		return err
	}
	ctx, cancel := detach(ctx, bulkTimeout)
	defer cancel()
	ids := make([]belfry.ID, 0, pending.Len())
	if few := pending.Len() <= maxInsertJobs; few {
		err = s.createFew(ctx, pending, r, limited, &ids)
	} else {
		err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			return withRequestKey(ctx, tx, r, func() error {
				if err := reserveJobs(ctx, tx, pending, limited); err != nil {
					return err
				}
				return eachBatch(pending, func(rows []store.NewRow) error {
					ids = appendIDs(ids, rows)
					if err := copyJobs(ctx, tx, rows); err != nil {
						return err
					}
					return checkNotEnded(ctx, tx, rows)
				})
			})
		})
	}
	if err != nil {
		return s.createError(ctx, ids, r, err)
	}
	s.notifier.notifyPlans(len(ids) > maxInsertJobs, ids...)
	return nil
}

// createFew stores jobs in one statement, and without a transaction if nothing needs one.
func (s *Store) createFew(ctx context.Context, pending *store.Spool, r *store.Request, limited bool, ids *[]belfry.ID) error {
	var rows []store.NewRow
	if err := pending.Each(func(row *store.NewRow) error {
		rows = append(rows, *row)
		return nil
	}); err != nil {
		return err
	}
	*ids = appendIDs(*ids, rows)
	if r == nil && len(oneOffIDs(rows)) == 0 && !limited {
		return insertJobs(ctx, s.pool, rows)
	}
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		return withRequestKey(ctx, tx, r, func() error {
			if err := reserveJobs(ctx, tx, pending, limited); err != nil {
				return err
			}
			if err := insertJobs(ctx, tx, rows); err != nil {
				return err
			}
			return checkNotEnded(ctx, tx, rows)
		})
	})
}

// reserveJobs makes room for jobs if a namespace of theirs has a quota.
func reserveJobs(ctx context.Context, tx pgx.Tx, pending *store.Spool, limited bool) error {
	if !limited {
		return nil
	}
	return sqlstore.ReserveJobs(sharedTx{ctx, tx, nil}, pending)
}

// eachBatch calls f for the jobs of a spool, as many at once as one COPY takes.
func eachBatch(pending *store.Spool, f func(rows []store.NewRow) error) error {
	var rows []store.NewRow
	bytes := 0
	flush := func() (err error) {
		if len(rows) > 0 {
			err = f(rows)
		}
		clear(rows)
		rows, bytes = rows[:0], 0
		return err
	}
	err := pending.Each(func(row *store.NewRow) error {
		rows, bytes = append(rows, *row), bytes+len(row.Payload)
		if len(rows) < copyBatchJobs && bytes < copyBatchBytes {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
}

func appendIDs(ids []belfry.ID, rows []store.NewRow) []belfry.ID {
	for i := range rows {
		ids = append(ids, rows[i].ID)
	}
	return ids
}

func oneOffIDs(rows []store.NewRow) (ids []pgtype.UUID) {
	for i := range rows {
		if rows[i].Plan.Once {
			ids = append(ids, uuid(rows[i].ID))
		}
	}
	return ids
}

var errAlreadyEnded = errors.New("a job with this id has ended already")

// checkNotEnded fails if one of the jobs, which were just inserted, was created before
// and has ended since: the reply to an earlier call was lost.
func checkNotEnded(ctx context.Context, tx pgx.Tx, rows []store.NewRow) error {
	oneOffs := oneOffIDs(rows)
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

func copyJobs(ctx context.Context, tx pgx.Tx, rows []store.NewRow) error {
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{"belfry", "jobs"}, jobColumns, pgx.CopyFromSlice(len(rows), func(i int) ([]any, error) {
		r := &rows[i]
		return []any{uuid(r.ID), r.Plan.Shard, r.Namespace, text(r.Name), r.Revision, string(r.State), r.Spec,
			text(string(r.Payload)), r.CreatedAt, r.CreatedAt,
			tagsColumn(r.Tags), storable(r.Queue), storable(r.Type), handlerColumn(r.Type, r.Handler), jobTrigrams(r.Name, r.Description)}, nil
	})); err != nil {
		return err
	}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"belfry", "plans"}, planColumns, pgx.CopyFromSlice(len(rows), func(i int) ([]any, error) {
		p := &rows[i].Plan
		return []any{uuid(p.JobID), p.Shard, p.Version, timestamptz(p.NextAt), timestamptz(p.NominalAt), timestamptz(p.FiredFor), p.RunsMade, p.ZoneVersion, p.Once, uuid(rows[i].Digest)}, nil
	}))
	return err
}

// insertJobs stores jobs and plans in one statement. Arrays within an array are passed
// as text.
func insertJobs(ctx context.Context, q querier, rows []store.NewRow) error {
	if len(rows) == 0 {
		return nil
	}
	type row = store.NewRow
	_, err := q.Exec(ctx, `/* create */
WITH job AS (
  INSERT INTO belfry.jobs (id, shard, namespace, name, revision, state, spec, payload, created_at, updated_at, tags, queue, type, handler, trigrams)
  SELECT id, shard, namespace, name, revision, state, spec, payload, created_at, created_at, tags::text[], queue, type, handler, trigrams::bigint[]
    FROM unnest($1::uuid[], $2::integer[], $3::text[], $4::text[], $5::integer[], $6::text[], $7::text[], $8::text[], $9::timestamptz[],
                $16::text[], $17::text[], $18::text[], $19::text[], $20::text[])
      AS j (id, shard, namespace, name, revision, state, spec, payload, created_at, tags, queue, type, handler, trigrams))
INSERT INTO belfry.plans (job_id, shard, version, next_at, nominal_at, fired_for, runs_made, zone_version, one_off, digest)
SELECT * FROM unnest($1::uuid[], $2::integer[], $10::bigint[], $11::timestamptz[], $12::timestamptz[], $13::timestamptz[], $14::bigint[], $15::text[], $21::boolean[], $22::uuid[])`,
		column(rows, func(r *row) pgtype.UUID { return uuid(r.ID) }),
		column(rows, func(r *row) int32 { return int32(r.Plan.Shard) }),
		column(rows, func(r *row) string { return r.Namespace }),
		column(rows, func(r *row) pgtype.Text { return text(r.Name) }),
		column(rows, func(r *row) int32 { return int32(r.Revision) }),
		column(rows, func(r *row) string { return string(r.State) }),
		column(rows, func(r *row) string { return r.Spec }),
		column(rows, func(r *row) pgtype.Text { return text(string(r.Payload)) }),
		column(rows, func(r *row) time.Time { return r.CreatedAt }),
		column(rows, func(r *row) int64 { return r.Plan.Version }),
		column(rows, func(r *row) pgtype.Timestamptz { return timestamptz(r.Plan.NextAt) }),
		column(rows, func(r *row) pgtype.Timestamptz { return timestamptz(r.Plan.NominalAt) }),
		column(rows, func(r *row) pgtype.Timestamptz { return timestamptz(r.Plan.FiredFor) }),
		column(rows, func(r *row) int64 { return r.Plan.RunsMade }),
		column(rows, func(r *row) string { return r.Plan.ZoneVersion }),
		column(rows, func(r *row) pgtype.Text { return arrayLiteral(tagsColumn(r.Tags)) }),
		column(rows, func(r *row) string { return storable(r.Queue) }),
		column(rows, func(r *row) string { return storable(r.Type) }),
		column(rows, func(r *row) pgtype.Text { return handlerColumn(r.Type, r.Handler) }),
		column(rows, func(r *row) pgtype.Text { return arrayLiteral(jobTrigrams(r.Name, r.Description)) }),
		column(rows, func(r *row) bool { return r.Plan.Once }),
		column(rows, func(r *row) pgtype.UUID { return uuid(r.Digest) }))
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
	return wrapError("create jobs", orTaken(err, store.NameTaken("job", duplicateName(refused.Detail))))
}

// duplicateName finds the name in a detail such as
// "Key (namespace, name)=(default, report) already exists.".
func duplicateName(detail string) string {
	_, key, _ := strings.Cut(detail, ")=(")
	key, _, _ = strings.Cut(key, ") already exists")
	_, name, _ := strings.Cut(key, ", ")
	return name
}
