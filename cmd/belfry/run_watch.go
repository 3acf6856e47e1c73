package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
)

func runWatchCommand(s *session) *cobra.Command {
	job := ""
	cmd := &cobra.Command{
		Use:   "watch ID | watch --job REF",
		Short: "Follow a run until it is over, or the runs of a job",
		Long: `Follow a run until it is over: every change of its state is told. The exit code
is 0 if it succeeded and 5 if it is dead, was skipped or was cancelled.

With --job, follow the runs of a job until you interrupt it.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 1) == (job != "") {
				return usagef("name a run, or a job with --job")
			}
			d, err := s.open(cmd)
			if err != nil {
				return err
			}
			if job != "" {
				return d.followJob(cmd.Context(), job)
			}
			id, err := runID(args[0])
			if err != nil {
				return err
			}
			run, err := d.follow(cmd.Context(), id)
			if err != nil {
				return err
			}
			return printAll(d, len(args), []client.Run{run}, verdict(run))
		},
	}
	cmd.Flags().StringVar(&job, "job", "", "follow the runs of this job instead")
	_ = cmd.RegisterFlagCompletionFunc("job", refs(s, 0)) // The flag is there.
	return cmd
}

// verdict is the failure of a run that is over and did not succeed.
func verdict(run client.Run) error {
	if run.Status == belfry.RunSucceeded {
		return nil
	}
	what := fmt.Sprintf("run %s is %s", run.ID, run.Status)
	if run.Attempt > 0 {
		what += fmt.Sprintf(" after attempt %d", run.Attempt)
	}
	if more := detail(run.Run); more != "" {
		what += ": " + more
	}
	return noSuccess{safe(what)}
}
