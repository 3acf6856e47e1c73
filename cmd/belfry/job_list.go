package main

import (
	"iter"
	"slices"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
)

const pageSize = 500 // the most that a server gives at once

func jobListCommand(s *session) *cobra.Command {
	var filter client.JobFilter
	var limit int
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List jobs, newest first",
		Example: `  belfry job list --status paused
  belfry job list --tag billing --tag nightly
  belfry job list --search report --limit 0 -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := s.open(cmd)
			if err != nil {
				return err
			}
			if filter.PageSize, err = sizeOf(limit); err != nil {
				return err
			}
			jobs, more, err := take(d.Jobs(cmd.Context(), filter), limit)
			if err != nil {
				return err
			}
			return d.list(jobs, more, "jobs", func() error {
				if len(jobs) == 0 {
					return d.noJobs(filter)
				}
				return d.jobTable(jobs)
			})
		},
	}
	f := cmd.Flags()
	jobFilterFlags(cmd, f, &filter)
	f.IntVar(&limit, "limit", 50, "how many to list; 0: all")
	return cmd
}

var jobStatuses = []string{
	string(belfry.StatusScheduled), string(belfry.StatusQueued), string(belfry.StatusRunning), string(belfry.StatusPaused),
	string(belfry.StatusCompleted), string(belfry.StatusFailed), string(belfry.StatusCancelled),
}

func (d *door) jobTable(jobs []belfry.Job) error {
	now := d.now()
	t := newTable("NAME", "STATUS", "SCHEDULE", "TARGET", "NEXT", "LAST")
	for _, j := range jobs {
		t.row(title(j), statusCell(j.Status), rule(j.Spec), shorten(safe(target(j.Spec, j.Payload)), 60), relativeTo(now, j.NextRunAt), relativeTo(now, j.LastRunAt))
	}
	return t.write(d.out, d.palette)
}

// noJobs says that a list is empty and what to do about it.
func (d *door) noJobs(filter client.JobFilter) error {
	filter.PageSize = 0
	if filter.Status+belfry.JobStatus(filter.Type+filter.Handler+filter.Queue+filter.Search) != "" || len(filter.Tags) > 0 {
		d.say("No jobs like that.")
		return nil
	}
	d.say("No jobs. Create one with: belfry job create --name hello --schedule '* * * * *' --url http://...")
	return nil
}

// list prints a list, and tells when it was cut short.
func (d *door) list(items any, more bool, what string, table func() error) error {
	if err := d.print(items, table); err != nil {
		return err
	}
	if more {
		d.say("There are more %s. See them with: --limit 0", what)
	}
	return nil
}

// take collects the first items of a list, and tells whether there are more. With
// a limit of 0 it takes all. The list is never nil: it is printed as one.
func take[T any](items iter.Seq2[T, error], limit int) (list []T, more bool, err error) {
	list = []T{}
	for item, err := range items {
		if err != nil {
			return nil, false, err
		}
		if limit > 0 && len(list) == limit {
			return list, true, nil
		}
		list = append(list, item)
	}
	return slices.Clip(list), false, nil
}

// sizeOf checks a limit and gives the size of the pages to ask for. One item more
// than is shown tells whether there are more.
func sizeOf(limit int) (int, error) {
	switch {
	case limit < 0:
		return 0, usagef("--limit: %d is negative; 0 lists all", limit)
	case limit == 0 || limit >= pageSize:
		return pageSize, nil
	}
	return limit + 1, nil
}

// words completes a flag that is one of a few words.
func words(cmd *cobra.Command, flag string, known []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(known, cobra.ShellCompDirectiveNoFileComp)) // The flag is there.
}
