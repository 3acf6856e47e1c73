package sqlite

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/belfry-sh/belfry/internal/store"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrate brings the schema up to date, with a transaction for each version. It
// refuses a file system on which SQLite cannot keep a write-ahead log.
func (s *Store) migrate(ctx context.Context, files fs.FS) error {
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
	return store.Migrate(files, version, func(version int, script string) error {
		return s.write(ctx, "migrate the database", func(t *tx) error {
			if _, err := t.session.conn.ExecContext(t.ctx, script); err != nil {
				return err
			}
			_, err := t.exec(`INSERT INTO migrations (version, applied_at) VALUES (?, ?)`, version, micro(t.now))
			return err
		})
	})
}
