package main

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

func scheduleNextCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "next EXPR",
		Short: "List the next occurrences of a schedule",
		Long: `List the next occurrences of a schedule: the local time in its time zone, the instant
in UTC, how far away it is, and a note where a clock change moved, skipped or repeated
it. Other surprises are printed on standard error.

With --batch, queries are read from standard input, one JSON object per line:

  {"expr": "0 9 * * MON-FRI", "tz": "Europe/Paris", "after": "2027-01-01T00:00:00Z", "count": 3}

Each is answered by one line, in the same order: {"next": [...]} with instants in UTC,
or {"error": "..."}. A query may also have dst_gap, dst_overlap and dtstart: the local
time from which a calendar rule or an interval without a start counts. Its default is
after, and the default of after is now.`,
		Example: `  belfry schedule next '0 9 * * MON-FRI' --timezone America/New_York
  belfry schedule next '30 2 * * *' --timezone America/New_York --after 2027-03-13T00:00:00Z
  belfry schedule next PT15M --starts-at 2027-03-01T09:00:00Z --count 10 -o json
  belfry schedule next --batch < queries.jsonl > answers.jsonl`,
	}
	p := addPreviewFlags(cmd)
	cmd.Flags().Lookup("count").Usage = "how many occurrences to list, at most 1000 (default 5)"
	format := cmd.Flags().StringP("output", "o", "table", "output `FORMAT`: "+strings.Join(formats, ", "))
	noColor := cmd.Flags().Bool("no-color", false, "print without colours [NO_COLOR]")
	batch := cmd.Flags().Bool("batch", false, "answer the queries on standard input, one JSON object per line")
	completeFlag(cmd, "output", formats...)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		switch {
		case *batch && len(args) > 0:
			return usagef("use either an expression or --batch")
		case *batch:
			return nil
		}
		return exactlyOneExpression(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *batch {
			for _, name := range append(p.flags.names(), "output") {
				if cmd.Flags().Changed(name) {
					return usagef("--%s does not work with --batch: each line has its own", name)
				}
			}
			return answerQueries(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), time.Now())
		}
		if err := checkFormat(*format); err != nil {
			return err
		}
		p.request.Count = 5 // unless the flag sets another
		out, err := p.run(args[0], time.Now())
		if err != nil {
			return err
		}
		o := newOutput(cmd, *format, *noColor)
		return o.print(out, func() error { return o.showPreview(out, p.request.Count) })
	}
	return cmd
}

func (o *output) showPreview(p belfry.Preview, count int) error {
	header := []string{"LOCAL TIME", "UTC", "WHEN"}
	if slices.ContainsFunc(p.Next, func(o belfry.Occurrence) bool { return o.Note != "" }) {
		header = append(header, "NOTE")
	}
	t := o.table(header)
	for _, at := range p.Next {
		t.row(at.Weekday[:3]+" "+at.Local, at.At.Format(time.RFC3339Nano), relative(o.now(), at.At), cell{at.Note, yellow})
	}
	if len(p.Next) > 0 {
		if err := t.write(); err != nil {
			return err
		}
	}
	switch {
	case len(p.Next) == 0:
		p.Warnings = append([]string{"there are no more occurrences"}, p.Warnings...)
	case len(p.Next) < count:
		p.Warnings = append([]string{"the schedule ends there"}, p.Warnings...)
	}
	printWarnings(o.err, p.Warnings)
	return nil
}
