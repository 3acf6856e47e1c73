// Package sqlstore is what the stores in PostgreSQL and SQLite have in common: roles off the
// path of a run, with statements that are written once, in the words of PostgreSQL. SQLite
// translates the few that it has no or other words for. What runs wait for is written by
// hand for each database.
package sqlstore

import (
	"context"
	"errors"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// Store is the common part of a store.Store: the interfaces say what its methods do.
type Store struct {
	DB        DB
	Specs     *store.Specs
	ScanLimit int // how many rows of an index a page of a list reads at a time

	SearchTime time.Duration // after which no further scan of a page starts

	Quotas *Quotas // empty at first
}

// DB is a database.
type DB interface {
	// Do calls f, which executes statements. Errors of the database say what it was doing.
	Do(ctx context.Context, access Access, doing string, f func(Tx) error) error

	// RunScan is a table of runs and a condition, such that an index has the ids of all rows with
	// the status that meet it, in order or few. $3 is the namespace.
	RunScan(table string, status belfry.RunStatus) string

	// Contains is the condition that a text contains a part, in any case of letters. It adds
	// arguments.
	Contains(text, part string, add func(any) string) string

	// ArchiveFinished archives those of the jobs that are finished one-offs.
	ArchiveFinished(t Tx, jobs []belfry.ID) error

	// NotifyWritten notifies of jobs whose plans were written, and of runs that became ready.
	NotifyWritten(jobs []belfry.ID, ready bool)
}

// Access is how statements are executed.
type Access int

// How statements are executed. A write does not stop half way when its context ends.
const (
	Read       Access = iota // each statement by itself
	Duty                     // like Read, not delayed by many reads of the API
	Search                   // like Read, with plans for the arguments
	Scan                     // in one snapshot, along indexes
	UrgentRead               // like Read, behind no other work
	Write                    // one statement
	Change                   // one transaction
	Urgent                   // one statement that waits behind no other work
)

// Tx executes statements. Their arguments are numbers, booleans, texts, ids, tokens, instants,
// durations (intervals), bytes, lists of texts, ids or shards, and nil. Columns are scanned into
// pointers to such values, or into a store.JSONColumn. Null is the zero id, token, instant,
// list or JSON.
type Tx interface {
	// Exec says how many rows a statement changed.
	Exec(sql string, args ...any) (int, error)

	// ExecEach executes a statement for each list of arguments, and says how many rows each
	// of them changed.
	ExecEach(sql string, args [][]any) ([]int, error)

	// Query calls next for every row, after its columns were scanned.
	Query(columns []any, next func(), sql string, args ...any) error
}

// ErrTaken is the error of a statement that would give two rows a unique key.
var ErrTaken = errors.New("the key is taken")

func (s Store) exec(ctx context.Context, access Access, doing, sql string, args ...any) (n int, err error) {
	err = s.DB.Do(ctx, access, doing, func(t Tx) error {
		n, err = t.Exec(sql, args...)
		return err
	})
	return n, err
}

// run is exec for a statement whose number of rows does not matter.
func (s Store) run(ctx context.Context, access Access, doing, sql string, args ...any) error {
	_, err := s.exec(ctx, access, doing, sql, args...)
	return err
}

// runFound is run for a change of one row; without it nothing is recorded, and the error is missing.
func (s Store) runFound(ctx context.Context, doing string, missing error, sql string, args ...any) error {
	return s.DB.Do(ctx, Write, doing, func(t Tx) error {
		n, err := t.Exec(sql, args...)
		if err == nil && n == 0 {
			err = missing
		}
		return err
	})
}

// runEach executes a statement for each item, in one transaction.
func runEach[T any](ctx context.Context, s Store, doing string, items []T, args func(*T) []any, sql string) error {
	return s.DB.Do(ctx, Change, doing, func(t Tx) error {
		_, err := t.ExecEach(sql, argsOf(items, args))
		return err
	})
}

// list returns the rows of a query; nil if there are none.
func list[T any](ctx context.Context, s Store, access Access, doing string, columns func(*T) []any, sql string, args ...any) (rows []T, err error) {
	err = s.DB.Do(ctx, access, doing, func(t Tx) error {
		rows, err = all(t, columns, sql, args...)
		return err
	})
	return rows, err
}

func all[T any](t Tx, columns func(*T) []any, sql string, args ...any) (rows []T, err error) {
	var row T
	err = t.Query(columns(&row), func() {
		rows = append(rows, row)
		row = *new(T)
	}, sql, args...)
	return rows, err
}

// first returns the first of the rows, or an error if there is none.
func first[T any](rows []T, err, missing error) (row T, _ error) {
	if err == nil && len(rows) == 0 {
		err = missing
	}
	if err != nil {
		return row, err
	}
	return rows[0], nil
}

// pair is a row that has a key and a value.
type pair[K comparable, V any] struct {
	key   K
	value V
}

func pairFields[K comparable, V any](p *pair[K, V]) []any { return []any{&p.key, &p.value} }

// toMap returns the rows that have a key and a value.
func toMap[K comparable, V any](rows []pair[K, V], err error) (map[K]V, error) {
	found := make(map[K]V, len(rows))
	for _, r := range rows {
		found[r.key] = r.value
	}
	return found, err
}

// argsOf is the arguments of a statement for each item.
func argsOf[T any](items []T, args func(*T) []any) [][]any {
	all := make([][]any, len(items))
	for i := range items {
		all[i] = args(&items[i])
	}
	return all
}

func sum(counts []int) (total int) {
	for _, n := range counts {
		total += n
	}
	return total
}

// orNull is null for the zero value.
func orNull[T comparable](v T) any {
	if v == *new(T) {
		return nil
	}
	return v
}

// startAfter is where a page in descending order of ids starts.
func startAfter(page store.Page) belfry.ID {
	if page.After.ID.IsZero() {
		return maxID
	}
	return page.After.ID
}

var maxTime = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

var maxID = belfry.ID{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// now is the time of the database, after whatever it has waited for.
func now(t Tx) (at time.Time, err error) {
	err = t.Query([]any{&at}, func() {}, `SELECT clock_timestamp()`)
	return at, err
}
