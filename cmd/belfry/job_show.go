package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// jobLists makes the commands that list jobs, and what a job has.
func jobLists(f *connectionFlags) []*cobra.Command {
	return []*cobra.Command{
		listing[belfry.Job, belfry.JobFilter]{
			noun: "jobs", none: "No jobs. Create one with: belfry job create hello --schedule '* * * * *' --url http://...", find: (*cli).Jobs,
			show: table([]string{"NAME", "STATUS", "SCHEDULE", "TARGET", "NEXT", "LAST", "LAST RESULT"},
				[]string{"ID", "TYPE", "QUEUE", "PRIORITY", "REVISION", "CREATED", "UPDATED", "TAGS", "DESCRIPTION", "RESULT AT", "ERROR"}, jobRow),
		}.command(f, &cobra.Command{
			Short: "List jobs, newest first",
			Example: `  belfry job list --status failing
  belfry job list --tag billing --tag nightly -o wide
  belfry job list --search report --limit 0 -o json`,
		}),
		listing[belfry.Run, belfry.JobRunFilter]{
			noun: "runs", none: "No runs yet. Run the job now with: belfry job trigger REF", period: true,
			find: func(c *cli, ctx context.Context, filter belfry.JobRunFilter) iter.Seq2[belfry.Run, error] {
				return c.JobRuns(ctx, c.argument(), filter)
			},
			show: func(c *cli, runs []belfry.Run) { c.runTable(runs, false) },
		}.command(f, &cobra.Command{
			Use: "runs REF", Short: "List the runs of a job, latest first; of a deleted job by its id",
			Example: `  belfry job runs report --status skipped --since 24h`,
		}),
		listing[belfry.Revision, struct{}]{
			noun: "revisions",
			find: func(c *cli, ctx context.Context, _ struct{}) iter.Seq2[belfry.Revision, error] {
				return c.Revisions(ctx, c.argument())
			},
			show: table([]string{"REVISION", "REPLACED", "SCHEDULE", "TARGET", "RETRIES"}, []string{"QUEUE", "TIMEOUT", "OVERLAP", "MISSED"}, revisionRow),
		}.command(f, &cobra.Command{Use: "revisions REF", Short: "List the revisions of a job, latest first"}),
	}
}

func jobRow(c *cli, j belfry.Job) []any {
	result := cmp.Or(j.LastResult, &belfry.LastResult{})
	return []any{jobTitle(j), statusCell(j.Status), scheduleText(j.Spec), c.clip(targetText(j.Spec, j.Payload)), j.NextRunAt, j.LastRunAt,
		resultCell(j.LastResult), j.ID, j.Type, j.Queue, j.Priority, j.Revision, j.CreatedAt, j.UpdatedAt,
		strings.Join(j.Tags, ","), c.clip(j.Description), result.At, c.clip(result.Error)}
}

// resultCell is the last result of a job: "succeeded", "failed 3 times". It is empty
// without any.
func resultCell(r *belfry.LastResult) cell {
	if r == nil {
		return cell{}
	}
	c := statusCell(r.Status)
	if r.Status == belfry.ResultFailed {
		c.text += " " + plural(int(r.Failures), "time")
	}
	return c
}

func revisionRow(c *cli, r belfry.Revision) []any {
	replaced := any("current")
	if r.ReplacedAt != nil {
		replaced = r.ReplacedAt
	}
	return []any{r.Number, replaced, scheduleText(r.Spec), c.clip(targetText(r.Spec, r.Payload)), r.MaxRetries.Value(),
		r.Queue, durationText(r.Timeout()), overlapText(r.Spec), missedText(r.Spec)}
}

