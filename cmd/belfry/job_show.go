package main

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

func jobShowCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:               "show REF",
		Aliases:           []string{"get"},
		Short:             "Show a job",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: refs(s, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := s.open(cmd)
			if err != nil {
				return err
			}
			job, err := d.Job(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return d.print(job, func() error { return d.showJob(job) })
		},
	}
}

func (d *door) showJob(job belfry.Job) error {
	now := d.now()
	var t details
	t.add("Name", job.Name)
	t.add("ID", job.ID)
	t.add("Namespace", job.Namespace)
	t.add("Status", statusCell(job.Status))
	t.add("Cannot fire", cell{job.Quarantined, red})
	t.add("Next run", exactIn(job.Timezone, now, job.NextRunAt))
	t.add("Last run", exactIn(job.Timezone, now, job.LastRunAt))
	if job.EndedAt != nil {
		t.add("Ended", exactIn(job.Timezone, now, job.EndedAt))
	}
	addSpec(&t, job.Spec, job.Payload)
	t.add("Tags", strings.Join(job.Tags, ", "))
	t.add("Revision", job.Revision)
	t.add("Created", exact(now, job.CreatedAt))
	t.add("Updated", exact(now, job.UpdatedAt))
	if err := t.write(d.out, d.palette); err != nil {
		return err
	}
	return d.showJSON("Payload", job.Payload)
}

// addSpec adds how a job wants to be run.
func addSpec(t *details, spec belfry.Spec, payload json.RawMessage) {
	t.add("Schedule", withSentence(spec))
	t.add("Resolved", spec.Resolved)
	t.add("Time zone", spec.Timezone)
	addTiming(t, spec)
	t.add("Target", target(spec, payload))
	t.add("Queue", spec.Queue)
	if spec.Priority != belfry.PriorityNormal {
		t.add("Priority", spec.Priority)
	}
	t.add("Timeout", distance(spec.Timeout()))
	t.add("Retries", retries(spec))
	t.add("Overlap", overlap(spec))
	t.add("Missed", missed(spec))
	if spec.RetentionDays > 0 {
		t.add("Retention", howMany(spec.RetentionDays, "day"))
	}
	t.add("Run keys", spec.IdempotencyKeyTemplate)
}

// showJSON prints a JSON value under a headline, if there is one.
func (d *door) showJSON(headline string, raw json.RawMessage) error {
	if len(raw) == 0 {
		return nil
	}
	var b bytes.Buffer
	if json.Indent(&b, raw, "  ", "  ") != nil {
		return nil
	}
	return line(d.out, "%s\n  %s", headline, safeJSON(b.Bytes()))
}

// showText prints what somebody else said, under a headline, if they said something.
func (d *door) showText(headline, said string) error {
	said = strings.TrimRight(safeLines(said), "\n")
	if said == "" {
		return nil
	}
	return line(d.out, "%s\n  %s", headline, strings.ReplaceAll(said, "\n", "\n  "))
}
