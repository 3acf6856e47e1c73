package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry/internal/schedule"
)

func scheduleExplainCommand() *cobra.Command {
	q := &question{}
	cmd := &cobra.Command{
		Use:   "explain EXPR",
		Short: "Say in a sentence when a schedule runs",
		Example: `  belfry schedule explain '0 9 * * MON-FRI'
  belfry schedule explain 'DTSTART:20270301T090000 RRULE:FREQ=MONTHLY;BYDAY=-1FR' --timezone Europe/Paris`,
		Args: oneExpression,
		RunE: func(cmd *cobra.Command, args []string) error {
			q.text = args[0]
			r, err := q.readAs(time.Now(), time.Time{})
			if err != nil {
				return err
			}
			warn(cmd.ErrOrStderr(), r.assumed())
			return line(cmd.OutOrStdout(), "%s", safe(schedule.Describe(r.rule)))
		},
	}
	q.flags(cmd)
	return cmd
}

func scheduleCheckCommand() *cobra.Command {
	q := &question{}
	cmd := &cobra.Command{
		Use:   "check EXPR",
		Short: "Tell whether a schedule is right, and if not, where it is wrong",
		Long: `Tell whether a schedule is right. The exit code is 0, or 4 for one that a server
would refuse; then the place and the fault are shown, with a correct example.`,
		Example: `  belfry schedule check '0 9 * * MON-FRI'`,
		Args:    oneExpression,
		RunE: func(cmd *cobra.Command, args []string) error {
			q.text = args[0]
			now := time.Now()
			r, err := q.read(now)
			if err == nil {
				err = q.checkOver(r, now)
			}
			if err != nil {
				return err
			}
			warn(cmd.ErrOrStderr(), r.remarks(now))
			return line(cmd.OutOrStdout(), "ok: %s", safe(schedule.Describe(r.rule)))
		},
	}
	q.flags(cmd)
	return cmd
}

// leniency is how long ago an instant may lie that a server takes.
const leniency = 30 * time.Minute

// checkOver refuses a schedule of which nothing is left.
func (q *question) checkOver(r reading, now time.Time) error {
	message := ""
	switch at, once := schedule.Once(r.rule); {
	case once && now.Sub(at) >= leniency:
		message = fmt.Sprintf("%s is over: an instant may lie at most %.0f minutes in the past", at.Format(time.RFC3339Nano), leniency.Minutes())
	case !once && len(r.occurrences(now, 1)) == 0:
		message = "it never fires: nothing is left of it between --starts-at and --ends-at"
	case once && (q.starts != "" || q.ends != ""):
		message = "the schedule is a single instant: it has no --starts-at and no --ends-at"
	default:
		return nil
	}
	return &badSchedule{q.text, &schedule.Error{Field: "schedule", Message: message}}
}

// warn tells a person what they may not expect.
func warn(w io.Writer, remarks []string) {
	for _, text := range remarks {
		fmt.Fprintln(w, "Note: "+safe(text))
	}
}