func jobRollbackCommand(f *connectionFlags) *cobra.Command {
	return f.command(&cobra.Command{
		Use: "rollback REF REVISION", Short: "Return a job to an earlier revision", Example: "  belfry job rollback report 3",
	}, func(c *cli, args []string) error {
		revision, err := strconv.Atoi(args[1])
		if err != nil || revision < 1 {
			return usagef("%q is not a revision; list them with: belfry job revisions %s", args[1], args[0])
		}
		job, err := c.RollbackJob(c.ctx, args[0], revision)
		return c.printAnswer(job, err, func() {
			c.result("restored", jobTitle(job), "revision "+strconv.Itoa(revision)+" is now revision "+strconv.Itoa(job.Revision))
		})
	})
}

func (c *cli) showJob(job belfry.Job) {
	at := func(at *time.Time) string { return c.absoluteTimeIn(job.Timezone, at) }
	d := details{
		"Name", job.Name, "Description", job.Description, "ID", job.ID, "Namespace", job.Namespace, "Status", statusCell(job.Status),
		"Quarantined", cell{job.Quarantined, red}, "Next run", at(job.NextRunAt), "Last run", at(job.LastRunAt),
	}
	if r := job.LastResult; r != nil {
		result := resultCell(r)
		result.text += "  " + at(&r.At)
		d.add("Last result", result, "Last error", r.Error)
	}
	d.addIf(job.EndedAt != nil, "Ended", at(job.EndedAt))
	addSpec(&d, job.Spec, job.Payload)
	d.add("Tags", job.Tags, "Revision", job.Revision, "Created", job.CreatedAt, "Updated", job.UpdatedAt)
	c.writeDetails(d)
	c.jsonSection("Payload", job.Payload)
}

// addSpec adds how a job runs. Fields that are not set are left out.
func addSpec(d *details, spec belfry.Spec, payload json.RawMessage) {
	d.add("Schedule", scheduleSentence(spec), "Resolved", spec.Resolved, "Time zone", spec.Timezone)
	d.addIf(!spec.StartsAt.IsZero(), "Starts", localTime(spec.Timezone, spec.StartsAt))
	d.addIf(!spec.EndsAt.IsZero(), "Ends", localTime(spec.Timezone, spec.EndsAt))
	d.addIf(spec.MaxRuns > 0, "Max runs", spec.MaxRuns)
	d.addIf(spec.JitterSeconds > 0, "Jitter", "up to "+durationText(time.Duration(spec.JitterSeconds)*time.Second))
	d.add("DST gap", spec.DSTGap, "DST overlap", spec.DSTOverlap, "Target", targetText(spec, payload), "Queue", spec.Queue)
	d.addIf(spec.Priority != belfry.PriorityNormal, "Priority", spec.Priority)
	d.add("Timeout", durationText(spec.Timeout()), "Retries", retryText(spec.Retry()), "Overlap", overlapText(spec), "Missed", missedText(spec))
	d.addIf(spec.RetentionDays > 0, "Retention", plural(spec.RetentionDays, "day"))
	d.add("Run keys", spec.IdempotencyKeyTemplate)
}

// scheduleSentence is a schedule with its meaning, if this version of belfry knows it.
func scheduleSentence(spec belfry.Spec) string {
	rule, err := schedule.Parse(plan.Text(spec), plan.Options(spec))
	if err != nil {
		return spec.Schedule
	}
	return spec.Schedule + "  (" + schedule.Describe(rule) + ")"
}

func retryText(r belfry.Retry) string {
	if r.Max == 0 {
		return "none"
	}
	text := fmt.Sprintf("%d, %s", r.Max, backoffText(r))
	if r.Backoff != belfry.BackoffImmediate && r.Jitter > 0 {
		text += fmt.Sprintf(", ±%.0f%%", r.Jitter*100)
	}
	if r.On == belfry.RetryOnServerErrors {
		text += ", not after 4xx except 408, 425 and 429"
	}
	return text
}

func backoffText(r belfry.Retry) string {
	switch r.Backoff {
	case belfry.BackoffImmediate:
		return string(r.Backoff)
	case belfry.BackoffFixed:
		return fmt.Sprintf("%s %s", r.Backoff, delayText(min(r.Base, r.Cap)))
	case belfry.BackoffList:
		return "after " + strings.Join(mapSlice(r.Delays.Seconds(), secondsText), ", ")
	}
	return fmt.Sprintf("%s from %s to %s", r.Backoff, delayText(r.Base), delayText(r.Cap))
}

