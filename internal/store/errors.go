package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
)

// MaxError bounds the stored text of an error, in bytes.
const MaxError = 8 << 10

// The errors of attempts that the store settles itself.
const (
	ErrorWorkerLost  = "the worker fell silent"
	ErrorDeadline    = "no result by the deadline"
	ErrorNotStopped  = "the worker did not stop the cancelled run in time"
	ErrorUnconfirmed = "the worker never learned of the claim"
)

// ErrServer marks an error of the database server, whatever it was asked to do: a lost
// connection, a shutdown, a full disk.
var ErrServer = errors.New("the database failed")

// IsTrouble reports whether an error is about the store and not about what it was asked
// to do: the same call may succeed later, and so may any other.
func IsTrouble(err error) bool {
	return belfry.CodeOf(err) == belfry.Unavailable || errors.Is(err, ErrServer) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// maxNameShown bounds what an error repeats of a name that may be anything.
const maxNameShown = 200

// NoSuch is the error of a job, run or dead letter that does not exist.
func NoSuch(kind string, id belfry.ID) error {
	return belfry.Errorf(belfry.NotFound, "there is no %s %s", kind, id)
}

// NoSuchName is the error of a name that no job has.
func NoSuchName(name string) error {
	return belfry.Errorf(belfry.NotFound, "there is no job named %q", sanitize.Text(name, maxNameShown))
}

// NoSuchNamespace is the error of a namespace that nobody has declared and that has no jobs.
func NoSuchNamespace(name string) error {
	return belfry.Errorf(belfry.NotFound, "there is no namespace %q", sanitize.Text(name, maxNameShown))
}

// NameTaken is the error of a name that another job, or whatever the kind is, has.
func NameTaken(kind, name string) error {
	return &belfry.Error{Code: belfry.Conflict, Message: "the name is taken", Fields: []belfry.FieldError{{Field: "name", Message: fmt.Sprintf("a %s named %q exists already", kind, name)}}}
}

// JobEnded is the error of a change to an archived job.
func JobEnded() error {
	return belfry.Errorf(belfry.Conflict, "the job has ended; create it again")
}

// CancelSettled is the error of cancelling a run that is settled; nil if it is
// cancelled already.
func CancelSettled(id belfry.ID, status belfry.RunStatus) error {
	switch status {
	case belfry.RunCancelled:
		return nil
	case belfry.RunDead:
		return belfry.Errorf(belfry.Conflict, "run %s is a dead letter: discard it instead", id)
	default:
		return belfry.Errorf(belfry.Conflict, "run %s is over already: it is %s", id, status)
	}
}

// defaultShards is the number of shards of a new database: two to six nodes own equally many.
const defaultShards = 60

// InitShards stores the number of shards of a new database and reads it back. A
// configured number must be the stored one; zero accepts any.
func InitShards(configured int, storeOnce func(shards string) (stored string, err error)) (int, error) {
	if configured < 0 {
		return 0, belfry.Errorf(belfry.Invalid, "%d shards were asked for; at least 1 is needed", configured)
	}
	stored, err := storeOnce(strconv.Itoa(cmp.Or(configured, defaultShards)))
	if err != nil {
		return 0, err
	}
	shards, err := strconv.Atoi(stored)
	if err != nil || shards < 1 {
		return 0, fmt.Errorf("the stored number of shards, %q, is not a number", stored)
	}
	if configured != 0 && configured != shards {
		return 0, belfry.Errorf(belfry.Invalid, "this database has %d shards, which was fixed at its first start; %d were asked for", shards, configured)
	}
	return shards, nil
}
