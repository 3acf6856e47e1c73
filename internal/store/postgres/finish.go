package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
)

// maxError bounds the text kept of an error.
const maxError = 8 << 10

// deadlock is what the server answers to one of two transactions that wait for
// each other: two that settle the same attempts, or one that settles attempts of a
// job and one that cancels them. Nothing was done.
const deadlock = "40P01"

// Finish settles attempts. A result that fits no live attempt was accepted
// before or is late.
func (s *Store) Finish(ctx context.Context, results []belfry.Result) ([]belfry.Verdict, error) {
	ctx, cancel, err := detach(ctx, callTimeout)
	if err != nil {
		return nil, err
	}
	defer cancel()
	settled, err := s.settle(ctx, results)
	for tries := 0; sqlState(err) == deadlock && tries < 3; tries++ {
		settled, err = s.settle(ctx, results)
	}
	if err != nil {
		return nil, failed("finish", err)
	}
	verdicts := make([]belfry.Verdict, len(results))
	for i := range results {
		verdicts[i] = belfry.VerdictAccepted
		if settled[i] {
			continue
		}
		if verdicts[i], err = s.lateOrKnown(ctx, results[i]); err != nil {
			return nil, failed("finish", err)
		}
	}
	return verdicts, nil
}

// settle applies results to the runs that are held by exactly their attempts,
// and says which: first those that need nothing but the run itself, then those
// whose retry policy has to be asked. What comes after the runs that are over is
// seen to as well, or else by the sweeps.
func (s *Store) settle(ctx context.Context, results []belfry.Result) (settled []bool, err error) {
	settled = make([]bool, len(results))
	order := make([]int, len(results)) // by id, in which most plans lock the runs
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return results[i].RunID.Compare(results[j].RunID) })
	var good, bad []int
	for _, i := range order {
		if results[i].Outcome == belfry.OutcomeSucceeded {
			good = append(good, i)
		} else {
			bad = append(bad, i)
		}
	}
	var rest aftermath
	if err = s.succeed(ctx, results, good, settled, &rest); err == nil {
		err = s.fail(ctx, results, bad, settled, &rest)
	}
	s.follow(ctx, rest)
	return settled, err
}

// fenceArgs is the columns that every result has.
type fenceArgs struct {
	n          []int64
	ids        []pgtype.UUID
	namespaces []string
	attempts   []int32
	tokens     []pgtype.UUID
	statuses   []int32
	errors     []string
	outputs    []string
}

func newFenceArgs(results []belfry.Result, which []int) *fenceArgs {
	a := &fenceArgs{}
	for _, i := range which {
		r := &results[i]
		a.n = append(a.n, int64(i))
		a.ids = append(a.ids, uuid(r.RunID))
		a.namespaces = append(a.namespaces, storable(r.Namespace))
		a.attempts = append(a.attempts, int32(r.Attempt))
		a.tokens = append(a.tokens, pgtype.UUID{Bytes: r.Token, Valid: true})
		a.statuses = append(a.statuses, int32(r.HTTPStatus))
		a.errors = append(a.errors, sanitize.Text(r.Error, maxError))
		a.outputs = append(a.outputs, sanitize.Text(string(r.Output), belfry.MaxOutput))
	}
	return a
}

// aftermathSQL are the columns of an answer about runs r that tell what comes after
// them, with the job if anything does.
const aftermathSQL = `CASE WHEN r.once OR r.waits THEN r.job_id END, r.once, r.waits`

// waitsSQL tells whether another run of the job of r waits. Mostly none does of any
// job, which one look tells for all.
const waitsSQL = `CASE WHEN (SELECT 1 FROM belfry.runs WHERE state = 'waiting' LIMIT 1) IS NULL THEN false
         ELSE (SELECT 1 FROM belfry.runs w WHERE w.job_id = r.job_id AND w.state = 'waiting' LIMIT 1) IS NOT NULL END`

const succeedSQL = `/* finish */
WITH done AS (
  SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::integer[], $5::uuid[], $6::integer[], $7::text[], $8::text[])
    AS f (n, id, namespace, attempt, token, http_status, error, output)
), gone AS (
  DELETE FROM belfry.runs r USING done
   WHERE r.id = done.id AND r.namespace = done.namespace AND r.state = 'running' AND r.attempt = done.attempt AND r.token = done.token
  RETURNING r.*, done.n, done.http_status, done.error, done.output, clock_timestamp() AS now, ` + waitsSQL + ` AS waits
), kept AS (
  INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
                              attempt, worker, token, started_at, settled_at, http_status, error, output, skipped_count, key, keep_until)
  SELECT id, shard, namespace, job_id, revision, kind, 'succeeded', '', scheduled_at, ready_at, fired_at, fired_by, epoch,
         attempt, worker, token, started_at, now, http_status, error, output, 0, key, now + keep_days * interval '24 hours'
    FROM gone
), keyed AS (
  INSERT INTO belfry.keys (job_id, key, shard, run_id, made_at, succeeded_at)
  SELECT DISTINCT ON (job_id, key) job_id, key, shard, id, now, now FROM gone WHERE key IS NOT NULL AND kind = 'scheduled' ORDER BY job_id, key, id
  ON CONFLICT (job_id, key) DO UPDATE SET run_id = excluded.run_id, succeeded_at = excluded.succeeded_at
)
SELECT r.n, ` + aftermathSQL + ` FROM gone r`

func (s *Store) succeed(ctx context.Context, results []belfry.Result, which []int, settled []bool, rest *aftermath) error {
	if len(which) == 0 {
		return nil
	}
	a := newFenceArgs(results, which)
	rows, err := s.work.Query(ctx, succeedSQL, a.n, a.ids, a.namespaces, a.attempts, a.tokens, a.statuses, a.errors, a.outputs)
	return rest.mark(rows, err, settled)
}

// lateOrKnown says whether a result that fits no live attempt was accepted
// before. If not it is late, and noted beside the attempt that was given up.
func (s *Store) lateOrKnown(ctx context.Context, r belfry.Result) (belfry.Verdict, error) {
	var known bool
	err := s.work.QueryRow(ctx, `/* late */
SELECT EXISTS (SELECT 1 FROM belfry.history WHERE id = $1 AND namespace = $2 AND attempt = $3 AND token = $4 AND state = 'succeeded' AND $5 = 'succeeded')
    OR EXISTS (SELECT 1 FROM belfry.attempts WHERE run_id = $1 AND namespace = $2 AND attempt = $3 AND token = $4 AND outcome = $5)`,
		uuid(r.RunID), storable(r.Namespace), r.Attempt, uuid(r.Token), string(r.Outcome)).Scan(&known)
	if err != nil {
		return "", err
	}
	if known {
		return belfry.VerdictAccepted, nil
	}
	_, err = s.work.Exec(ctx, `/* late */ UPDATE belfry.attempts SET late_outcome = $5, late_at = clock_timestamp()
		WHERE run_id = $1 AND namespace = $2 AND attempt = $3 AND token = $4 AND late_outcome IS NULL`,
		uuid(r.RunID), storable(r.Namespace), r.Attempt, uuid(r.Token), string(r.Outcome))
	return belfry.VerdictLate, err
}
