package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// querier is a pool, a connection or a transaction.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Begin(ctx context.Context) (pgx.Tx, error) // within a transaction: a part of it that can be undone
}

// daysAhead is how many days of history have their partition made beforehand.
const daysAhead = 3

const partitionName = "history_2006_01_02"

// makePartitions makes the partitions of the days around now that are missing.
// A day whose rows fell into the default partition already keeps them there.
func makePartitions(ctx context.Context, q querier, now time.Time) error {
	names, err := partitionNames(ctx, q)
	if err != nil {
		return err
	}
	today := now.UTC().Truncate(24 * time.Hour)
	for d := -1; d <= daysAhead; d++ {
		from := today.AddDate(0, 0, d)
		name := from.Format(partitionName)
		if names[name] {
			continue
		}
		_, err := q.Exec(ctx, fmt.Sprintf(`CREATE TABLE IF NOT EXISTS belfry.%s PARTITION OF belfry.history FOR VALUES FROM ('%s') TO ('%s')`,
			name, from.Format(time.RFC3339), from.AddDate(0, 0, 1).Format(time.RFC3339)))
		switch sqlState(err) {
		case "23514": // rows of that day are in the default partition
		case "42P07", "23505": // another node was faster
		default:
			if err != nil {
				return fmt.Errorf("make partition %s: %w", name, err)
			}
		}
	}
	return nil
}

func partitionNames(ctx context.Context, q querier) (map[string]bool, error) {
	rows, err := q.Query(ctx, `SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'belfry.history'::regclass`)
	if err != nil {
		return nil, fmt.Errorf("list partitions: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list partitions: %w", err)
	}
	names := make(map[string]bool, len(list))
	for _, name := range list {
		if strings.HasPrefix(name, "history_") {
			names[name] = true
		}
	}
	return names, nil
}
