// Package sqlite keeps everything in one file, for one node. The directory
// belongs to one process at a time, which is why whatever ran when the last one
// ended is known to be over as soon as the next one opens it.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// DefaultShards is the number of shards of a new database.
const DefaultShards = 64

// The files in the directory; SQLite adds a log and an index beside the first.
const (
	databaseFile = "belfry.db"
	lockFile     = "belfry.lock"
)

// Options say where the database is.
type Options struct {
	Dir    string // made if it is not there; it must be on a disk of this machine
	Shards int    // of a new database; 0: whatever is stored, or DefaultShards
	Log    *slog.Logger
}

// Store is a store.Store in a file. Its clock is the process's own.
type Store struct {
	log    *slog.Logger
	shards int
	dir    string
	lock   *os.File
	writer *pool
	reader *pool
	hub    store.Hub
	specs  store.Specs
	look   int // how many rows a page of a list may look at
	close  func() error
}

var _ store.Store = (*Store)(nil)

// Open takes the directory for this process, brings the schema up to date and
// settles, as lost, the attempts that an earlier process left running.
func Open(ctx context.Context, o Options) (*Store, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{log: o.Log, look: look}
	s.close = sync.OnceValue(s.shut)
	if err := s.open(ctx, o); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, o Options) error {
	dir, err := prepareDir(o.Dir)
	if err != nil {
		return err
	}
	s.dir = dir
	if s.lock, err = takeLock(filepath.Join(dir, lockFile)); err != nil {
		return err
	}
	file := filepath.Join(dir, databaseFile)
	if err := makePrivate(file); err != nil {
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
	if err := s.settleShards(ctx, o.Shards); err != nil {
		return err
	}
	return s.release(ctx)
}

// prepareDir makes the directory, for its owner alone, if it is not there.
func prepareDir(dir string) (string, error) {
	if dir == "" {
		return "", belfry.Errorf(belfry.Invalid, "open the store: no data directory is given")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("open the store: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the data directory: %w", err)
	}
	kind, remote, err := network(dir)
	if err != nil {
		return "", fmt.Errorf("look at the file system of %s: %w", dir, err)
	}
	if remote {
		return "", belfry.Errorf(belfry.Invalid, "the data directory %s is on a network file system (%s), where SQLite can lose data: "+
			"choose a directory on a disk of this machine, or PostgreSQL", dir, kind)
	}
	return dir, nil
}

// makePrivate makes the file readable by its owner alone before SQLite, which
// gives its other files the same mode, sees it.
func makePrivate(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("make the database file: %w", err)
	}
	return f.Close()
}

func (s *Store) settleShards(ctx context.Context, asked int) error {
	fresh := asked
	if fresh == 0 {
		fresh = DefaultShards
	}
	if fresh < 1 {
		return belfry.Errorf(belfry.Invalid, "%d shards were asked for; at least 1 is needed", asked)
	}
	var stored string
	err := s.write(ctx, "settle the number of shards", func(t *tx) error {
		if _, err := t.exec(`INSERT INTO settings (name, value) VALUES ('shards', ?) ON CONFLICT DO NOTHING`, strconv.Itoa(fresh)); err != nil {
			return err
		}
		return t.get([]any{&stored}, `SELECT value FROM settings WHERE name = 'shards'`)
	})
	if err != nil {
		return err
	}
	if s.shards, err = strconv.Atoi(stored); err != nil || s.shards < 1 {
		return fmt.Errorf("the stored number of shards, %q, is not a number", stored)
	}
	if asked != 0 && asked != s.shards {
		return belfry.Errorf(belfry.Invalid, "this database has %d shards, which was fixed at its first start; %d were asked for", s.shards, asked)
	}
	return nil
}

// Shards is the number of shards, fixed when the database was first used.
func (s *Store) Shards() int { return s.shards }

// Now is the process's time in microseconds.
func (s *Store) Now() time.Time { return now() }

func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// Ping reads from the database.
func (s *Store) Ping(ctx context.Context) error {
	return s.read(ctx, "ping the database", func(t *tx) error {
		var shards string
		return t.get([]any{&shards}, `SELECT value FROM settings WHERE name = 'shards'`)
	})
}

// Close waits for the calls under way and gives the directory up. Calls that
// come later are refused.
func (s *Store) Close() error { return s.close() }

func (s *Store) shut() error {
	var errs []error
	if s.reader != nil {
		errs = append(errs, s.reader.close())
	}
	if s.writer != nil { // last, because the last one folds the log into the file
		errs = append(errs, s.writer.close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close the store: %w", err)
	}
	return nil
}
