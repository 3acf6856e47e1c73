// Package sqlite is a store in one file, for one node. The directory belongs to one
// process at a time, so that whatever ran when the last process ended is known to be
// lost as soon as the next one opens it.
package sqlite

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	sqlite "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/metrics"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

// The files in the directory; SQLite adds a log and its index.
const (
	databaseFile = "belfry.db"
	lockFile     = "belfry.lock"
)

// Options say where the database is.
type Options struct {
	Dir    string // created if it does not exist; it must be on a disk of this machine
	Shards int    // of a new database; 0: whatever is stored, or 64
	Log    *slog.Logger

	Metrics *metrics.Metrics // nil: nothing is measured
}

// Store is a store.Store in a file: the interfaces say what its methods do. Its clock
// is that of the process.
type Store struct {
	sqlstore.Store
	store.Hub
	log          *slog.Logger
	metrics      *metrics.Metrics
	shards       int
	dir          string
	lock         *os.File
	writer       *pool
	reader       *pool
	specs        store.Specs
	clock        store.ClockWatch
	waitingAfter belfry.ID              // where the next scan of jobs with waiting runs starts; used by the writer alone
	waitingAt    time.Time              // when the last one was
	downSince    time.Time              // see DownSince
	unclean      bool                   // the process before was killed
	damage       atomic.Pointer[string] // of the file; nil: none is known
	stopCheck    context.CancelFunc     // ends checkIntegrity; nil: it does not run
	close        func() error
}

var _ store.Store = (*Store)(nil)

// Open locks the directory for this process, brings the schema up to date and
// settles, as lost, the attempts that an earlier process left running.
func Open(ctx context.Context, o Options) (*Store, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{log: o.Log, metrics: o.Metrics}
	s.Store = sqlstore.Store{DB: s, Specs: &s.specs, ScanLimit: scanLimit, Quotas: new(sqlstore.Quotas)}
	s.close = sync.OnceValue(s.closeAll)
	if err := s.open(ctx, o); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, o Options) error {
	dir, err := prepareDir(o.Dir, o.Log)
	if err != nil {
		return err
	}
	s.dir = dir
	if s.lock, err = acquireLock(filepath.Join(dir, lockFile)); err != nil {
		return err
	}
	file := filepath.Join(dir, databaseFile)
	if err := createPrivate(file); err != nil {
		return err
	}
	if s.writer, err = newPool(file, 1, writerPragmas); err != nil {
		return err
	}
	if s.reader, err = newPool(file, readers, readerPragmas); err != nil {
		return err
	}
	if err := s.migrate(ctx, migrations); err != nil {
		return err
	}
	if s.shards, err = store.InitShards(o.Shards, func(shards string) (string, error) { return s.SetOnce(ctx, "shards", shards) }); err != nil {
		return err
	}
	if err := s.recover(ctx); err != nil {
		return err
	}
	if s.unclean {
		ctx, s.stopCheck = context.WithCancel(context.WithoutCancel(ctx))
		go s.checkIntegrity(ctx)
	}
	return nil
}

// prepareDir creates the directory, for its owner alone, if it does not exist.
func prepareDir(dir string, log *slog.Logger) (string, error) {
	if dir == "" {
		return "", belfry.Errorf(belfry.Invalid, "open the store: no data directory is given")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("open the store: %w", err)
	}
	if err := PrivateDir(dir, log); err != nil {
		return "", err
	}
	kind, remote, err := networkFileSystem(dir)
	if err != nil {
		return "", fmt.Errorf("check the file system of %s: %w", dir, err)
	}
	if remote {
		return "", belfry.Errorf(belfry.Invalid, "the data directory %s is on a network file system (%s), where SQLite can lose data: "+
			"choose a directory on a disk of this machine, or PostgreSQL", dir, kind)
	}
	return dir, nil
}

// PrivateDir creates a data directory, or takes the rights of other users to it and to what
// Belfry keeps in it away.
func PrivateDir(dir string, log *slog.Logger) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the data directory: %w", err)
	}
	paths := []string{dir}
	for _, pattern := range []string{"belfry.*", "tls-*.pem", "*.key"} {
		found, _ := filepath.Glob(filepath.Join(dir, pattern))
		paths = append(paths, found...)
	}
	for _, path := range paths {
		if err := protect(path, log); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("protect the data directory: %w", err)
		}
	}
	return nil
}

// createPrivate creates the file, readable by its owner alone, before SQLite does,
// which gives its other files the same mode.
func createPrivate(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("create the database file: %w", err)
	}
	return f.Close()
}

const selectShards = `SELECT value FROM settings WHERE name = 'shards'`

func (s *Store) Shards() int { return s.shards }

// Now is the time of the process in microseconds.
func (s *Store) Now() time.Time { return now() }

func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

