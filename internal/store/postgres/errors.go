package postgres

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// SQLSTATE codes. After each of them nothing was written.
const (
	uniqueViolation  = "23505"
	checkViolation   = "23514"
	deadlockDetected = "40P01"
	duplicateTable   = "42P07"
	lockNotAvailable = "55P03" // a statement waited too long for a lock
	queryCanceled    = "57014" // a statement took too long
)

// sqlState is the code of an error that the server sent, empty otherwise.
func sqlState(err error) string {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}

// wrapError adds what was being done. Only an error that surely wrote nothing becomes
// a belfry.Error.
func wrapError(doing string, err error) error {
	var known *belfry.Error
	var duplicate *store.DuplicateRequest
	var refused *pgconn.ConnectError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known), errors.As(err, &duplicate):
		return err
	case errors.As(err, &refused):
		return belfry.Errorf(belfry.Unavailable, "the database cannot be reached: %w", err)
	default:
		return fmt.Errorf("%s: %w", doing, err)
	}
}

// hidePassword drops the URL, and with it the password, from a parse error.
func hidePassword(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return errors.New("it cannot be parsed")
}

// nameConflict turns a violation of the unique name into a Conflict.
func nameConflict(err error, name string) error {
	if sqlState(err) != uniqueViolation {
		return err
	}
	return store.NameTaken(name)
}
