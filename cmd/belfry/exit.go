package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
)

// The exit codes; the list is append-only.
const (
	exitOK          = 0
	exitOther       = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitRefused     = 4
	exitNoSuccess   = 5
	exitNotAllowed  = 6
	exitUnreachable = 7
	exitInterrupted = 130
)

func exitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit codes mean",
		Long: `The exit code of every command says how it ended:

    0   done
    1   something else went wrong
    2   the command was not used right: an unknown command or flag, a wrong argument
    3   there is no such job, run or dead letter
    4   refused: not valid, in conflict with what is there, or changed by somebody else meanwhile
    5   the run that was waited for did not succeed: it is dead, was skipped or was cancelled
    6   not authorised: no API key, or not the right one
    7   the server cannot be reached, or cannot answer now
  130   interrupted

Where several things go wrong at once, as in "belfry job pause a b", the code is
that of the first one.`,
	}
}

// usageError is a mistake in how a command was called.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func asUsage(err error) error {
	if e := (usageError{}); errors.As(err, &e) {
		return err
	}
	return usageError{err}
}

// noSuccess is that a run was waited for and did not succeed.
type noSuccess struct{ what string }

func (e noSuccess) Error() string { return e.what }

// told is a failure that was told already; it only has a code.
type told struct{ code int }

func (e told) Error() string { return fmt.Sprintf("exit with code %d", e.code) }

// exitCode gives the exit code of a failure.
func exitCode(err error) int {
	var already told
	if errors.As(err, &already) {
		return already.code
	}
	if e := (usageError{}); errors.As(err, &e) {
		return exitUsage
	}
	if e := (noSuccess{}); errors.As(err, &e) {
		return exitNoSuccess
	}
	if m := (misplaced{}); errors.As(err, &m) {
		return exitRefused
	}
	if bad := (*badSchedule)(nil); errors.As(err, &bad) {
		return exitRefused
	}
	if m := (misplacedAll{}); errors.As(err, &m) {
		return exitRefused
	}
	if errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	switch codeOf(err) {
	case belfry.NotFound:
		return exitNotFound
	case belfry.Invalid, belfry.Conflict, belfry.Changed, belfry.TooLarge, client.BadRequest:
		return exitRefused
	case client.Unauthorized, client.Forbidden:
		return exitNotAllowed
	case belfry.Unavailable, client.RateLimited:
		return exitUnreachable
	}
	return exitOther
}

// codeOf gives the code of what the server answered, or that nobody did.
func codeOf(err error) belfry.Code {
	var answered *client.Error
	if errors.As(err, &answered) {
		return answered.Code
	}
	return belfry.CodeOf(err)
}

// tell prints what went wrong with a command, a line for each fault, and what to
// do about it.
func tell(w io.Writer, cmd *cobra.Command, err error) {
	already := told{}
	if errors.As(err, &already) {
		return
	}
	prefix := "belfry: "
	if path, ok := strings.CutPrefix(cmd.CommandPath(), "belfry "); ok {
		prefix += path + ": "
	}
	lines := explain(err)
	if cmd.Name() == "serve" && len(lines) == 1 {
		lines[0] = safe(err.Error()) // Whoever starts a node may know the cause.
	}
	for i, l := range lines {
		if bad := (*badSchedule)(nil); i > 0 && errors.As(err, &bad) {
			prefix = "" // What follows shows the place.
		}
		fmt.Fprintln(w, prefix+l)
	}
	if h := hint(cmd, err); h != "" {
		fmt.Fprintln(w, h)
	}
}
