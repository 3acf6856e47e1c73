package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
)

func jobWhyCommand(s *session) *cobra.Command {
	at := ""
	cmd := &cobra.Command{
		Use:   "why REF",
		Short: "Tell why a job ran at an instant, or did not, or will",
		Long: `Tell what was decided for an instant of a job and by which rule, or what is
planned, and of a run that waits what it waits for.

Without --at it is the latest instant that was decided, or a later run that you
asked for and that is not over, or else the next instant.`,
		Example: `  belfry job why report
  belfry job why report --at '2026-03-02 09:05'
  belfry job why report --at 2026-03-02T09:05:00+01:00 -o json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: refs(s, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("at") && strings.TrimSpace(at) == "" {
				return usagef("--at: is empty; give an instant such as 2026-03-02T09:05:00+01:00, or a wall time in the job's zone such as '2026-03-02 09:05'")
			}
			d, err := s.open(cmd)
			if err != nil {
				return err
			}
			why, err := d.Why(cmd.Context(), args[0], strings.TrimSpace(at))
			if err != nil {
				return err
			}
			return d.print(why, func() error { return d.showWhy(why) })
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "`INSTANT` such as 2026-03-02T09:05:00+01:00, or a wall time in the job's zone such as '2026-03-02 09:05'")
	words(cmd, "at", nil)
	return cmd
}

// showWhy prints the sentence, and the facts below it.
func (d *door) showWhy(why client.Why) error {
	if err := line(d.out, "%s\n", safe(why.Sentence)); err != nil {
		return err
	}
	now, zone := d.now(), why.Rule.Timezone
	var t details
	t.add("Instant", exactIn(zone, now, &why.At))
	t.add("Decision", decisionCell(why.Decision))
	t.add("Reason", why.Reason)
	if run := why.Run; run != nil && run.Status != belfry.RunSkipped {
		t.add("Run", run.ID)
		t.add("Attempt", run.Attempt)
		t.add("Said", saidOf(run.HTTPStatus, run.Error))
	}
	if w := why.WaitsFor; w != nil {
		t.add("Waits for", waitsFor(*w, zone, now))
	}
	t.add("Rule", ruleOf(why.Rule))
	t.add("Revision", why.Revision)
	t.add("Before it", exactIn(zone, now, why.Previous))
	t.add("After it", exactIn(zone, now, why.Next))
	return t.write(d.out, d.palette)
}

// ruleOf is the rule that an instant was judged by, and what it means.
func ruleOf(r belfry.RuleSummary) string {
	text := r.Schedule
	if r.Description != "" {
		text += "  (" + r.Description + ")"
	}
	return text
}

// decisionCell shows a decision in the colour of what it led to.
func decisionCell(decision belfry.Decision) cell {
	colours := map[belfry.Decision]string{
		"ran": green, "planned": green, "due": blue, "running": blue, "queued": blue, "retrying": yellow, "waiting": yellow,
		"paused": yellow, "dead": red, "parked": red, "skipped": grey, "cancelled": grey, "discarded": grey, "none": grey, "unknown": grey,
	}
	return cell{string(decision), colours[decision]}
}

// waitsFor says what a run waits for.
func waitsFor(w belfry.Wait, zone string, now time.Time) string {
	switch w.What {
	case belfry.WaitForWorker:
		return fmt.Sprintf("a worker that serves %s/%s: there is none", w.Queue, w.Handler)
	case belfry.WaitForSlot:
		return fmt.Sprintf("a free slot for %s/%s: %s, %s, %d busy with it; before it: %s",
			w.Queue, w.Handler, howMany(w.Workers, "worker"), howMany(w.Slots, "slot"), w.Running, howMany(w.Ahead, "run"))
	case belfry.WaitForRun:
		ids := make([]string, len(w.Runs))
		for i, id := range w.Runs {
			ids[i] = id.String()
		}
		return "earlier runs of the job: " + strings.Join(ids, ", ")
	case belfry.WaitForTime:
		return exactIn(zone, now, w.Until)
	}
	return string(w.What)
}
