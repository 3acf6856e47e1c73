package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/validate"
)

func scheduleCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "schedule",
		Short: "Preview, explain and check schedules, without a server",
		Long: `Preview, explain and check schedules. No server is needed.

EXPR is what the field schedule of a job may contain: a cron expression such as
'0 9 * * MON-FRI', @daily, @every 90s, a calendar rule such as
'FREQ=WEEKLY;BYDAY=MO,WE;BYHOUR=9', an interval such as PT15M, or an instant such as
2027-03-01T09:00:00Z. Quote it: a shell replaces a bare * by the names of files.`,
	}, scheduleNextCommand(), scheduleExplainCommand(), scheduleCheckCommand())
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if strings.HasPrefix(err.Error(), "unknown shorthand flag") {
			return usagef("%w; write -- before an expression that starts with a -", err)
		}
		return flagError(err)
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
	flags   *fieldFlags
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
	_, err := p.flags.decodeGiven(&p.request)
	if err == nil {
		err = p.flags.usageErrors(schema.Check(&p.request))
	}
	if err != nil {
		return belfry.Preview{}, err
	}
	out, errs := validate.New(now, plan.Defaults{}).Preview(p.request)
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
	cmd := &cobra.Command{
		Use:   "explain EXPR",
		Short: "Describe a schedule in a sentence",
		Example: `  belfry schedule explain '0 9 * * MON-FRI'
  belfry schedule explain 'DTSTART:20270301T090000 RRULE:FREQ=MONTHLY;BYDAY=-1FR' --timezone Europe/Paris`,
		Args: exactlyOneExpression,
	}
	p := addPreviewFlags(cmd, "after", "count")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		now := time.Now()
		out, err := p.run(args[0], now)
		if e := (*scheduleError)(nil); errors.As(err, &e) { // A schedule that has ended has a meaning, too.
			if rule, failed := schedule.Parse(args[0], plan.Options(p.spec())); failed == nil {
				out, err = belfry.Preview{RuleSummary: belfry.RuleSummary{Description: schedule.Describe(rule)}}, nil
			}
		}
		if err != nil {
			return err
		}
		printWarnings(cmd.ErrOrStderr(), out.Warnings)
		_, err = fmt.Fprintln(cmd.OutOrStdout(), escape(out.Description))
		return err
	}
	return cmd
}

func scheduleCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check EXPR",
		Short: "Check a schedule, and show what is wrong with it",
		Long: `Check a schedule as a server would for a new job. The exit code is 0 or, for a
schedule that a server would refuse, 4; then the error is shown with its column and
a correct example.`,
		Example: `  belfry schedule check '0 9 * * MON-FRI'`,
		Args:    exactlyOneExpression,
	}
	p := addPreviewFlags(cmd, "after", "count")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		now := time.Now()
		out, err := p.run(args[0], now)
		if err == nil {
			err = p.checkNew(now)
		}
		if err != nil {
			return err
		}
		printWarnings(cmd.ErrOrStderr(), out.Warnings)
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "ok: "+escape(out.Description))
		return err
	}
	return cmd
}

// spec is the spec of a job with the schedule.
func (p *preview) spec() belfry.Spec {
	r := p.request
	return belfry.Spec{
		Type: belfry.TypeWorker, Handler: "check",
		Schedule: r.Schedule, Timezone: r.Timezone, DSTGap: r.DSTGap, DSTOverlap: r.DSTOverlap, StartsAt: r.StartsAt, EndsAt: r.EndsAt,
	}
}

// checkNew checks what a preview allows but a new job may not have: an instant that has
// passed.
func (p *preview) checkNew(now time.Time) error {
	in := validate.Input{Manifest: belfry.Manifest{Spec: p.spec()}}
	_, errs := validate.New(now, plan.Defaults{}).Create(belfry.ID{}, in)
	return p.error(errs)
}

// printWarnings prints what may be surprising about a schedule.
func printWarnings(w io.Writer, warnings []string) {
	for _, text := range warnings {
		fmt.Fprintln(w, "Note: "+escape(text))
	}
}

// scheduleError is an error about a schedule or its time zone.
type scheduleError struct {
	schedule string
	field    belfry.FieldError
}

func (e *scheduleError) Error() string { return e.field.Field + ": " + e.field.Message }

var (
	errorColumn  = regexp.MustCompile(`^column (\d+): `)
	errorExample = regexp.MustCompile(`; for example (".*")$`)
)

// lines shows what is wrong, where, and an example.
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
	end := len(text)
	if n := strings.IndexByte(text[at:], '\n'); n >= 0 {
		end = at + n
	}
	before, after := []rune(escape(text[start:at])), []rune(escape(text[at:end]))
	if len(before) > context {
		before = append([]rune("..."), before[len(before)-context:]...)
	}
	if len(after) > context {
		after = append(after[:context:context], []rune("...")...)
	}
	indent := strings.Repeat(" ", utf8.RuneCountInString(string(before)))
	return []string{"    " + string(before) + string(after), "    " + indent + "^"}
}
