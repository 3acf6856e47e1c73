package main

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/jackc/pgx/v5/pgxpool"
)

// result is what one run of one system reports, as JSON on its standard output.
type result struct {
	Version         string  `json:"version"`
	InsertSeconds   float64 `json:"insert_seconds"`
	Seconds         float64 `json:"seconds"`                     // from the start of the work, with all jobs inserted, until the last is done
	ClientPerSecond float64 `json:"client_per_second,omitempty"` // requests of the HTTP client and its sink with nothing else running
}

// moduleVersion returns the version of a module that this program is built with.
func moduleVersion(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return "unknown"
}

// checkCount checks with the database that a system did what it reported.
func checkCount(ctx context.Context, pool *pgxpool.Pool, query string, want int) error {
	var got int
	if err := pool.QueryRow(ctx, query).Scan(&got); err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("%s: got %d, want %d", query, got, want)
	}
	return nil
}
