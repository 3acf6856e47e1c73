package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
	"github.com/belfry-sh/belfry/internal/schema"
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
		Use: "exit-codes", Short: "List the exit codes",
		Long: `The exit codes of all commands:

    0   success
    1   any other failure, or a question was not answered with yes
    2   usage error: an unknown command or flag, a wrong argument
    3   no such job, run or dead letter
    4   refused: invalid, in conflict with something that exists, or changed by somebody else
    5   the run that was waited for did not succeed: it is dead, skipped or cancelled
    6   not authorised: no API key, or a wrong one
    7   the server cannot be reached or is overloaded
  130   interrupted

If several things fail in one command, as in "belfry job pause a b", the code is
that of the first failure.`,
	}
}

type exitCoder interface {
	error
	exitCode() int
}

type exitError struct {
	error
	code int
}

func (e exitError) Unwrap() error { return e.error }
func (e exitError) exitCode() int { return e.code }

var errReported = errors.New("the failure was reported already")

// usagef is a mistake in how a command was called.
func usagef(format string, args ...any) error {
	return exitError{fmt.Errorf(format, args...), exitUsage}
}

func asUsage(err error) error {
	if err == nil || isUsage(err) {
		return err
	}
	return exitError{err, exitUsage}
}

func isUsage(err error) bool {
	e, ok := errors.AsType[exitError](err)
	return ok && e.code == exitUsage
}

type fileError struct {
	file    string
	line    int
	message string
}

func (e fileError) text() string {
	return fmt.Sprintf("%s:%d: %s", escape(e.file), e.line, escape(e.message))
}

type fileErrors []fileError

func (list fileErrors) exitCode() int { return exitRefused }

func (list fileErrors) Error() string {
	return strings.Join(mapSlice(list, fileError.text), "\n")
}

func (list fileErrors) orNil() error {
	if len(list) == 0 {
		return nil
	}
	return list
}

// subjectError says which of several things an error is about.
type subjectError struct {
	subject string
	err     error
}

func (e *subjectError) Error() string { return e.subject + ": " + e.err.Error() }
func (e *subjectError) Unwrap() error { return e.err }

// pathError says once which file an error is about.
func pathError(err error) error {
	if e := (*os.PathError)(nil); errors.As(err, &e) {
		return fmt.Errorf("%s: %w", escape(e.Path), e.Err)
	}
	return err
}

// flagTypes says what the value of a flag must be, by its type.
var flagTypes = map[string]string{
	"int":      "a whole number",
	"float":    "a number such as 0.5",
	"float64":  "a number such as 0.5",
	"duration": "a duration such as 30s, 10m or 2h",
	"bool":     "true or false",
}

// flagError explains an error in the flags of a command.
func flagError(cmd *cobra.Command, err error) error {
	if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) {
		if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 {
			return unknownCommand(cmd, args) // The flag is one of the command that was meant.
		}
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := schema.Nearest(cmp.Or(unknown.GetSpecifiedShortnames(), unknown.GetSpecifiedName()), names); near != "" {
			return usagef("%w; did you mean --%s?", err, near)
		}
	}
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return asUsage(err)
	}
	name, value := invalid.GetFlag().Name, invalid.GetValue()
	if e := (flagValueError{}); errors.As(err, &e) {
		return usagef("--%s: %q %s", name, value, e.message)
	}
	if want := flagTypes[invalid.GetFlag().Value.Type()]; want != "" {
		return usagef("--%s: %q is not %s", name, value, want)
	}
	return usagef("--%s: %w", name, errors.Unwrap(invalid))
}

func exitCode(err error) int {
	if e := exitCoder(nil); errors.As(err, &e) {
		return e.exitCode()
	}
	if errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	switch codeOf(err) {
	case belfry.NotFound:
		return exitNotFound
	case belfry.Invalid, belfry.Conflict, belfry.Changed, belfry.TooLarge, belfry.BadRequest, belfry.QuotaExceeded:
		return exitRefused
	case belfry.Unauthorized, belfry.Forbidden:
		return exitNotAllowed
	case belfry.Unavailable, belfry.RateLimited:
		return exitUnreachable
	}
	return exitOther
}