func overlapText(spec belfry.Spec) string {
	if spec.Overlap == belfry.OverlapQueue {
		return fmt.Sprintf("%s, at most %d", spec.Overlap, spec.QueueLimit())
	}
	return string(spec.Overlap)
}

func missedText(spec belfry.Spec) string {
	text := string(spec.MissedWindow)
	if spec.MissedWindow == belfry.MissedRunAll {
		text += fmt.Sprintf(", the newest %d", spec.MissedLimit())
	}
	if spec.CatchUpSeconds > 0 && spec.MissedWindow != belfry.MissedSkip {
		text += ", not older than " + durationText(time.Duration(spec.CatchUpSeconds)*time.Second)
	}
	return text
}

func jobWhyCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "why REF", Short: "Explain why a job ran at an instant, or did not, or will",
		Long: `Explain what was decided for an instant of a job and by which rule, or what is
planned, and what a waiting run waits for.

` + aboutMoments + `

Without --at it is the latest instant that was decided, or a later triggered or
backfilled run that has not ended, or else the next instant.`,
		Example: `  belfry job why report
  belfry job why report --at '2026-03-02 09:05'
  belfry job why report --at 10m
  belfry job why report --at 2026-03-02T09:05:00+01:00 -o json`,
	}
	at := cmd.Flags().String("at", "", "explain this instant, given as `T`")
	completeFlag(cmd, "at")
	return request[belfry.Explanation](func(c *cli, ctx context.Context, ref string) (e belfry.Explanation, err error) {
		instant := strings.TrimSpace(*at)
		if _, err := parseMoment(instant, "UTC", c.now()); err != nil && cmd.Flags().Changed("at") {
			return e, usagef("--at: %w", err)
		}
		if moment, err := parseTimeOrAge(instant, c.now()); err == nil { // The server knows the zone of a wall time.
			instant = moment.Format(time.RFC3339Nano)
		}
		return c.ExplainJob(ctx, ref, instant)
	}).command(f, cmd, (*cli).showExplanation)
}

func (c *cli) showExplanation(e belfry.Explanation) {
	c.line("%s\n", escape(e.Sentence))
	zone := e.Rule.Timezone
	d := details{"Instant", c.absoluteTimeIn(zone, &e.At), "Decision", statusCell(e.Decision), "Reason", e.Reason}
	if run := e.Run; run != nil && run.Status != belfry.RunSkipped {
		d.add("Run", run.ID, "Attempt", run.Attempt, "Result", resultText(run.HTTPStatus, run.Error))
	}
	if e.WaitsFor != nil {
		d.add("Waits for", c.waitText(*e.WaitsFor, zone))
	}
	rule := e.Rule.Schedule
	if e.Rule.Description != "" {
		rule += "  (" + e.Rule.Description + ")"
	}
	d.add("Schedule", rule, "Revision", e.Revision, "Previous", c.absoluteTimeIn(zone, e.Previous), "Next", c.absoluteTimeIn(zone, e.Next))
	c.writeDetails(d)
}

func (c *cli) waitText(w belfry.Wait, zone string) string {
	switch w.What {
	case belfry.WaitForWorker:
		return fmt.Sprintf("a worker for %s/%s: there is none", w.Queue, w.Handler)
	case belfry.WaitForSlot:
		return fmt.Sprintf("a free slot for %s/%s: %s, %s, %d in use; %s ahead",
			w.Queue, w.Handler, plural(w.Workers, "worker"), plural(w.Slots, "slot"), w.Running, plural(w.Ahead, "run"))
	case belfry.WaitForRun:
		return "earlier runs of the job: " + strings.Join(mapSlice(w.RunIDs, belfry.ID.String), ", ")
	case belfry.WaitForTime:
		return c.absoluteTimeIn(zone, w.Until)
	}
	return string(w.What)
}
