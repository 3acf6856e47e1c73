package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
)

func jobCommand(f *connectionFlags) *cobra.Command {
	return f.add(group(&cobra.Command{
		Use:     "job",
		Aliases: []string{"jobs"},
		Short:   "Create, change and show jobs",
		Long: `Create, change and show jobs.

REF is the name or the id of a job. Commands that accept several jobs also accept
the filters --status, --type, --handler, --queue, --tag and --search instead of
names, or --all for every job of the namespace. They count the jobs first.

The server is --server, BELFRY_SERVER, or server: in the configuration file
~/.config/belfry/config.yaml, in this order; the default is ` + defaultServer + `.
In the same way, the API key is --key or --key-file, BELFRY_KEY or key:, and the
namespace is --namespace, BELFRY_NAMESPACE or namespace:.`,
	},
		jobCreateCommand(f), jobApplyCommand(f), jobListCommand(f), jobShowCommand(f), jobEditCommand(f),
		jobPauseCommand(f), jobResumeCommand(f), jobTriggerCommand(f), jobCancelCommand(f), jobRetryCommand(f), jobDeleteCommand(f),
		jobWhyCommand(f), jobBackfillCommand(f), jobRunsCommand(f), jobRevisionsCommand(f), jobRollbackCommand(f),
	))
}

const jobsPath = "/api/v1/jobs"

// createJob creates a job from the JSON of its fields.
func (c *cli) createJob(fields members, key string) (job belfry.Job, err error) {
	if key == "" {
		key = belfry.NewID(time.Now()).String() // Retries of a request count once.
	}
	err = c.Do(c.ctx, http.MethodPost, jobsPath, fields, &job, client.IdempotencyKey(key))
	return job, err
}

// checkJob has the server validate a new job.
func (c *cli) checkJob(fields members) error {
	return c.Do(c.ctx, http.MethodPost, jobsPath+"?dry_run=true", fields, nil)
}

// putJob creates or replaces a job by the JSON of its fields. If version is not empty,
// the job must still have it.
func (c *cli) putJob(ref string, fields members, version string) (job belfry.Job, err error) {
	err = c.Do(c.ctx, http.MethodPut, client.JobPath(ref), fields, &job, ifMatch(version)...)
	return job, err
}

func ifMatch(version string) []client.CallOption {
	if version == "" {
		return nil
	}
	return []client.CallOption{client.IfMatch(version)}
}

// jobTitle is the name of a job, or its id without one.
func jobTitle(job belfry.Job) string {
	if job.Name != "" {
		return job.Name
	}
	return job.ID.String()
}

// nextRunText says when a job runs next.
func (o *output) nextRunText(job belfry.Job) string {
	switch {
	case job.Status == belfry.StatusPaused:
		return "paused"
	case job.NextRunAt == nil:
		return ""
	}
	return "next " + absoluteIn(job.Timezone, o.now(), job.NextRunAt)
}

// scheduleText is the schedule of a job with its time zone.
func scheduleText(spec belfry.Spec) string {
	if spec.Timezone == "" || spec.Timezone == "UTC" {
		return spec.Schedule
	}
	return spec.Schedule + " (" + spec.Timezone + ")"
}

// targetText is what a job calls.
func targetText(spec belfry.Spec, payload json.RawMessage) string {
	if spec.Type != belfry.TypeHTTP {
		return strings.TrimSpace(spec.Type + " " + spec.Handler)
	}
	var request belfry.HTTPPayload
	if json.Unmarshal(payload, &request) != nil || request.URL == "" {
		return spec.Type
	}
	if request.Method == "" {
		request.Method = http.MethodPost
	}
	return strings.ToUpper(request.Method) + " " + request.URL
}

// fieldChange is a difference between two versions of a job.
type fieldChange belfry.FieldChange

// text is the difference in one line.
func (c fieldChange) text(p palette) string {
	secret := ""
	if string(c.Old) == string(c.New) {
		secret = " (a secret)"
	}
	switch {
	case c.Old == nil:
		return p.paint(green, fmt.Sprintf("+ %s: %s", escape(c.Field), compactJSON(c.New)))
	case c.New == nil:
		return p.paint(red, fmt.Sprintf("- %s: %s", escape(c.Field), compactJSON(c.Old)))
	}
	return p.paint(yellow, fmt.Sprintf("~ %s: %s -> %s%s", escape(c.Field), compactJSON(c.Old), compactJSON(c.New), secret))
}

// changedFields lists the fields that differ, without the members of the payload.
func changedFields(changes []belfry.FieldChange) []string {
	names := []string{}
	for _, c := range changes {
		name, _, _ := strings.Cut(c.Field, ".")
		if string(c.Old) == string(c.New) {
			name += " (a secret)"
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
