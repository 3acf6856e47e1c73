package main

import (
	"bufio"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

func jobDeleteCommand(s *session) *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use:               "delete REF...",
		Aliases:           []string{"rm"},
		Short:             "Delete jobs; runs that are under way finish",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: refs(s, 0),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := s.open(cmd)
			if err != nil {
				return err
			}
			if !yes {
				if !terminal(d.in) {
					return usagef("give --yes to delete without being asked, which needs a terminal")
				}
				if agreed, err := d.ask("Delete " + strings.Join(args, ", ") + "?"); err != nil || !agreed {
					return err
				}
			}
			deleted, failed := each(d, cmd, args, func(ref string) (belfry.Job, error) {
				job, err := d.Job(cmd.Context(), ref) // The name, where an id was given.
				if err == nil {
					err = d.DeleteJob(cmd.Context(), job.ID.String())
				}
				if err == nil && d.format == "table" {
					err = d.done(deletedResult, title(job), "")
				}
				return job, err
			})
			return printAll(d, len(args), deleted, failed)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// ask asks a person, who agrees with y or yes.
func (d *door) ask(question string) (bool, error) {
	if _, err := d.err.Write([]byte(safe(question) + " [y/N] ")); err != nil {
		return false, err
	}
	answer, err := bufio.NewReader(d.in).ReadString('\n')
	if err != nil && answer == "" {
		d.say("")
		return false, nil
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true, nil
	}
	d.say("Nothing was deleted.")
	return false, nil
}
