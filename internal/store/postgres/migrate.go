package postgres

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrationLock is taken for the length of a transaction by whoever migrates.
const migrationLock = 0x62656c667279

// Migrate brings the schema up to date, one process at a time. It refuses a
// schema that is newer than this program.
func Migrate(ctx context.Context, url string) error {
	config, err := poolConfig(url)
	if err != nil {
		return err
	}
	// An index on a large table may take longer than everyday statements may.
	delete(config.ConnConfig.RuntimeParams, "statement_timeout")
	delete(config.ConnConfig.RuntimeParams, "lock_timeout")
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return wrapError("connect to migrate", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return migrate(ctx, tx) })
	if err != nil {
		return wrapError("migrate the database", err)
	}
	return wrapError("make partitions", makePartitions(ctx, conn, time.Now()))
}

func migrate(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(migrationLock)); err != nil {
		return err
	}
	var version int
	for _, step := range []string{
		`CREATE SCHEMA IF NOT EXISTS belfry`,
		`CREATE TABLE IF NOT EXISTS belfry.migrations (version integer PRIMARY KEY, applied_at timestamptz NOT NULL)`,
	} {
		if _, err := tx.Exec(ctx, step); err != nil {
			return err
		}
	}
	if err := tx.QueryRow(ctx, `SELECT coalesce(max(version), 0) FROM belfry.migrations`).Scan(&version); err != nil {
		return err
	}
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	if version > len(files) {
		return belfry.Errorf(belfry.Invalid, "the database has schema version %d, this program knows %d: run a newer belfry", version, len(files))
	}
	for i, file := range files[version:] {
		if err := applyFile(ctx, tx, file, version+i+1); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// applyFile runs one migration, whose number must be the next one.
func applyFile(ctx context.Context, tx pgx.Tx, file string, want int) error {
	base := strings.TrimPrefix(file, "migrations/")
	number, _, _ := strings.Cut(base, "_")
	if n, err := strconv.Atoi(number); err != nil || n != want {
		return fmt.Errorf("migration %q is out of order, number %d was expected", base, want)
	}
	text, err := migrations.ReadFile(file)
	if err != nil {
		return err
	}
	if _, err := tx.Conn().PgConn().Exec(ctx, string(text)).ReadAll(); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO belfry.migrations (version, applied_at) VALUES ($1, clock_timestamp())`, want)
	return err
}
