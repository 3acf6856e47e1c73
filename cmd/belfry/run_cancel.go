package main

import (
	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
)

func runCancelCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "cancel ID...",
		Short: "Cancel runs",
		Long: `Cancel runs: one that waits is cancelled at once, one that is running as soon as
its worker hears of it, within 7 seconds: a request is dropped, and the context of
a handler ends. What succeeds all the same has succeeded.`,
		Example: `  belfry run cancel 0197e9a4-9c1c-7d6e-8f0a-3f6f2a1b4c5d
  belfry run watch 0197e9a4-9c1c-7d6e-8f0a-3f6f2a1b4c5d`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := runIDs(args)
			if err != nil {
				return err
			}
			d, err := s.open(cmd)
			if err != nil {
				return err
			}
			runs, failed := each(d, cmd, args, func(ref string) (client.Run, error) {
				run, err := d.CancelRun(cmd.Context(), ids[ref])
				if err == nil && d.format == "table" {
					err = d.cancelled(run)
				}
				return run, err
			})
			return printAll(d, len(args), runs, failed)
		},
	}
}

// cancelled tells what came of a cancellation.
func (d *door) cancelled(run client.Run) error {
	if run.Status == belfry.RunCancelled {
		return d.done("cancelled", run.ID.String(), "")
	}
	return d.done("cancelling", run.ID.String(), "its worker is told; see: belfry run watch "+run.ID.String())
}

// runIDs reads the ids of runs, by how they are written.
func runIDs(texts []string) (map[string]belfry.ID, error) {
	ids := make(map[string]belfry.ID)
	for _, text := range texts {
		id, err := runID(text)
		if err != nil {
			return nil, err
		}
		ids[text] = id
	}
	return ids, nil
}
