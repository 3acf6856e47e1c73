package main

import (
	"bufio"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
)

// deletion is one call of the command.
type deletion struct {
	selection
	runs, history string
}

func jobDeleteCommand(s *session) *cobra.Command {
	e := &deletion{}
	cmd := &cobra.Command{
		Use:     "delete REF... | --FILTER",
		Aliases: []string{"rm"},
		Short:   "Delete jobs; their runs finish and their history is kept, unless you say otherwise",
		Example: `  belfry job delete report
  belfry job delete report --runs cancel --history delete --yes
  belfry job delete --tag team-a --dry-run`,
		ValidArgsFunction: refs(s, 0),
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.run(cmd, s, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&e.runs, "runs", runsAfter[0], "what becomes of its live runs: "+strings.Join(runsAfter, " or "))
	f.StringVar(&e.history, "history", historyAfter[0], "what becomes of its history: "+strings.Join(historyAfter, " or "))
	words(cmd, "runs", runsAfter)
	words(cmd, "history", historyAfter)
	e.flags(cmd)
	return cmd
}

// What may become of the runs and the history of a job that is deleted; the first
// is the usual.
var (
	runsAfter    = []string{"finish", "cancel"}
	historyAfter = []string{"keep", "delete"}
)

func (e *deletion) run(cmd *cobra.Command, s *session, args []string) error {
	found, err := e.check(cmd, args)
	if err != nil {
		return err
	}
	options, err := e.options()
	if err != nil {
		return err
	}
	d, err := s.open(cmd)
	if err != nil {
		return err
	}
	switch {
	case found && len(options) == 0:
		return e.bulk(cmd, d, deleteAction)
	case found:
		return e.oneByOne(cmd, d, deleteAction, func(ref string) error { return d.DeleteJob(cmd.Context(), ref, options...) })
	}
	if agreed, err := d.agree(e.yes, "delete", "Delete "+strings.Join(args, ", ")+"?"); err != nil || !agreed {
		return err
	}
	deleted, failed := each(d, cmd, args, func(ref string) (belfry.Job, error) {
		job, err := d.Job(cmd.Context(), ref) // The name, where an id was given.
		if err == nil {
			err = d.DeleteJob(cmd.Context(), job.ID.String(), options...)
		}
		if err == nil && d.format == "table" {
			err = d.done(deletedResult, title(job), "")
		}
		return job, err
	})
	return printAll(d, len(args), deleted, failed)
}

// options are what the flags ask for beside the deletion.
func (e *deletion) options() (options []client.CallOption, err error) {
	runs, err := oneOf(e.runs, runsAfter)
	if err != nil {
		return nil, usagef("--runs: %s", err)
	}
	history, err := oneOf(e.history, historyAfter)
	if err != nil {
		return nil, usagef("--history: %s", err)
	}
	if runs == "cancel" {
		options = append(options, client.CancelRuns())
	}
	if history == "delete" {
		options = append(options, client.DeleteHistory())
	}
	return options, nil
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
	d.say("Nothing was done.")
	return false, nil
}
