package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
)

func jobCommand(s *session) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:     "job",
		Aliases: []string{"jobs"},
		Short:   "Create, change and look at jobs",
		Long: `Create, change and look at jobs.

REF names a job by its name or its id. Where several can be named, --status,
--type, --handler, --queue, --tag and --search say what they have in common
instead, and --all means every job of the namespace; then they are counted first.

The server is named by --server, BELFRY_SERVER, or server: in the configuration
file ~/.config/belfry/config.yaml, in this order; it is ` + defaultServer + `
otherwise. In the same way --key or --key-file, BELFRY_KEY and key: name the API
key, and --namespace, BELFRY_NAMESPACE and namespace: the namespace.`,
	})
	s.flags(cmd)
	cmd.AddCommand(
		jobCreateCommand(s), jobApplyCommand(s), jobListCommand(s), jobShowCommand(s), jobEditCommand(s),
		jobPauseCommand(s), jobResumeCommand(s), jobTriggerCommand(s), jobCancelCommand(s), jobRetryCommand(s), jobDeleteCommand(s),
		jobWhyCommand(s), jobBackfillCommand(s), jobRunsCommand(s), jobRevisionsCommand(s), jobRollbackCommand(s),
	)
	return cmd
}

// post creates a job of the fields given.
func (d *door) post(ctx context.Context, fields members, key string) (job belfry.Job, err error) {
	if key == "" {
		key = belfry.NewID(time.Now()).String() // Tries that follow a lost answer count once.
	}
	err = d.Do(ctx, http.MethodPost, "/api/v1/jobs", fields, &job, client.IdempotencyKey(key))
	return job, err
}

// put makes the job that ref names what the fields say; a version that is not
// empty is the one that it must still have.
func (d *door) put(ctx context.Context, ref string, fields members, version string) (job belfry.Job, err error) {
	var options []client.CallOption
	if version != "" {
		options = append(options, client.IfMatch(version))
	}
	err = d.Do(ctx, http.MethodPut, "/api/v1/jobs/"+escapeRef(ref), fields, &job, options...)
	return job, err
}

// escapeRef writes a name as one part of a path.
func escapeRef(ref string) string {
	if ref == "." || ref == ".." {
		return strings.ReplaceAll(ref, ".", "%2E")
	}
	return url.PathEscape(ref)
}

// each does something to every job that is named, and goes on when one fails. The
// failures are told at once; the first of them is the one that counts.
func each[T any](d *door, cmd *cobra.Command, refs []string, do func(ref string) (T, error)) ([]T, error) {
	var done []T
	var first error
	for _, ref := range refs {
		answer, err := do(ref)
		if err == nil {
			done = append(done, answer)
			continue
		}
		if cmd.Context().Err() != nil {
			return done, err
		}
		if len(refs) > 1 {
			err = &about{ref, err}
		}
		if code := exitCode(err); len(refs) == 1 || code == exitUnreachable || code == exitNotAllowed {
			return done, err // The others would fail alike.
		}
		tell(d.err, cmd, err)
		if first == nil {
			first = told{exitCode(err)}
		}
	}
	return done, first
}

// title is how a job is called: by its name, or without one by its id.
func title(job belfry.Job) string {
	if job.Name != "" {
		return job.Name
	}
	return job.ID.String()
}

// rule is when a job runs.
func rule(spec belfry.Spec) string {
	if spec.Timezone == "" || spec.Timezone == "UTC" {
		return spec.Schedule
	}
	return spec.Schedule + " (" + spec.Timezone + ")"
}

// target is what a job calls.
func target(spec belfry.Spec, payload json.RawMessage) string {
	if spec.Type != belfry.TypeHTTP {
		if spec.Handler != "" {
			return spec.Type + " " + spec.Handler
		}
		return spec.Type
	}
	var request struct{ URL, Method string }
	if json.Unmarshal(payload, &request) != nil || request.URL == "" {
		return spec.Type
	}
	if request.Method == "" {
		request.Method = http.MethodPost
	}
	return strings.ToUpper(request.Method) + " " + request.URL
}

// statusCell shows the state of a job or a run in its colour.
func statusCell[S ~string](status S) cell {
	colours := map[string]string{
		string(belfry.StatusScheduled): green, string(belfry.StatusQueued): blue, string(belfry.StatusRunning): blue,
		string(belfry.StatusPaused): yellow, string(belfry.StatusCompleted): grey, string(belfry.StatusFailed): red,
		string(belfry.StatusCancelled): grey,
		string(belfry.RunReady):        blue, string(belfry.RunRetry): yellow, string(belfry.RunWaiting): yellow,
		string(belfry.RunSucceeded): green, string(belfry.RunDead): red, string(belfry.RunSkipped): grey, string(belfry.RunDiscarded): grey,
	}
	return cell{string(status), colours[string(status)]}
}

// runID reads the id of a run.
func runID(text string) (belfry.ID, error) {
	id, err := belfry.ParseID(text)
	if err != nil {
		return id, usagef("%s; the id of a run is in the first column of: belfry run list", err)
	}
	return id, nil
}

// asJSON reads the value of a flag that is JSON.
func asJSON(flag string, content []byte) (json.RawMessage, error) {
	var raw json.RawMessage
	err := json.Unmarshal(content, &raw)
	if err == nil {
		return raw, nil
	}
	at := ""
	if fault := (*json.SyntaxError)(nil); errors.As(err, &fault) {
		at = fmt.Sprintf(" at character %d", fault.Offset)
	}
	return nil, usagef("%s: is not JSON%s: %s; a text needs its quotes, as in '\"hello\"'", flag, at, err)
}
