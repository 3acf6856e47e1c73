package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

func runCommand(f *connectionFlags) *cobra.Command {
	return f.group("run", "runs", "List, show, watch and cancel runs", "",
		listing[belfry.Run, belfry.RunFilter]{
			noun: "runs", none: "No runs yet. Run a job now with: belfry job trigger NAME", period: true, find: (*cli).Runs,
			show: func(c *cli, runs []belfry.Run) { c.runTable(runs, true) },
		}.command(f, &cobra.Command{
			Short: "List the runs of all jobs, or of one, latest first",
			Example: `  belfry run list --status dead
  belfry run list --job report --since 24h --until 1h`,
		}), runShowCommand(f), runLogCommand(f), runWatchCommand(f), runCancelCommand(f))
}

// runJobTitle is the name of the job of a run, or its id without one.
func runJobTitle(r belfry.Run) string { return cmp.Or(r.JobName, r.JobID.String()) }

// jobNames looks up the names of jobs, as far as that is quick. Every id has an entry, by
// default the id itself.
func (c *cli) jobNames(ids []belfry.ID) map[belfry.ID]string {
	const maxRequests = 20
	ctx, cancel := context.WithTimeout(c.ctx, 2*time.Second)
	defer cancel()
	names := map[belfry.ID]string{{}: ""}
	requests := 0
	for _, id := range ids {
		if _, known := names[id]; known {
			continue
		}
		names[id] = id.String()
		if requests++; requests > maxRequests {
			continue
		}
		if job, err := c.Job(ctx, id.String()); err == nil {
			names[id] = jobTitle(job)
		}
	}
	return names
}

// runTable lists runs, with their jobs unless all are of one.
func (c *cli) runTable(runs []belfry.Run, withJobs bool) {
	header, wide := []string{"RUN", "JOB", "STATUS", "KIND", "SCHEDULED", "TOOK", "ATTEMPT", "DETAIL"}, []string{"REVISION", "STARTED", "FINISHED", "WORKER", "KEY"}
	if !withJobs {
		header = slices.Delete(header, 1, 2)
	}
	writeTable(&c.output, runs, header, wide, func(r belfry.Run) []any {
		worker := ""
		if !r.WorkerID.IsZero() {
			worker = r.WorkerID.String()
		}
		row := []any{r.ID, runJobTitle(r), statusCell(r.Status), r.Kind, r.ScheduledAt, tookText(r), r.Attempt, c.clip(runDetail(r)),
			r.Revision, r.StartedAt, r.FinishedAt, worker, r.IdempotencyKey}
		if !withJobs {
			row = slices.Delete(row, 1, 2)
		}
		return row
	})
}

// tookText is how long the latest attempt of a run took; empty unless it has ended. A
// discarded run finished when it was discarded, long after its attempt.
func tookText(r belfry.Run) string {
	if r.StartedAt == nil || r.FinishedAt == nil || r.Status == belfry.RunDiscarded {
		return ""
	}
	return elapsedText(r.FinishedAt.Sub(*r.StartedAt))
}

func runDetail(r belfry.Run) string {
	skipped := ""
	if r.SkippedCount > 1 {
		skipped = fmt.Sprintf("%d occurrences", r.SkippedCount)
	}
	parts := []string{string(r.Reason), skipped, resultText(r.HTTPStatus, r.Error)}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ": ")
}

func resultText(status int, failure string) string {
	switch {
	case failure != "":
		return failure
	case status != 0:
		return fmt.Sprintf("HTTP %d", status)
	}
	return ""
}

func runShowCommand(f *connectionFlags) *cobra.Command {
	var log string
	return byID("run", func(c *cli, ctx context.Context, id belfry.ID) (run belfry.Run, err error) {
		if run, err = c.Run(ctx, id); err == nil {
			log, err = c.latestLog(run)
		}
		return run, err
	}).command(f, &cobra.Command{Use: "show ID", Short: "Show a run with its attempts and its log"}, func(c *cli, run belfry.Run) {
		c.showRun(run)
		c.section("Log", log)
		c.hintWhy(run)
	})
}

