package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
)

func runShowCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:     "show ID",
		Aliases: []string{"get"},
		Short:   "Show a run with its attempts",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := runID(args[0])
			if err != nil {
				return err
			}
			d, err := s.open(cmd)
			if err != nil {
				return err
			}
			run, err := d.Run(cmd.Context(), id)
			if err != nil {
				return err
			}
			return d.print(run, func() error {
				if err := d.showRun(run, d.jobNames(cmd.Context(), jobsOf(run))[run.JobID]); err != nil {
					return err
				}
				d.hintWhy(cmd.Context(), run)
				return nil
			})
		},
	}
}

// hintWhy says how to ask what a run waits for, if its job is there to be asked. A run
// that is only just asked for waits for nothing yet.
func (d *door) hintWhy(ctx context.Context, run client.Run) {
	if run.FiredAt.IsZero() {
		return
	}
	switch run.Status {
	case belfry.RunReady, belfry.RunWaiting, belfry.RunRetry:
		if _, err := d.Job(ctx, run.JobID.String()); err == nil {
			d.say("See what it waits for: belfry job why %s --at %s", run.JobID, run.ScheduledAt.UTC().Format(time.RFC3339Nano))
		}
	}
}

func (d *door) showRun(run client.Run, job string) error {
	now := d.now()
	var t details
	t.add("Run", run.ID)
	t.add("Job", job)
	t.add("Status", statusCell(run.Status))
	t.add("Reason", run.Reason)
	t.add("Kind", run.Kind)
	t.add("Scheduled", exact(now, run.ScheduledAt))
	t.add("Note", run.Note)
	if run.SkippedTo != nil {
		t.add("Skipped", fmt.Sprintf("%d occurrences up to %s", run.SkippedCount, exact(now, *run.SkippedTo)))
	}
	if run.Status == belfry.RunRetry {
		t.add("Next try", exact(now, run.ReadyAt))
	}
	if run.StartedAt != nil {
		t.add("Started", exact(now, *run.StartedAt))
	}
	if run.CancelRequestedAt != nil {
		t.add("Cancelled", exact(now, *run.CancelRequestedAt)+", and its worker has not let go of it yet")
	}
	if run.FinishedAt != nil {
		t.add("Finished", exact(now, *run.FinishedAt))
	}
	t.add("Took", lasted(run.Run))
	t.add("Attempt", run.Attempt)
	t.add("Revision", run.Revision)
	t.add("Key", run.IdempotencyKey)
	if run.HTTPStatus != 0 {
		t.add("Answer", fmt.Sprintf("HTTP %d", run.HTTPStatus))
	}
	t.add("Error", run.Error)
	if err := t.write(d.out, d.palette); err != nil {
		return err
	}
	if err := d.showText("Output", run.Output); err != nil {
		return err
	}
	return d.showAttempts(run)
}

// showAttempts lists the attempts that did not succeed, and what each answered.
func (d *door) showAttempts(run client.Run) error {
	if len(run.Attempts) == 0 {
		return nil
	}
	now := d.now()
	t := newTable("ATTEMPT", "OUTCOME", "STARTED", "TOOK", "DETAIL")
	for _, a := range run.Attempts {
		t.row(a.Number, cell{string(a.Outcome), red}, relative(now, a.StartedAt), took(a.FinishedAt.Sub(a.StartedAt)), saidOf(a.HTTPStatus, a.Error))
	}
	if err := line(d.out, "\nAttempts that did not succeed"); err != nil {
		return err
	}
	if err := t.write(d.out, d.palette); err != nil {
		return err
	}
	for _, a := range run.Attempts {
		if a.Number == run.Attempt && a.Output == run.Output {
			continue // It stands above.
		}
		if err := d.showText(fmt.Sprintf("Output of attempt %d", a.Number), a.Output); err != nil {
			return err
		}
	}
	return nil
}
