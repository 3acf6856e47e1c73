package main

import (
	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry/client"
)

func jobRetryCommand(s *session) *cobra.Command {
	b := &selection{}
	cmd := &cobra.Command{
		Use:   "retry REF... | --FILTER",
		Short: "Run the dead letters of jobs again",
		Long: `Run the dead letters of jobs again, with all their retries. To choose among them,
to give them another payload or to start them at a rate, see:
belfry dead redrive --help`,
		Example: `  belfry job retry report
  belfry job retry --status failed --dry-run`,
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
			if found {
				return b.bulk(cmd, d, retryAction)
			}
			retried, failed := each(d, cmd, args, func(ref string) (decided, error) { return d.retry(cmd, ref) })
			return printAll(d, len(args), retried, failed)
		},
	}
	b.flags(cmd)
	return cmd
}

// retry redrives the dead letters of a job.
func (d *door) retry(cmd *cobra.Command, ref string) (done decided, err error) {
	c := &decision{door: d, cmd: cmd}
	c.many = redriving{decision: c}.many
	filter, some, err := d.bound(cmd.Context(), client.DeadFilter{Job: ref})
	if err != nil {
		return done, err
	}
	if some {
		if done, err = c.drain(cmd.Context(), filter, 0); err != nil {
			return done, err
		}
	}
	if d.format != "table" {
		return done, nil
	}
	if done.Done == 0 {
		return done, d.done(unchangedResult, ref, "no dead letters")
	}
	return done, d.done(retryAction.done, ref, howMany(done.Done, "run"))
}
