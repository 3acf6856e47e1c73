package main

import (
	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

func eventCommand(s *session) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:     "event",
		Aliases: []string{"events"},
		Short:   "See what happened that you should hear of",
	})
	s.flags(cmd)
	cmd.AddCommand(eventListCommand(s))
	return cmd
}

func eventListCommand(s *session) *cobra.Command {
	limit := 0
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List events, latest first",
		Long: `List what people should hear of although nobody asked for it, latest first: such
as that more runs of a job than usual (see --large-catch-up of belfry serve) make
up for what was missed.`,
		Example: `  belfry event list --limit 10`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := s.open(cmd)
			if err != nil {
				return err
			}
			if _, err := sizeOf(limit); err != nil {
				return err
			}
			events, more, err := take(d.Events(cmd.Context()), limit)
			if err != nil {
				return err
			}
			return d.list(events, more, "events", func() error {
				if len(events) == 0 {
					d.say("No events.")
					return nil
				}
				return d.eventTable(events, d.jobNames(cmd.Context(), func(yield func(belfry.ID) bool) {
					for _, e := range events {
						if !yield(e.JobID) {
							return
						}
					}
				}))
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "how many to list; 0: all")
	return cmd
}

func (d *door) eventTable(events []belfry.Event, names map[belfry.ID]string) error {
	now := d.now()
	t := newTable("WHEN", "EVENT", "JOB", "MESSAGE")
	for _, e := range events {
		job := names[e.JobID]
		if job == "" && !e.JobID.IsZero() {
			job = e.JobID.String()
		}
		t.row(relative(now, e.At), cell{string(e.Kind), yellow}, job, e.Message)
	}
	return t.write(d.out, d.palette)
}