// parseRunIDs parses the ids of runs; command is the one that lists them.
func parseRunIDs(texts []string, command string) (ids map[string]belfry.ID, err error) {
	ids = make(map[string]belfry.ID)
	for _, text := range texts {
		if ids[text], err = parseID(text, command); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// hintWhy says how to find out what a run waits for. A pending trigger waits for nothing
// yet.
func (c *cli) hintWhy(run belfry.Run) {
	waits := run.Status == belfry.RunReady || run.Status == belfry.RunWaiting || run.Status == belfry.RunRetry
	if !waits || run.FiredAt.IsZero() {
		return
	}
	c.message("See what it waits for: belfry job why %s --at %s", run.JobID, run.ScheduledAt.UTC().Format(time.RFC3339Nano))
}

func (c *cli) showRun(run belfry.Run) {
	d := details{
		"Run", run.ID, "Job", runJobTitle(run), "Status", statusCell(run.Status), "Reason", run.Reason, "Kind", run.Kind,
		"Scheduled", run.ScheduledAt, "Note", run.Note,
	}
	if run.SkippedTo != nil {
		d.add("Skipped", fmt.Sprintf("%d occurrences until %s", run.SkippedCount, c.absoluteTime(*run.SkippedTo)))
	}
	d.addIf(run.Status == belfry.RunRetry, "Next try", run.ReadyAt)
	d.add("Started", run.StartedAt, "Cancelling", run.CancelRequestedAt, "Finished", run.FinishedAt, "Took", tookText(run))
	addResult(&d, run)
	c.writeDetails(d)
	c.section("Output", run.Output)
	c.showAttempts(run)
}

func addResult(d *details, run belfry.Run) {
	d.add("Attempt", run.Attempt, "Revision", run.Revision, "Key", run.IdempotencyKey, "Trace", run.TraceID)
	d.addIf(run.HTTPStatus != 0, "Response", fmt.Sprintf("HTTP %d", run.HTTPStatus))
	d.add("Error", run.Error)
}

// showAttempts lists the attempts that did not succeed, with their outputs.
func (c *cli) showAttempts(run belfry.Run) {
	if len(run.Attempts) == 0 {
		return
	}
	c.line("\nFailed attempts")
	writeTable(&c.output, run.Attempts, []string{"ATTEMPT", "OUTCOME", "STARTED", "TOOK", "DETAIL"}, []string{"WORKER"}, func(a belfry.Attempt) []any {
		return []any{a.Number, cell{string(a.Outcome), red}, a.StartedAt, elapsedText(a.FinishedAt.Sub(a.StartedAt)), resultText(a.HTTPStatus, a.Error), a.WorkerID}
	})
	for _, a := range run.Attempts {
		if a.Number != run.Attempt || a.Output != run.Output { // otherwise printed above
			c.section(fmt.Sprintf("Output of attempt %d", a.Number), a.Output)
		}
	}
}

func runCancelCommand(f *connectionFlags) *cobra.Command {
	return f.command(&cobra.Command{
		Use: "cancel ID...", Short: "Cancel runs",
		Long: `Cancel runs: a waiting run is cancelled at once, a running one when its worker stops
it, within 7 seconds. The worker aborts an HTTP request, or cancels the context of a
handler. A run that succeeds nevertheless has succeeded.`,
		Example: `  belfry run cancel 0197e9a4-9c1c-7d6e-8f0a-3f6f2a1b4c5d
  belfry run watch 0197e9a4-9c1c-7d6e-8f0a-3f6f2a1b4c5d`,
	}, func(c *cli, args []string) error {
		ids, err := parseRunIDs(args, "run")
		if err != nil {
			return err
		}
		s := selection{past: "cancelled"}
		return s.runNamed(c, args, func(text string) (actionResult, error) {
			run, err := c.CancelRun(c.ctx, ids[text])
			if run.Status == belfry.RunCancelled {
				return actionResult{answer: run, name: text}, err
			}
			return actionResult{answer: run, verb: "cancelling", name: text, detail: "its worker will stop it; see: belfry run watch " + text}, err
		})
	})
}
