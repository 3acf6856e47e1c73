package main

import (
	"iter"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

func eventCommand(f *connectionFlags) *cobra.Command {
	return f.add(group(&cobra.Command{
		Use:     "event",
		Aliases: []string{"events"},
		Short:   "List events for operators",
	}, listing[belfry.Event]{
		noun: "events",
		list: func(c *cli, _ []string, _ int) (iter.Seq2[belfry.Event, error], error) { return c.Events(c.ctx), nil },
		none: "No events.",
		show: (*cli).eventTable,
	}.command(f, &cobra.Command{
		Short: "List events, latest first",
		Long: `List events that operators should know, latest first, such as a catch-up of more
runs than usual (see --large-catch-up of belfry serve).`,
		Example: `  belfry event list --limit 10`,
	})))
}

func (c *cli) eventTable(events []belfry.Event) {
	names := jobNames(c, events, func(e belfry.Event) belfry.ID { return e.JobID })
	t := c.table([]string{"WHEN", "EVENT", "JOB", "MESSAGE"}, "COUNT", "ID")
	for _, e := range events {
		t.row(relativeTime(c.now(), e.At), cell{string(e.Kind), yellow}, names[e.JobID], e.Message, e.Count, e.ID)
	}
	t.write()
}