// codeOf is the code of the server's answer, or Unavailable if there was none.
func codeOf(err error) belfry.Code {
	if answer, ok := errors.AsType[*client.Error](err); ok {
		return answer.Code
	}
	return belfry.CodeOf(err)
}

// reportError prints why a command failed, a line for each error, and what to do.
func reportError(w io.Writer, cmd *cobra.Command, err error) {
	if errors.Is(err, errReported) {
		return
	}
	prefix := "belfry: "
	if path, ok := strings.CutPrefix(cmd.CommandPath(), "belfry "); ok {
		prefix += path + ": "
	}
	for i, line := range commandErrorLines(cmd, err) {
		if e := (*scheduleError)(nil); i > 0 && errors.As(err, &e) {
			prefix = "" // These lines point at the column.
		}
		fmt.Fprintln(w, prefix+line)
	}
	if hint := errorHint(cmd, err); hint != "" {
		fmt.Fprintln(w, hint)
	}
}

// logError is reportError for a process whose lines are all JSON.
func logError(w io.Writer, cmd *cobra.Command, err error) {
	log := slog.New(slog.NewJSONHandler(w, nil))
	for _, line := range commandErrorLines(cmd, err) {
		log.Error(line, "command", cmd.Name())
	}
}

func commandErrorLines(cmd *cobra.Command, err error) []string {
	lines := errorLines(err)
	if cmd.Name() == "serve" && len(lines) == 1 {
		lines[0] = escape(err.Error()) // Whoever starts a node may know the cause.
	}
	return lines
}

// errorLines describes an error: one line, or one for each field.
func errorLines(err error) []string {
	subject := ""
	if e := (*subjectError)(nil); errors.As(err, &e) {
		subject = e.subject + ": "
	}
	var files fileErrors
	var coded exitError
	var schedule *scheduleError
	var answer *client.Error
	var known *belfry.Error
	switch {
	case errors.As(err, &files):
		return strings.Split(files.Error(), "\n")
	case errors.As(err, &coded):
		return []string{escape(coded.Error())}
	case errors.As(err, &schedule):
		return schedule.lines()
	case errors.Is(err, context.Canceled):
		return []string{"interrupted"}
	case errors.As(err, &answer):
		message := answer.Detail
		if answer.Status >= 500 && answer.RequestID != "" {
			message += " (request " + answer.RequestID + ")"
		}
		return fieldLines(subject, message, answer.Fields)
	case !errors.As(err, &known):
		return []string{escape(err.Error())}
	case known.Code == belfry.Unavailable:
		return []string{escape(subject + known.Message + unreachableReason(err))}
	}
	return fieldLines(subject, known.Message, known.Fields)
}

func fieldLines(subject, message string, fields []belfry.FieldError) []string {
	if len(fields) == 0 {
		return []string{escape(subject + message)}
	}
	return mapSlice(fields, func(f belfry.FieldError) string { return escape(subject + f.Field + ": " + f.Message) })
}

func unreachableReason(err error) string {
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	var scheme *client.SchemeError
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return ": connection refused"
	case errors.As(err, &dns):
		return fmt.Sprintf(": unknown host %q", dns.Name)
	case errors.As(err, &certificate):
		return ": its certificate is not trusted: " + certificate.Err.Error()
	case errors.As(err, &scheme):
		return ": " + scheme.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return ": timeout"
	}
	return ""
}

// errorHint says what to do about a failure; empty if the error says it.
func errorHint(cmd *cobra.Command, err error) string {
	if isUsage(err) {
		return fmt.Sprintf("See: %s --help", cmd.CommandPath())
	}
	_, answered := errors.AsType[*client.Error](err)
	switch code := codeOf(err); {
	case !answered && code == belfry.Unavailable && errors.Is(err, syscall.ECONNREFUSED):
		return "Is a server running? Start one with: belfry serve\nTo use another server, set --server or BELFRY_SERVER."
	case !answered:
		return ""
	case code == belfry.Unauthorized:
		return "Set the API key with BELFRY_KEY, --key-file, or the key \"key\" in " + escape(configPath()) + "."
	case code == belfry.Changed:
		return "Somebody else changed it. Look at it again and repeat the command."
	case code == belfry.RateLimited:
		return "Too many requests. Wait a moment and repeat the command."
	}
	return ""
}
