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
		if err != nil {
			return err
		}
		if *group {
			return listing[belfry.DeadGroup]{
				noun: "groups", none: noDeadLetters, filter: flags,
				list: func(c *cli, _ []string, pageSize int) (iter.Seq2[belfry.DeadGroup, error], error) {
					filter.PageSize = pageSize
					return c.deadGroups(filter), nil
				},
				show: (*cli).groupTable,
			}.run(c, args, *limit)
		}
		return listing[belfry.DeadLetter]{
			noun: "dead letters", none: noDeadLetters, filter: flags,
			list: func(c *cli, _ []string, pageSize int) (iter.Seq2[belfry.DeadLetter, error], error) {
				filter.PageSize = pageSize
				return c.DeadLetters(c.ctx, filter), nil
			},
			show: (*cli).deadTable,
		}.run(c, args, *limit)
	})
}

const noDeadLetters = "No dead letters."

// deadGroups lists the groups of dead letters, of which a server returns one page.
func (c *cli) deadGroups(filter belfry.DeadFilter) iter.Seq2[belfry.DeadGroup, error] {
	return func(yield func(belfry.DeadGroup, error) bool) {
		groups, err := c.DeadGroups(c.ctx, filter)
		if err != nil {
			yield(belfry.DeadGroup{}, err)
		}
		for _, g := range groups {
			if !yield(g, nil) {
				return
			}
		}
	}
}

// deadJobName is the name of the job of a dead letter, or its id without one.
func deadJobName(d belfry.DeadLetter) string {
	return jobTitle(belfry.Job{ID: d.JobID, Manifest: belfry.Manifest{Name: d.JobName}})
}

func (c *cli) deadTable(letters []belfry.DeadLetter) {
	now := c.now()
	t := c.table([]string{"RUN", "JOB", "DIED", "REASON", "ATTEMPT", "ERROR"}, "FINGERPRINT", "KIND", "SCHEDULED")
	for _, d := range letters {
		t.row(d.ID, deadJobName(d), relativeTimeOrNone(now, d.FinishedAt), cell{string(d.Reason), red}, d.Attempt, t.clip(resultText(d.HTTPStatus, d.Error)),
			d.Fingerprint, d.Kind, relativeTime(now, d.ScheduledAt))
	}
	t.write()
}

func (c *cli) groupTable(groups []belfry.DeadGroup) {
	now := c.now()
	t := c.table([]string{"FINGERPRINT", "COUNT", "JOBS", "FIRST", "LAST", "ERROR"}, "LATEST RUN")
	for _, g := range groups {
		t.row(g.Fingerprint, g.Count, g.Jobs, relativeTime(now, g.FirstAt), relativeTime(now, g.LastAt), t.clip(resultText(g.HTTPStatus, g.Error)), g.LatestRunID)
	}
	t.write()
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
		return c.print(letter, func() { c.showDeadLetter(letter) })
	})
}

func (c *cli) showDeadLetter(letter belfry.DeadLetter) {
	now := c.now()
	var d details
	d.add("Run", letter.ID)
	d.add("Job", deadJobName(letter))
	if letter.FinishedAt != nil {
		d.add("Died", absoluteTime(now, *letter.FinishedAt))
	}
	d.add("Reason", cell{string(letter.Reason), red})
	d.add("Kind", letter.Kind)
	d.add("Scheduled", absoluteTime(now, letter.ScheduledAt))
	d.add("Fingerprint", letter.Fingerprint)
	addResult(&d, letter.Run)
	d.write(&c.output)
	c.jsonSection("Payload", letter.Payload)
	c.section("Output", letter.Output)
	c.showAttempts(letter.Run)
	c.message("Run it again with: belfry dead redrive %s", letter.ID)
}
