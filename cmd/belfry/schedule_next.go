package main

import (
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// maxNext is how many occurrences are listed at once.
const maxNext = 1000

func scheduleNextCommand() *cobra.Command {
	n := &nextCommand{}
	cmd := &cobra.Command{
		Use:   "next EXPR",
		Short: "List the next times of a schedule",
		Long: `List the next times of a schedule: what the clock in its time zone shows, the
instant in UTC, how far away that is, and a note where a change of the clock moved,
skipped or repeated one. What else may surprise is told on standard error.

With --batch, questions are read from standard input, a JSON object a line:

  {"expr": "0 9 * * MON-FRI", "tz": "Europe/Paris", "after": "2027-01-01T00:00:00Z", "count": 3}

and each is answered by a line, in the same order: {"next": [...]} with instants in
UTC, or {"error": "..."}. A line may also have dst_gap, dst_overlap and dtstart, the
local time that a calendar rule or an interval is counted from if it does not say
itself. Without it that is after, and without after it is now.`,
		Example: `  belfry schedule next '0 9 * * MON-FRI' --timezone America/New_York
  belfry schedule next '30 2 * * *' --timezone America/New_York --after 2027-03-13T00:00:00Z
  belfry schedule next PT15M --starts-at 2027-03-01T09:00:00Z --count 10 -o json
  belfry schedule next --batch < questions.jsonl > answers.jsonl`,
		Args: func(cmd *cobra.Command, args []string) error {
			if n.batch && len(args) == 0 {
				return nil
			}
			if n.batch {
				return usagef("give an expression or --batch, not both")
			}
			return oneExpression(cmd, args)
		},
		RunE: n.run,
	}
	n.question.flags(cmd)
	f := cmd.Flags()
	f.IntVar(&n.count, "count", 5, "how many to list, at most 1000")
	f.StringVar(&n.after, "after", "", "only those after this `INSTANT` (default now)")
	f.StringVarP(&n.output, "output", "o", "table", "`FORMAT`: table, json or yaml")
	f.BoolVar(&n.noColor, "no-color", false, "do not colour anything [NO_COLOR]")
	f.BoolVar(&n.batch, "batch", false, "answer the questions on standard input, a JSON object a line")
	words(cmd, "output", formats)
	return cmd
}

// nextCommand is one call of the command.
type nextCommand struct {
	question
	count   int
	after   string
	output  string
	noColor bool
	batch   bool
}

func (n *nextCommand) run(cmd *cobra.Command, args []string) error {
	if n.batch {
		var given []string
		for _, name := range []string{"timezone", "dst-gap", "dst-overlap", "starts-at", "ends-at", "count", "after", "output"} {
			if cmd.Flags().Changed(name) {
				given = append(given, "--"+name)
			}
		}
		if len(given) > 0 {
			return usagef("%s: with --batch each line says that itself", strings.Join(given, ", "))
		}
		return answerAll(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), time.Now())
	}
	n.text = args[0]
	now := time.Now()
	after, err := readInstant("after", n.after)
	switch {
	case err != nil:
		return err
	case n.count < 1 || n.count > maxNext:
		return usagef("--count: must be from 1 to %d", maxNext)
	case !slices.Contains(formats, n.output):
		return usagef("--output: %q is not one of %s", n.output, strings.Join(formats, ", "))
	case after.IsZero():
		after = now
	}
	r, err := n.read(after)
	if err != nil {
		return err
	}
	p := r.preview(n.question, after, n.count)
	if n.output != "table" {
		text, err := render(p, n.output)
		if err == nil {
			_, err = cmd.OutOrStdout().Write(text)
		}
		return err
	}
	if err := n.table(cmd, p, now); err != nil {
		return err
	}
	warn(cmd.ErrOrStderr(), p.Warnings)
	return nil
}

// occurrences lists the next ones of a schedule from its start to its end.
func (r *reading) occurrences(after time.Time, count int) []schedule.Occurrence {
	if after.Before(r.starts) {
		after = r.starts.Add(-1)
	}
	list := schedule.Occurrences(r.rule, after, count)
	if end := slices.IndexFunc(list, func(o schedule.Occurrence) bool { return !r.ends.IsZero() && o.At.After(r.ends) }); end >= 0 {
		list = list[:end]
	}
	return list
}

func (r *reading) preview(q question, after time.Time, count int) belfry.Preview {
	place := schedule.Location(r.rule)
	p := belfry.Preview{
		Schedule:    strings.TrimSpace(q.text),
		Resolved:    r.resolved,
		Timezone:    place.String(),
		ZoneVersion: schedule.ZoneVersion(),
		Description: schedule.Describe(r.rule),
		Warnings:    append([]string{}, r.remarks(after)...),
		Next:        []belfry.Occurrence{},
	}
	if p.StartsAt = r.starts; r.starts.IsZero() {
		p.StartsAt = r.anchor.UTC()
	}
	if after.Before(r.starts) {
		after = r.starts.Add(-1)
	}
	list := r.occurrences(after, count)
	for i, note := range schedule.Notes(r.rule, after, list) {
		local := list[i].At.In(place)
		p.Next = append(p.Next, belfry.Occurrence{At: list[i].At, Local: local.Format(time.RFC3339Nano), Weekday: local.Weekday().String(), Note: note})
	}
	return p
}

// table shows the occurrences to a person.
func (n *nextCommand) table(cmd *cobra.Command, p belfry.Preview, now time.Time) error {
	out := cmd.OutOrStdout()
	colours := palette{on: !n.noColor && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && terminal(out)}
	noted := slices.ContainsFunc(p.Next, func(o belfry.Occurrence) bool { return o.Note != "" })
	header := []string{"LOCAL TIME", "UTC", "WHEN"}
	if noted {
		header = append(header, "NOTE")
	}
	t := newTable(header...)
	for _, o := range p.Next {
		row := []any{o.Weekday[:3] + " " + o.Local, o.At.Format(time.RFC3339Nano), relative(now, o.At)}
		if noted {
			row = append(row, cell{o.Note, yellow})
		}
		t.row(row...)
	}
	if len(p.Next) > 0 {
		if err := t.write(out, colours); err != nil {
			return err
		}
	}
	if len(p.Next) < n.count {
		warn(cmd.ErrOrStderr(), []string{ending(len(p.Next))})
	}
	return nil
}

// ending says that a schedule has no more.
func ending(listed int) string {
	if listed == 0 {
		return "it does not run any more"
	}
	return "that is all: it ends there"
}
