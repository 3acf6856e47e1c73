package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

func jobWhyCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "why REF",
		Short: "Explain why a job ran at an instant, or did not, or will",
		Long: `Explain what was decided for an instant of a job and by which rule, or what is
planned, and what a waiting run waits for.

Without --at it is the latest instant that was decided, or a later triggered or
backfilled run that has not ended, or else the next instant.`,
		Example: `  belfry job why report
  belfry job why report --at '2026-03-02 09:05'
  belfry job why report --at 2026-03-02T09:05:00+01:00 -o json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.completeJobs(1),
	}
	const example = "`INSTANT` such as 2026-03-02T09:05:00+01:00, or a wall time in the time zone of the job such as '2026-03-02 09:05'"
	at := cmd.Flags().String("at", "", example)
	completeFlag(cmd, "at")
	return f.command(cmd, func(c *cli, args []string) error {
		if cmd.Flags().Changed("at") && strings.TrimSpace(*at) == "" {
			return usagef("--at: is empty; it is an %s", strings.ReplaceAll(example, "`", ""))
		}
		explanation, err := c.ExplainJob(c.ctx, args[0], strings.TrimSpace(*at))
		if err != nil {
			return err
		}
		return c.print(explanation, func() { c.showExplanation(explanation) })
	})
}

// showExplanation prints the sentence and the facts.
func (c *cli) showExplanation(e belfry.Explanation) {
	c.line("%s\n", escape(e.Sentence))
	now, zone := c.now(), e.Rule.Timezone
	var d details
	d.add("Instant", absoluteTimeIn(zone, now, &e.At))
	d.add("Decision", statusCell(e.Decision))
	d.add("Reason", e.Reason)
	if run := e.Run; run != nil && run.Status != belfry.RunSkipped {
		d.add("Run", run.ID)
		d.add("Attempt", run.Attempt)
		d.add("Result", resultText(run.HTTPStatus, run.Error))
	}
	if e.WaitsFor != nil {
		d.add("Waits for", waitText(*e.WaitsFor, zone, now))
	}
	rule := e.Rule.Schedule
	if e.Rule.Description != "" {
		rule += "  (" + e.Rule.Description + ")"
	}
	d.add("Schedule", rule)
	d.add("Revision", e.Revision)
	d.add("Previous", absoluteTimeIn(zone, now, e.Previous))
	d.add("Next", absoluteTimeIn(zone, now, e.Next))
	d.write(&c.output)
}

// waitText is what a run waits for.
func waitText(w belfry.Wait, zone string, now time.Time) string {
	switch w.What {
	case belfry.WaitForWorker:
		return fmt.Sprintf("a worker for %s/%s: there is none", w.Queue, w.Handler)
	case belfry.WaitForSlot:
		return fmt.Sprintf("a free slot for %s/%s: %s, %s, %d in use; %s ahead",
			w.Queue, w.Handler, plural(w.Workers, "worker"), plural(w.Slots, "slot"), w.Running, plural(w.Ahead, "run"))
	case belfry.WaitForRun:
		ids := make([]string, len(w.RunIDs))
		for i, id := range w.RunIDs {
			ids[i] = id.String()
		}
		return "earlier runs of the job: " + strings.Join(ids, ", ")
	case belfry.WaitForTime:
		return absoluteTimeIn(zone, now, w.Until)
	}
	return string(w.What)
}
