//go:build unix

package chaos

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
)

// query reads one value from the database.
func query[T any](tb testing.TB, url, sql string, args ...any) T {
	tb.Helper()
	values := queryAll[T](tb, url, sql, args...)
	if len(values) != 1 {
		tb.Fatalf("%s gives %d rows", sql, len(values))
	}
	return values[0]
}

// queryAll reads a column from the database.
func queryAll[T any](tb testing.TB, url, sql string, args ...any) []T {
	tb.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		tb.Fatalf("connect to the database: %v", err)
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
	return values
}
