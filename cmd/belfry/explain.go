package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
)

// explain says what went wrong: one line, or one for each fault.
func explain(err error) []string {
	if all := (misplacedAll{}); errors.As(err, &all) {
		return strings.Split(all.Error(), "\n")
	}
	if e := (usageError{}); errors.As(err, &e) {
		return []string{safe(e.Error())}
	}
	if bad := (*badSchedule)(nil); errors.As(err, &bad) {
		return bad.lines()
	}
	if errors.Is(err, context.Canceled) {
		return []string{"interrupted"}
	}
	subject := ""
	if s := (*about)(nil); errors.As(err, &s) {
		subject = s.subject + ": "
	}
	var answered *client.Error
	if errors.As(err, &answered) {
		return explainFaults(subject, answered.Detail, answered.Faults, answered)
	}
	var known *belfry.Error
	if !errors.As(err, &known) {
		return []string{safe(err.Error())}
	}
	if known.Code == belfry.Unavailable {
		return []string{safe(subject + known.Message + reason(err))}
	}
	return explainFaults(subject, known.Message, known.Fields, nil)
}

func explainFaults(subject, message string, faults []belfry.FieldError, answered *client.Error) []string {
	if len(faults) == 0 {
		if answered != nil && answered.Status >= 500 && answered.RequestID != "" {
			message += " (request " + answered.RequestID + ")"
		}
		return []string{safe(subject + message)}
	}
	lines := make([]string, len(faults))
	for i, f := range faults {
		lines[i] = safe(subject + f.Field + ": " + f.Message)
	}
	return lines
}

// about is a failure with what it is about, where a command is about several.
type about struct {
	subject string
	err     error
}

func (e *about) Error() string { return e.subject + ": " + e.err.Error() }
func (e *about) Unwrap() error { return e.err }

// reason says in a few words why a server was not reached.
func reason(err error) string {
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return ": connection refused"
	case errors.As(err, &dns):
		return fmt.Sprintf(": there is no host %q", dns.Name)
	case errors.As(err, &certificate):
		return ": its certificate is not trusted: " + certificate.Err.Error()
	case errors.As(err, &header):
		return ": it does not speak TLS; is its address http:// instead of https://?"
	case errors.Is(err, context.DeadlineExceeded):
		return ": it took too long"
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return ": it took too long"
	}
	return ""
}

// hint says what to do about a failure; empty if its own words do.
func hint(cmd *cobra.Command, err error) string {
	if e := (usageError{}); errors.As(err, &e) {
		return fmt.Sprintf("See: %s --help", cmd.CommandPath())
	}
	var answered *client.Error
	if !errors.As(err, &answered) {
		if errors.Is(err, syscall.ECONNREFUSED) && codeOf(err) == belfry.Unavailable {
			return "Is a server running? Start one with: belfry serve\nOr name another with --server or BELFRY_SERVER."
		}
		return ""
	}
	switch answered.Code {
	case client.Unauthorized:
		return "Give the API key with BELFRY_KEY, --key-file, or the key \"key\" in " + safe(configFile()) + "."
	case belfry.Changed:
		return "Somebody changed it meanwhile. Look at it again, then repeat."
	case client.RateLimited:
		return "Too many requests at once. Wait a moment, then repeat."
	}
	return ""
}
