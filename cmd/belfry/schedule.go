package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
	"github.com/belfry-sh/belfry/internal/validate"
)

func scheduleCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use: "schedule", Short: "Preview, explain and check schedules, without a server",
		Long: `Preview, explain and check schedules. No server is needed.

EXPR is what the field schedule of a job may contain: a cron expression such as
'0 9 * * MON-FRI', @daily, @every 90s, a calendar rule such as
'FREQ=WEEKLY;BYDAY=MO,WE;BYHOUR=9', an interval such as PT15M, or an instant such as
2027-03-01T09:00:00Z. Quote it: a shell replaces a bare * by the names of files.`,
	}, scheduleNextCommand(), scheduleExplainCommand(), scheduleCheckCommand())
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if strings.HasPrefix(err.Error(), "unknown shorthand flag") {
			return usagef("%w; write -- before an expression that starts with a -", err)
		}
		return flagError(cmd, err)
	})
	return cmd
}

// exactlyOneExpression accepts one argument, and explains what a shell makes of several.
func exactlyOneExpression(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return usagef("an expression is required, as in %s '0 9 * * MON-FRI'", cmd.CommandPath())
	case len(args) > 1:
		return usagef("quote the expression, as in %s '0 9 * * MON-FRI': there are %d arguments, and a shell replaces a bare * by the names of files",
			cmd.CommandPath(), len(args))
	}
	return nil
}

// preview is a schedule and the flags beside it.
type preview struct {
	flags   fieldFlags
	request belfry.PreviewRequest
}

func addPreviewFlags(cmd *cobra.Command, except ...string) *preview {
	return &preview{flags: addFieldFlags[belfry.PreviewRequest](cmd, append(except, "schedule")...)}
}

// run previews a schedule as the server does.
func (p *preview) run(text string, now time.Time) (belfry.Preview, error) {
	p.request.Schedule = text
	if strings.TrimSpace(text) == "" {
		return belfry.Preview{}, &scheduleError{text, belfry.FieldError{Field: "schedule", Message: "the expression is empty"}}
	}
	if err := p.flags.decodeChecked(&p.request); err != nil {
		return belfry.Preview{}, err
	}
	out, errs := validate.New(now, plan.Defaults{}).Preview(context.Background(), p.request)
	return out, p.error(errs)
}

// error is a usage error if a flag is wrong, otherwise an error about the schedule.
func (p *preview) error(errs []belfry.FieldError) error {
	if len(errs) == 0 {
		return nil
	}
	isSchedule := func(e belfry.FieldError) bool {
		return e.Field == "schedule" || e.Field == "timezone" || strings.Contains(e.Message, "never fires")
	}
	if err := p.flags.usageErrors(slices.DeleteFunc(slices.Clone(errs), isSchedule)); err != nil {
		return err
	}
	return &scheduleError{p.request.Schedule, errs[0]}
}

func scheduleExplainCommand() *cobra.Command {
	return describeCommand(&cobra.Command{
		Use: "explain EXPR", Short: "Describe a schedule in a sentence",
		Example: `  belfry schedule explain '0 9 * * MON-FRI'
  belfry schedule explain 'DTSTART:20270301T090000 RRULE:FREQ=MONTHLY;BYDAY=-1FR' --timezone Europe/Paris`,
	}, func(p *preview, now time.Time, out belfry.Preview, err error) (string, error) {
		if e := (*scheduleError)(nil); errors.As(err, &e) { // A schedule that has ended has a meaning, too.
			if rule, failed := schedule.Parse(p.request.Schedule, plan.Options(p.spec())); failed == nil {
				return schedule.Describe(rule), nil
			}
		}
		return out.Description, err
	})
}

func scheduleCheckCommand() *cobra.Command {
	return describeCommand(&cobra.Command{
		Use: "check EXPR", Short: "Check a schedule, and show what is wrong with it",
		Long: `Check a schedule as a server would for a new job. The exit code is 0 or, for a
schedule that a server would refuse, 4; then the error is shown with its column and
a correct example.`,
		Example: `  belfry schedule check '0 9 * * MON-FRI'`,
	}, func(p *preview, now time.Time, out belfry.Preview, err error) (string, error) {
		if err == nil {
			err = p.checkNew(now)
		}
		return "ok: " + out.Description, err
	})
}

