package sqlite

import (
	"context"
	"errors"
	"fmt"

	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// commitError is a commit that failed.
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
	var e *driver.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

// nameTaken turns a violation of the unique name into a Conflict.
func nameTaken(err error, name string) error {
	if errorCode(err) != codes.SQLITE_CONSTRAINT_UNIQUE {
		return err
	}
	return store.NameTaken(name)
}
