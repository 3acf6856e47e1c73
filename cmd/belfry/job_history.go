package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry/client"
)

func jobRunsCommand(s *session) *cobra.Command {
	limit := 0
	cmd := &cobra.Command{
		Use:               "runs REF",
		Short:             "List the runs of a job, latest first",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: refs(s, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := s.open(cmd)
			if err != nil {
				return err
			}
			if _, err := sizeOf(limit); err != nil {
				return err
			}
			runs, more, err := take(d.RunsOf(cmd.Context(), args[0]), limit)
			if err != nil {
				return err
			}
			return d.list(runs, more, "runs", func() error {
				if len(runs) == 0 {
					d.say("No runs yet. Run it now with: belfry job trigger %s", safe(args[0]))
					return nil
				}
				return d.runTable(runs, nil)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "how many to list; 0: all")
	return cmd
}

func jobRevisionsCommand(s *session) *cobra.Command {
	limit := 0
	cmd := &cobra.Command{
		Use:               "revisions REF",
		Short:             "List what a job is and was, latest first",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: refs(s, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := s.open(cmd)
			if err != nil {
				return err
			}
			if _, err := sizeOf(limit); err != nil {
				return err
			}
			revisions, more, err := take(d.Revisions(cmd.Context(), args[0]), limit)
			if err != nil {
				return err
			}
			return d.list(revisions, more, "revisions", func() error { return d.revisionTable(revisions) })
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "how many to list; 0: all")
	return cmd
}

func (d *door) revisionTable(revisions []client.Revision) error {
	now := d.now()
	t := newTable("REVISION", "REPLACED", "SCHEDULE", "TARGET", "RETRIES")
	for _, r := range revisions {
		replaced := "current"
		if r.ReplacedAt != nil {
			replaced = relative(now, *r.ReplacedAt)
		}
		t.row(r.Number, replaced, rule(r.Spec), shorten(safe(target(r.Spec, r.Payload)), 60), r.MaxRetries)
	}
	return t.write(d.out, d.palette)
}

func jobRollbackCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:               "rollback REF REVISION",
		Short:             "Make a job what it was in an earlier revision",
		Example:           "  belfry job rollback report 3",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: refs(s, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			revision, err := strconv.Atoi(args[1])
			if err != nil || revision < 1 {
				return usagef("%q is not a revision; they are listed by: belfry job revisions %s", args[1], args[0])
			}
			d, err := s.open(cmd)
			if err != nil {
				return err
			}
			job, err := d.Rollback(cmd.Context(), args[0], revision)
			if err != nil {
				return err
			}
			return d.print(job, func() error {
				return d.done("restored", title(job), "revision "+strconv.Itoa(revision)+" is now revision "+strconv.Itoa(job.Revision))
			})
		},
	}
}
