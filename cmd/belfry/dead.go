package main

import (
	"iter"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

func deadCommand(f *connectionFlags) *cobra.Command {
	return f.add(group(&cobra.Command{
		Use:     "dead",
		Aliases: []string{"dead-letters"},
		Short:   "List, show, redrive and discard dead letters",
		Long: `A run that is out of attempts is a dead letter. It keeps its payload, attempts and
outputs until it is redriven, which gives it all its retries again, or discarded.
ID is the id of the run.`,
	}, deadListCommand(f), deadShowCommand(f), deadRedriveCommand(f), deadDiscardCommand(f)))
}

// decodeDeadFilter is the filter of the flags.
func decodeDeadFilter(flags *fieldFlags) (filter belfry.DeadFilter, err error) {
	if err := flags.checkNotEmpty(); err != nil {
		return filter, err
	}
	if err := flags.decode(&filter); err != nil {
		return filter, err
	}
	if !filter.Until.IsZero() && !filter.Since.Before(filter.Until) {
		return filter, usagef("--until: must be after --since")
	}
	return filter, nil
}

func deadListCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List dead letters, latest first, or count them by the kind of their failure",
		Example: `  belfry dead list --group
  belfry dead list --job report --since 24h
  belfry dead list --error 'connection refused' --limit 0 -o json`,
		Args: cobra.NoArgs,
	}
	flags := addFilterFlags[belfry.DeadFilter](f, cmd)
	group := cmd.Flags().Bool("group", false, "count them by the kind of their failure")
	limit := addLimitFlag(cmd)
	return f.command(cmd, func(c *cli, args []string) error {
		filter, err := decodeDeadFilter(flags)
		switch {
		case err != nil:
			return err
		case *group:
			return deadGroupListing(filter, flags.given() != "").run(c, args, *limit)
		}
		return deadListing(filter, flags.given() != "").run(c, args, *limit)
	})
}

func deadListing(filter belfry.DeadFilter, filtered bool) listing[belfry.DeadLetter] {
	return listing[belfry.DeadLetter]{
		noun: "dead letters",
		list: func(c *cli, _ []string, pageSize int) (iter.Seq2[belfry.DeadLetter, error], error) {
			filter.PageSize = pageSize
			return c.DeadLetters(c.ctx, filter), nil
		},
		show: func(c *cli, _ []string, letters []belfry.DeadLetter) error {
			if len(letters) == 0 {
				c.messageNoDeadLetters(filtered)
				return nil
			}
			return c.deadTable(letters)
		},
	}
}

// deadGroupListing lists the groups of dead letters, of which a server returns one page.
func deadGroupListing(filter belfry.DeadFilter, filtered bool) listing[belfry.DeadGroup] {
	return listing[belfry.DeadGroup]{
		noun: "groups",
		list: func(c *cli, _ []string, pageSize int) (iter.Seq2[belfry.DeadGroup, error], error) {
			filter.PageSize = pageSize
			groups, err := c.DeadGroups(c.ctx, filter)
			return func(yield func(belfry.DeadGroup, error) bool) {
				for _, g := range groups {
					if !yield(g, nil) {
						return
					}
				}
			}, err
		},
		show: func(c *cli, _ []string, groups []belfry.DeadGroup) error {
			if len(groups) == 0 {
				c.messageNoDeadLetters(filtered)
				return nil
			}
			return c.groupTable(groups)
		},
	}
}

func (c *cli) messageNoDeadLetters(filtered bool) {
	if filtered {
		c.message("No matching dead letters.")
		return
	}
	c.message("No dead letters.")
}

// deadJobName is the name of the job of a dead letter, or its id without one.
func deadJobName(d belfry.DeadLetter) string {
	return jobTitle(belfry.Job{ID: d.JobID, Manifest: belfry.Manifest{Name: d.JobName}})
}

func (c *cli) deadTable(letters []belfry.DeadLetter) error {
	now := c.now()
	t := c.table([]string{"RUN", "JOB", "DIED", "REASON", "ATTEMPT", "ERROR"}, "FINGERPRINT", "KIND", "SCHEDULED")
	for _, d := range letters {
		t.row(d.ID, deadJobName(d), relativeOrNone(now, d.FinishedAt), cell{string(d.Reason), red}, d.Attempt, t.clip(resultText(d.HTTPStatus, d.Error)),
			d.Fingerprint, d.Kind, relative(now, d.ScheduledAt))
	}
	return t.write()
}

func (c *cli) groupTable(groups []belfry.DeadGroup) error {
	now := c.now()
	t := c.table([]string{"FINGERPRINT", "COUNT", "JOBS", "FIRST", "LAST", "ERROR"}, "LATEST RUN")
	for _, g := range groups {
		t.row(g.Fingerprint, g.Count, g.Jobs, relative(now, g.FirstAt), relative(now, g.LastAt), t.clip(resultText(g.HTTPStatus, g.Error)), g.LatestRunID)
	}
	return t.write()
}

func deadShowCommand(f *connectionFlags) *cobra.Command {
	return f.command(&cobra.Command{
		Use:               "show ID",
		Aliases:           []string{"get"},
		Short:             "Show a dead letter with its payload, attempts and outputs",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.completeDeadLetters(1),
	}, func(c *cli, args []string) error {
		id, err := parseRunID(args[0], "dead")
		if err != nil {
			return err
		}
		letter, err := c.DeadLetter(c.ctx, id)
		if err != nil {
			return err
		}
		return c.print(letter, func() error { return c.showDeadLetter(letter) })
	})
}

func (c *cli) showDeadLetter(letter belfry.DeadLetter) error {
	now := c.now()
	var d details
	d.add("Run", letter.ID)
	d.add("Job", deadJobName(letter))
	if letter.FinishedAt != nil {
		d.add("Died", absolute(now, *letter.FinishedAt))
	}
	d.add("Reason", cell{string(letter.Reason), red})
	d.add("Kind", letter.Kind)
	d.add("Scheduled", absolute(now, letter.ScheduledAt))
	d.add("Fingerprint", letter.Fingerprint)
	addResult(&d, letter.Run)
	if err := d.write(&c.output); err != nil {
		return err
	}
	if err := c.jsonSection("Payload", letter.Payload); err != nil {
		return err
	}
	if err := c.section("Output", letter.Output); err != nil {
		return err
	}
	if err := c.showAttempts(letter.Run); err != nil {
		return err
	}
	c.message("Run it again with: belfry dead redrive %s", letter.ID)
	return nil
}
