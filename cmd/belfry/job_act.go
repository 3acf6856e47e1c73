package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

func jobPauseCommand(s *session) *cobra.Command {
	return actCommand(s, "pause", "Pause jobs: they make no runs until they are resumed", "paused",
		func(ctx context.Context, d *door, ref string) (belfry.Job, error) { return d.PauseJob(ctx, ref) })
}

func jobResumeCommand(s *session) *cobra.Command {
	return actCommand(s, "resume", "Resume paused jobs", "resumed",
		func(ctx context.Context, d *door, ref string) (belfry.Job, error) { return d.ResumeJob(ctx, ref) })
}

// actCommand is a command that does one thing to the jobs it is given.
func actCommand(s *session, name, short, done string, act func(context.Context, *door, string) (belfry.Job, error)) *cobra.Command {
	return &cobra.Command{
		Use:               name + " REF...",
		Short:             short,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: refs(s, 0),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := s.open(cmd)
			if err != nil {
				return err
			}
			jobs, failed := each(d, cmd, args, func(ref string) (belfry.Job, error) {
				job, err := act(cmd.Context(), d, ref)
				if err == nil && d.format == "table" {
					more := ""
					if job.Status != belfry.StatusPaused {
						more = d.next(job)
					}
					err = d.done(done, title(job), more)
				}
				return job, err
			})
			return printAll(d, len(args), jobs, failed)
		},
	}
}
