package sqlstore

import (
	"context"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// ReadLog reads the pieces of a log from a position, those of the last attempt for attempt 0.
const ReadLog = `SELECT attempt, start, stop, text FROM belfry.attempt_logs WHERE run_id = $1 AND namespace = $2 AND stop > $4
   AND attempt = CASE WHEN $3::integer > 0 THEN $3 ELSE (SELECT max(attempt) FROM belfry.attempt_logs WHERE run_id = $1) END ORDER BY start`

func (s Store) RunLog(ctx context.Context, namespace string, run belfry.ID, q belfry.LogQuery) (log belfry.RunLog, err error) {
	err = s.DB.Do(ctx, Read, "read a log", func(t Tx) error {
		pieces, err := all(t, func(p *store.LogPiece) []any { return []any{&p.Attempt, &p.Start, &p.Stop, &p.Text} }, ReadLog, run, namespace, q.Attempt, q.Offset)
		if err == nil && len(pieces) == 0 {
			_, err = RunOf(t, namespace, run)
		}
		log = store.JoinLog(pieces, run, q)
		return err
	})
	return log, err
}

func (s Store) ReadyRuns(ctx context.Context, lane string, shards []int, limit int) ([]belfry.ID, error) {
	return list(ctx, s, Read, "list ready runs", idField, `/* list ready */ SELECT id FROM belfry.runs WHERE state = 'ready' AND lane = $1 AND shard = ANY($2::integer[]) ORDER BY rank LIMIT $3`, lane, shards, limit)
}

// CountRunningOf counts the running runs of namespaces.
const CountRunningOf = `/* count running */ SELECT namespace, count(*) FROM belfry.runs WHERE state = 'running' AND namespace = ANY($1::text[]) GROUP BY namespace`

func (s Store) CountRunning(ctx context.Context, namespaces []string) (map[string]int, error) {
	return toMap(list(ctx, s, Duty, "count running runs", pairFields[string, int], CountRunningOf, namespaces))
}