// describeCommand makes a command that prints a sentence about the preview of a schedule.
func describeCommand(cmd *cobra.Command, describe func(p *preview, now time.Time, out belfry.Preview, err error) (string, error)) *cobra.Command {
	p := addPreviewFlags(cmd, "after", "count")
	cmd.Args = exactlyOneExpression
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		now := time.Now()
		out, err := p.run(args[0], now)
		text, err := describe(p, now, out, err)
		if err != nil {
			return err
		}
		printWarnings(cmd.ErrOrStderr(), out.Warnings)
		_, err = fmt.Fprintln(cmd.OutOrStdout(), escape(text))
		return err
	}
	return cmd
}

func (p *preview) spec() belfry.Spec {
	r := p.request
	return belfry.Spec{
		Type: belfry.TypeWorker, Handler: "check",
		Schedule: r.Schedule, Timezone: r.Timezone, DSTGap: r.DSTGap, DSTOverlap: r.DSTOverlap, StartsAt: r.StartsAt, EndsAt: r.EndsAt,
	}
}

// checkNew refuses what only a preview may have: an instant that has passed.
func (p *preview) checkNew(now time.Time) error {
	in := validate.Input{Manifest: belfry.Manifest{Spec: p.spec()}}
	_, errs := validate.New(now, plan.Defaults{}).Create(belfry.ID{}, in)
	return p.error(errs)
}

func printWarnings(w io.Writer, warnings []string) {
	for _, text := range warnings {
		fmt.Fprintln(w, "Note: "+escape(text))
	}
}

type scheduleError struct {
	schedule string
	field    belfry.FieldError
}

func (e *scheduleError) Error() string { return e.field.Field + ": " + e.field.Message }
func (e *scheduleError) exitCode() int { return exitRefused }

var (
	errorColumn  = regexp.MustCompile(`^column (\d+): `)
	errorExample = regexp.MustCompile(`; for example (".*")$`)
)

func (e *scheduleError) lines() []string {
	message, example := e.field.Message, ""
	if m := errorExample.FindStringSubmatch(message); m != nil {
		if text, err := strconv.Unquote(m[1]); err == nil {
			message, example = strings.TrimSuffix(message, m[0]), text
		}
	}
	if e.field.Field != "schedule" {
		message = "--" + strings.ReplaceAll(e.field.Field, "_", "-") + ": " + message
	}
	lines := []string{escape(message)}
	if m := errorColumn.FindStringSubmatch(message); m != nil {
		if column, err := strconv.Atoi(m[1]); err == nil {
			lines = append(lines, pointAt(e.schedule, column)...)
		}
	}
	if example != "" {
		lines = append(lines, "For example: "+escape(example))
	}
	return lines
}

// pointAt shows the line of a text that has a column, counted in bytes from 1, and a
// caret below it. A long line is cut.
func pointAt(text string, column int) []string {
	const context = 50
	at := min(column-1, len(text))
	start := strings.LastIndexByte(text[:at], '\n') + 1
	rest, _, _ := strings.Cut(text[at:], "\n")
	before, after := []rune(escape(text[start:at])), []rune(escape(rest))
	if len(before) > context {
		before = append([]rune("..."), before[len(before)-context:]...)
	}
	if len(after) > context {
		after = append(after[:context:context], []rune("...")...)
	}
	return []string{"    " + string(before) + string(after), "    " + strings.Repeat(" ", len(before)) + "^"}
}

func scheduleNextCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "next EXPR", Short: "List the next occurrences of a schedule",
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
	print := addOutputFlags(cmd)
	batch := cmd.Flags().Bool("batch", false, "answer the queries on standard input, one JSON object per line")
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
		o, err := print.open(cmd)
		if err != nil {
			return err
		}
		p.request.Count = 5 // unless the flag sets another
		out, err := p.run(args[0], time.Now())
		return o.printAnswer(out, err, func() { o.showPreview(out, p.request.Count) })
	}
	return cmd
}

func (o *output) showPreview(p belfry.Preview, count int) {
	header := []string{"LOCAL TIME", "UTC", "WHEN"}
	if slices.ContainsFunc(p.Next, func(o belfry.Occurrence) bool { return o.Note != "" }) {
		header = append(header, "NOTE")
	}
	if len(p.Next) > 0 {
		writeTable(o, p.Next, header, nil, func(at belfry.Occurrence) []any {
			return []any{at.Weekday[:3] + " " + at.Local, at.At.Format(time.RFC3339Nano), o.relativeTime(at.At), cell{at.Note, yellow}}
		})
	}
	switch {
	case len(p.Next) == 0:
		p.Warnings = append([]string{"there are no more occurrences"}, p.Warnings...)
	case len(p.Next) < count:
		p.Warnings = append([]string{"the schedule ends there"}, p.Warnings...)
	}
	printWarnings(o.err, p.Warnings)
}
