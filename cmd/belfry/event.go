package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

func eventCommand(f *connectionFlags) *cobra.Command {
	list := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Args: cobra.NoArgs,
		Short: "List events, latest first",
		Long: `List events that operators should know, latest first, such as runs that died, jobs
that began to fail, and nodes that were lost.`,
		Example: `  belfry event list --limit 10
  belfry event list --kind run_dead --job report`,
	}
	flags := addFilterFlags[belfry.EventFilter](f, list)
	limit := addLimitFlag(list)
	f.command(list, func(c *cli, args []string) error {
		var filter belfry.EventFilter
		if err := flags.decode(&filter); err != nil {
			return err
		}
		return listing[belfry.Event]{
			noun: "events", none: "No events.", filter: flags,
			list: func(c *cli, _ []string, _ int) (iter.Seq2[belfry.Event, error], error) {
				return c.Events(c.ctx, filter), nil
			},
			show: (*cli).eventTable,
		}.run(c, args, *limit)
	})
	return f.add(group(&cobra.Command{
		Use: "event", Aliases: []string{"events"}, Short: "List and watch events for operators",
	}, list, eventWatchCommand(f)))
}

func eventWatchCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "watch", Args: cobra.NoArgs,
		Short: "Print events as they happen",
		Long: `Print events as they happen, until you interrupt the command, which ends it with exit
code 130. With -o json there is one object per line.`,
		Example: `  belfry event watch --kind run_dead`,
	}
	flags := addFilterFlags[belfry.EventFilter](f, cmd)
	return f.command(cmd, func(c *cli, _ []string) error {
		var filter belfry.EventFilter
		if err := flags.decode(&filter); err != nil {
			return err
		}
		c.message("Watching events. Interrupt to stop.")
		failing := false
		for e, err := range c.WatchEvents(c.ctx, filter, belfry.ID{}) {
			switch {
			case errors.Is(err, context.Canceled):
				return err
			case err != nil && exitCode(err) == exitUnreachable:
				if !failing {
					c.message("The server does not answer. Trying again.")
				}
			case err != nil:
				return err
			case c.humanReadable():
				c.line("%s  %s  %s", e.At.In(cmp.Or(c.zone, time.Local)).Format(time.DateTime), c.palette.paint(yellow, fmt.Sprintf("%-14s", e.Kind)), escape(e.Message))
			case c.format == "json":
				c.line("%s", escapeJSON(belfry.MustJSON(e)))
			default:
				_ = c.print([]belfry.Event{e}, nil) // The output keeps the error.
			}
			failing = err != nil
			if c.out.err != nil {
				return c.out.err
			}
		}
		return c.ctx.Err()
	})
}

func (c *cli) eventTable(events []belfry.Event) {
	names := c.jobNames(mapSlice(events, func(e belfry.Event) belfry.ID { return e.JobID }))
	writeTable(&c.output, events, []string{"WHEN", "EVENT", "JOB", "MESSAGE"}, []string{"COUNT", "ID"}, func(e belfry.Event) []any {
		return []any{c.tableTime(e.At), cell{string(e.Kind), yellow}, names[e.JobID], e.Message, e.Count, e.ID}
	})
}
