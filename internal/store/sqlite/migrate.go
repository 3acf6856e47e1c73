package sqlite

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/belfry-sh/belfry"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrate brings the schema up to date, a transaction for each version. It
// refuses a schema that is newer than this program, and a file system on which
// SQLite cannot keep its log.
func (s *Store) migrate(ctx context.Context) error {
	var version int
	var mode string
	err := s.write(ctx, "read the version of the database", func(t *tx) error {
		if err := t.get([]any{&mode}, `PRAGMA journal_mode`); err != nil {
			return err
		}
		if _, err := t.exec(`CREATE TABLE IF NOT EXISTS migrations (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL) STRICT`); err != nil {
			return err
		}
		return t.get([]any{&version}, `SELECT coalesce(max(version), 0) FROM migrations`)
	})
	if err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("open the database: SQLite cannot keep a write-ahead log here (its journal mode is %q)", mode)
	}
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	if version > len(files) {
		return belfry.Errorf(belfry.Invalid, "the database has schema version %d, this program knows %d: run a newer belfry", version, len(files))
	}
	for i, file := range files[version:] {
		err := s.write(ctx, "migrate the database", func(t *tx) error { return t.apply(file, version+i+1) })
		if err != nil {
			return err
		}
	}
	return nil
}

// apply runs one migration, whose number must be the next one.
func (t *tx) apply(file string, want int) error {
	base := strings.TrimPrefix(file, "migrations/")
	number, _, _ := strings.Cut(base, "_")
	if n, err := strconv.Atoi(number); err != nil || n != want {
		return fmt.Errorf("migration %q is out of order, number %d was expected", base, want)
	}
	script, err := migrations.ReadFile(file)
	if err != nil {
		return err
	}
	if _, err := t.session.conn.ExecContext(t.ctx, string(script)); err != nil {
		return fmt.Errorf("%s: %w", base, err)
	}
	_, err = t.exec(`INSERT INTO migrations (version, applied_at) VALUES (?, ?)`, want, micro(t.now))
	return err
}
