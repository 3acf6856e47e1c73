package postgres

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// hidePassword drops the URL, and with it the password, from a parse error.
func hidePassword(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return errors.New("it cannot be parsed")
}

// failed says what was being done when the database refused or was lost. Only an
// error that surely left nothing behind becomes a belfry.Error.
func wrapError(doing string, err error) error {
	var known *belfry.Error
	var repeated *store.DuplicateRequest
	var refused *pgconn.ConnectError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known), errors.As(err, &repeated):
		return err
	case errors.As(err, &refused):
		return belfry.Errorf(belfry.Unavailable, "the database cannot be reached: %w", err)
	default:
		return fmt.Errorf("%s: %w", doing, err)
	}
}

func jobNotFound(id belfry.ID) error {
	return belfry.Errorf(belfry.NotFound, "there is no job %s", id)
}

// nameTaken turns a violation of the unique name into a Conflict.
func nameConflict(err error, name string) error {
	if sqlState(err) != "23505" {
		return err
	}
	return &belfry.Error{
		Code:    belfry.Conflict,
		Message: "the name is taken",
		Fields:  []belfry.FieldError{{Field: "name", Message: fmt.Sprintf("a job named %q exists already", name)}},
	}
}

// lockTimeout is what the server answers to a statement that waited too long for
// somebody else's lock. Nothing was done.
const lockNotAvailable = "55P03"

// deadlock is what the server answers to one of two transactions that wait for
// each other: two that settle the same attempts, or one that settles attempts of a
// job and one that cancels them. Nothing was done.
const deadlockDetected = "40P01"

// sqlState is the code of an error that the server sent, empty otherwise.
func sqlState(err error) string {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}
