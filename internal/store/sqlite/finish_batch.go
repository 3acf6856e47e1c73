package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/metrics"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	resultRow = `(#, ?, ?, ?, ?, ?, ?, ?)`
	results   = `WITH what (now, one_off) AS (SELECT ?1, ?2), result (n, id, namespace, attempt, token, http_status, error, output) AS (VALUES `

	// ofResult matches the runs of results as fence does, and only those that end without
	// an effect on a key or on a run that waits for them.
	ofResult = `r.id = result.id AND r.namespace = result.namespace AND r.attempt = result.attempt AND r.token = result.token AND r.state = 'running'
  AND r.key IS NULL AND NOT EXISTS (SELECT 1 FROM runs w WHERE w.job_id = r.job_id AND w.state = 'waiting') `
)

var (
	// succeedRuns settles the runs that ofResult matches and that are one-offs, or are not.
	succeedRuns = newBatchStatement(results, resultRow, `)
`+insertHistory+`SELECT r.id, shard, r.namespace, job_id, revision, kind, 'succeeded', '', scheduled_at, ready_at, fired_at, fired_by,
  epoch, r.attempt, worker, r.token, started_at, now, http_status, error, output, 0, key, now + retention_days * 86400000000
FROM what CROSS JOIN result CROSS JOIN runs r ON `+ofResult+`AND r.one_off = what.one_off`)

	// findOthers returns the numbers of the results that succeedRuns leaves out, with the
	// jobs of those that it settles if asked for one-offs.
	findOthers = newBatchStatement(results, resultRow, `)
SELECT n, r.job_id FROM what CROSS JOIN result LEFT JOIN runs r ON `+ofResult+`WHERE r.one_off IS NOT what.one_off`)

	deleteRuns = newBatchStatement(`DELETE FROM runs WHERE id IN (`, `?`, `) RETURNING namespace, lane, started_at`)
)

// finishTx settles a batch of results.
type finishTx struct {
	*tx
	results  []belfry.Result
	verdicts []belfry.Verdict
	left     []int // those that must be settled one by one

	namespace string // this and the next two are scanned into, for each row
	lane      string
	startedAt int64
}

func (s *Store) Finish(ctx context.Context, results []belfry.Result) ([]belfry.Verdict, error) {
	if len(results) == 0 {
		return nil, ctx.Err()
	}
	return writeValue(ctx, s, "finish", func(t *tx) ([]belfry.Verdict, error) {
		t.settled = make([]metrics.Attempt, 0, len(results))
		f := finishTx{tx: t, results: results, verdicts: make([]belfry.Verdict, len(results))}
		if err := t.writeLogs(store.ResultLogs(results)); err != nil {
			return nil, err
		}
		if err := forBatches(f.successes(), f.succeed); err != nil {
			return nil, err
		}
		slices.Sort(f.left)
		for _, i := range f.left {
			verdict, err := t.finish(&results[i])
			if err != nil {
				return nil, err
			}
			f.verdicts[i] = verdict
		}
		return f.verdicts, nil
	})
}

// successes returns the results that may be settled together: those that come first of
// their runs, in the order of the ids, so that neighbours are near in the indexes.
func (f *finishTx) successes() []int {
	order := make([]int, len(f.results))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return f.results[a].RunID.Compare(f.results[b].RunID) })
	found := order[:0]
	var last belfry.ID
	for _, i := range order {
		r := &f.results[i]
		if r.Outcome == belfry.OutcomeSucceeded && r.RunID != last {
			found = append(found, i)
		} else {
			f.left = append(f.left, i)
		}
		last = r.RunID
	}
	return found
}

// succeed settles successes together. Those that are late and those with follow-ups other
// than to archive a one-off are left.
func (f *finishTx) succeed(batch []int) error {
	args := append(f.args[:0], micro(f.now), false)
	for _, i := range batch {
		r := &f.results[i]
		args = append(args, r.RunID[:], r.Namespace, int64(r.Attempt), r.Token[:], int64(r.HTTPStatus),
			sanitize.Text(r.Error, store.MaxError), sanitize.Text(r.Output, belfry.MaxOutput))
	}
	f.args = args
	settled, err := f.exec(succeedRuns[len(batch)], args...)
	if err != nil {
		return err
	}
	var oneOffs []belfry.ID
	if settled < len(batch) {
		if batch, oneOffs, err = f.succeedOneOffs(batch, args); err != nil {
			return err
		}
		settled += len(oneOffs)
	}
	deleted := 0
	err = forBatches(batch, func(batch []int) error {
		args := f.args[:0]
		for _, i := range batch {
			args = append(args, f.results[i].RunID[:])
			f.verdicts[i] = belfry.VerdictAccepted
		}
		rows, err := all(f.tx, f.scanSucceeded, deleteRuns[len(batch)], args...)
		deleted += len(rows)
		return err
	})
	if err != nil {
		return err
	}
	if settled != len(batch) || deleted != len(batch) {
		return fmt.Errorf("%d of %d runs were settled and %d deleted", settled, len(batch), deleted)
	}
	_, err = f.archive(oneOffs...)
	return err
}

// succeedOneOffs settles the one-offs of a batch and returns their jobs. It leaves the
// results that must be settled one by one, and returns the others.
func (f *finishTx) succeedOneOffs(batch []int, args []any) (together []int, jobs []belfry.ID, err error) {
	type other struct {
		n   int
		job belfry.ID
	}
	others, err := all(f.tx, scanInto(func(o *other) []any { return []any{&o.n, bytesColumn{o.job[:]}} }), findOthers[len(batch)], args...)
	if err != nil {
		return nil, nil, err
	}
	alone := map[int]bool{}
	for _, o := range others {
		if o.job.IsZero() {
			alone[batch[o.n]] = true
			f.left = append(f.left, batch[o.n])
		} else {
			jobs = append(jobs, o.job)
		}
	}
	if len(jobs) > 0 {
		args[1] = true
		if n, err := f.exec(succeedRuns[len(batch)], args...); err != nil || n != len(jobs) {
			return nil, nil, cmp.Or(err, fmt.Errorf("%d of %d one-offs were settled", n, len(jobs)))
		}
	}
	for _, i := range batch {
		if !alone[i] {
			together = append(together, i)
		}
	}
	return together, jobs, nil
}

// scanSucceeded notes an attempt that succeeded, as deleteRuns returns it.
func (f *finishTx) scanSucceeded(rows *sql.Rows, _ *struct{}) error {
	err := rows.Scan(&f.namespace, &f.lane, &f.startedAt)
	f.addSettled(f.namespace, f.lane, f.startedAt, belfry.OutcomeSucceeded, "")
	return err
}
