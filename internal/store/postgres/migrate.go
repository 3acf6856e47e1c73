package postgres

import (
	"context"
	"embed"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry/internal/store"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrationLock is an advisory lock that a migration holds for its transaction.
const migrationLock = 0x62656c667279

// Migrate brings the schema up to date, one process at a time. It refuses a schema that
// is newer than this program.
func Migrate(ctx context.Context, url string) error {
	config, err := poolConfig(url)
	if err != nil {
		return err
	}
	// An index on a large table may take longer than other statements may.
	delete(config.ConnConfig.RuntimeParams, "statement_timeout")
	delete(config.ConnConfig.RuntimeParams, "lock_timeout")
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return wrapError("connect to migrate", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return migrate(ctx, tx, migrations) })
	if err != nil {
		return wrapError("migrate the database", err)
	}
	return wrapError("make partitions", makePartitions(ctx, conn, time.Now()))
}

func migrate(ctx context.Context, tx pgx.Tx, files fs.FS) error {
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(migrationLock)); err != nil {
		return err
	}
	for _, sql := range []string{
		`CREATE SCHEMA IF NOT EXISTS belfry`,
		`CREATE TABLE IF NOT EXISTS belfry.migrations (version integer PRIMARY KEY, applied_at timestamptz NOT NULL)`,
	} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	var current int
	if err := tx.QueryRow(ctx, `SELECT coalesce(max(version), 0) FROM belfry.migrations`).Scan(&current); err != nil {
		return err
	}
	return store.Migrate(files, current, func(version int, script string) error {
		if _, err := tx.Conn().PgConn().Exec(ctx, script).ReadAll(); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO belfry.migrations (version, applied_at) VALUES ($1, clock_timestamp())`, version)
		return err
	})
}
