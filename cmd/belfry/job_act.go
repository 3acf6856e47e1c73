package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
)

func jobPauseCommand(s *session) *cobra.Command {
	cmd := actCommand(s, pauseAction, nil, func(ctx context.Context, d *door, ref string) (belfry.Job, error) { return d.PauseJob(ctx, ref) })
	cmd.Short = "Pause jobs: they make no runs until they are resumed"
	cmd.Example = `  belfry job pause report invoices
  belfry job pause --tag billing --dry-run
  belfry job pause --tag billing --yes`
	return cmd
}

func jobResumeCommand(s *session) *cobra.Command {
	catchUp := false
	cmd := actCommand(s, resumeAction, &catchUp, func(ctx context.Context, d *door, ref string) (belfry.Job, error) {
		var options []client.CallOption
		if catchUp {
			options = append(options, client.CatchUp())
		}
		return d.ResumeJob(ctx, ref, options...)
	})
	cmd.Short = "Resume paused jobs"
	cmd.Long = `Resume paused jobs. What fell into the pause is not made up for, unless --catch-up
is given: then it counts as missed, and the missed_window of each job says which
of it runs.`
	cmd.Example = `  belfry job resume report --catch-up
  belfry job resume --status paused --tag billing`
	cmd.Flags().BoolVar(&catchUp, "catch-up", false, "make up for what fell into the pause, as missed_window says")
	return cmd
}

func jobCancelCommand(s *session) *cobra.Command {
	cmd := actCommand(s, cancelAction, nil, func(ctx context.Context, d *door, ref string) (belfry.Job, error) { return d.CancelJob(ctx, ref) })
	cmd.Short = "Cancel jobs: their runs end, and nothing more is planned"
	cmd.Long = `Cancel jobs: runs that wait are cancelled at once, those that are running as soon
as their worker hears of it, within 7 seconds, and nothing more is planned. The
jobs stay; they can be looked at and triggered, and an edit of the schedule plans
them again. To end a single run, see: belfry run cancel --help`
	cmd.Example = `  belfry job cancel report
  belfry job cancel --queue slow --dry-run`
	return cmd
}

// actCommand is a command that does one thing to the jobs it is given. What is
// special is done to each job by itself, since there is no bulk action for it.
func actCommand(s *session, does action, special *bool, act func(context.Context, *door, string) (belfry.Job, error)) *cobra.Command {
	b := &selection{}
	cmd := &cobra.Command{
		Use:               string(does.name) + " REF... | --FILTER",
		ValidArgsFunction: refs(s, 0),
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := b.check(cmd, args)
			if err != nil {
				return err
			}
			d, err := s.open(cmd)
			if err != nil {
				return err
			}
			switch {
			case found && special != nil && *special:
				return b.oneByOne(cmd, d, does, func(ref string) error {
					_, err := act(cmd.Context(), d, ref)
					return err
				})
			case found:
				return b.bulk(cmd, d, does)
			}
			jobs, failed := each(d, cmd, args, func(ref string) (belfry.Job, error) {
				job, err := act(cmd.Context(), d, ref)
				if err == nil && d.format == "table" {
					err = d.acted(does, job)
				}
				return job, err
			})
			return printAll(d, len(args), jobs, failed)
		},
	}
	b.flags(cmd)
	return cmd
}

// acted tells what was done to a job. That it was resumed does not mean that it
// will run.
func (d *door) acted(does action, job belfry.Job) error {
	more := ""
	if job.Status != belfry.StatusPaused {
		more = d.next(job)
	}
	if does.name == belfry.ActionResume && job.NextRunAt == nil {
		switch job.Status {
		case belfry.StatusCancelled:
			more = "nothing is planned: it was cancelled, and an edit of its schedule plans it again"
		case belfry.StatusCompleted, belfry.StatusFailed:
			more = "nothing is planned any more"
		}
	}
	return d.done(does.done, title(job), more)
}