func (s *Store) Ping(ctx context.Context) error {
	if damage := s.damage.Load(); damage != nil {
		return belfry.Errorf(belfry.Unavailable, "%s", *damage)
	}
	return s.read(ctx, "ping the database", func(t *tx) error {
		var shards string
		return t.get([]any{&shards}, selectShards)
	})
}

// Close waits for the calls under way and unlocks the directory. Later calls fail.
func (s *Store) Close() error { return s.close() }

func (s *Store) closeAll() error {
	var errs []error
	if s.stopCheck != nil {
		s.stopCheck()
	}
	if s.reader != nil {
		errs = append(errs, s.reader.close())
	}
	if s.writer != nil && s.shards > 0 {
		errs = append(errs, s.write(context.Background(), "record the stop", func(t *tx) error { return t.run(setTime, "stopped_at", micro(t.now)) }))
	}
	if s.writer != nil { // last, because the last connection moves the log into the file
		errs = append(errs, s.writer.close())
	}
	if s.lock != nil {
		errs = append(errs, releaseLock(s.lock))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close the store: %w", err)
	}
	return nil
}

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
		if err := t.run(`CREATE TABLE IF NOT EXISTS migrations (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL) STRICT`); err != nil {
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
			return t.run(`INSERT INTO migrations (version, applied_at) VALUES (?, ?)`, version, micro(t.now))
		})
	})
}

const (
	holdLease = `INSERT INTO leases (name, owner, epoch, expires_at, renewed_at) VALUES (?1, ?2, 1, ?3, ?4)
ON CONFLICT (name) DO UPDATE SET
  owner = excluded.owner,
  epoch = leases.epoch + (leases.owner <> excluded.owner),
  expires_at = excluded.expires_at,
  renewed_at = excluded.renewed_at
WHERE leases.owner = excluded.owner OR leases.expires_at <= ?4
RETURNING name, owner, epoch`
	selectLeaseEnd = `SELECT expires_at FROM leases WHERE name = ? AND expires_at <= ?`

	// The rows stay, so that the epochs go on growing.
	releaseLease = `UPDATE leases SET expires_at = ? WHERE name = ? AND owner = ? AND expires_at > ?`
)

func (s *Store) Hold(ctx context.Context, owner belfry.ID, names []string, ttl time.Duration) ([]store.Lease, error) {
	return writeValue(ctx, s, "hold leases", func(t *tx) (leases []store.Lease, err error) {
		for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
			var l store.Lease
			if _, err := t.find([]any{timeColumn{&l.EndedAt}}, selectLeaseEnd, name, micro(t.now)); err != nil {
				return nil, err
			}
			held, err := t.find(sharedColumns(sqlstore.LeaseFields(&l)), holdLease, name, owner[:], micro(t.now.Add(ttl)), micro(t.now))
			if err != nil {
				return nil, err
			}
			if held {
				leases = append(leases, l)
			}
		}
		return leases, nil
	})
}

func (s *Store) Release(ctx context.Context, owner belfry.ID, names []string) error {
	return s.write(ctx, "release leases", func(t *tx) error {
		for _, name := range names {
			if err := t.run(releaseLease, micro(t.now), name, owner[:], micro(t.now)); err != nil {
				return err
			}
		}
		return nil
	})
}

type commitError struct{ err error }

func (e *commitError) Error() string { return "commit: " + e.err.Error() }
func (e *commitError) Unwrap() error { return e.err }

// callerError is an error of a function that the caller passed in: it is returned as
// it is.
type callerError struct{ err error }

func (e *callerError) Error() string { return e.err.Error() }

// failed adds what was being done to an error. Only an error that surely left nothing
// behind becomes a belfry.Error: after a commit that failed in writing, the log may
// contain it all the same.
func failed(doing string, err error) error {
	var caller *callerError
	var known *belfry.Error
	var duplicate *store.DuplicateRequest
	var commit *commitError
	switch code := errorCode(err) & 0xff; {
	case errors.As(err, &caller):
		return caller.err
	case err == nil, errors.As(err, &known), errors.As(err, &duplicate), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case code == codes.SQLITE_IOERR && errors.As(err, &commit):
		return fmt.Errorf("%s: %w", doing, err)
	case code == codes.SQLITE_BUSY, code == codes.SQLITE_LOCKED, code == codes.SQLITE_FULL,
		code == codes.SQLITE_IOERR, code == codes.SQLITE_READONLY, code == codes.SQLITE_CANTOPEN:
		return belfry.Errorf(belfry.Unavailable, "%s: %w", doing, err)
	default:
		return fmt.Errorf("%s: %w", doing, err)
	}
}

// errorCode is SQLite's extended code of an error, 0 if it has none.
func errorCode(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

// orTaken is an error, or what a violation of a unique name means.
func orTaken(err, taken error) error {
	if errorCode(err) != codes.SQLITE_CONSTRAINT_UNIQUE {
		return err
	}
	return taken
}
