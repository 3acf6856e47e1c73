package main

import (
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

func jobListCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Short: "List jobs, newest first",
		Example: `  belfry job list --status failing
  belfry job list --tag billing --tag nightly -o wide
  belfry job list --search report --limit 0 -o json`,
	}
	flags := addFilterFlags[belfry.JobFilter](f, cmd)
	return listing[belfry.Job]{
		noun: "jobs", none: "No jobs. Create one with: belfry job create hello --schedule '* * * * *' --url http://...", filter: flags,
		list: func(c *cli, _ []string, pageSize int) (iter.Seq2[belfry.Job, error], error) {
			filter := belfry.JobFilter{PageSize: pageSize}
			err := flags.decode(&filter)
			return c.Jobs(c.ctx, filter), err
		},
		show: (*cli).jobTable,
	}.command(f, cmd)
}

func (c *cli) jobTable(jobs []belfry.Job) {
	header, wide := []string{"NAME", "STATUS", "SCHEDULE", "TARGET", "NEXT", "LAST", "LAST RESULT"}, []string{"ID", "TYPE", "QUEUE", "PRIORITY", "REVISION", "CREATED", "UPDATED", "TAGS", "DESCRIPTION", "RESULT AT", "ERROR"}
	writeTable(&c.output, jobs, header, wide, func(j belfry.Job) []any {
		var at *time.Time
		failure := ""
		if j.LastResult != nil {
			at, failure = &j.LastResult.At, j.LastResult.Error
		}
		return []any{jobTitle(j), statusCell(j.Status), scheduleText(j.Spec), c.clip(targetText(j.Spec, j.Payload)), c.tableTimeOrNone(j.NextRunAt), c.tableTimeOrNone(j.LastRunAt),
			resultCell(j.LastResult),
			j.ID, j.Type, j.Queue, j.Priority, j.Revision, c.tableTime(j.CreatedAt), c.tableTime(j.UpdatedAt), strings.Join(j.Tags, ","), c.clip(j.Description),
			c.tableTimeOrNone(at), c.clip(failure)}
	})
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

func jobRunsCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "runs REF",
		Short:   "List the runs of a job, latest first; of a deleted job by its id",
		Example: `  belfry job runs report --status skipped --since 24h`,
	}
	flags := addFilterFlags[belfry.JobRunFilter](f, cmd)
	return listing[belfry.Run]{
		noun: "runs", none: "No runs yet. Run the job now with: belfry job trigger REF", filter: flags,
		list: func(c *cli, args []string, pageSize int) (iter.Seq2[belfry.Run, error], error) {
			filter := belfry.JobRunFilter{PageSize: pageSize}
			err := flags.decodePeriod(&filter, &filter.Since, &filter.Until)
			return c.JobRuns(c.ctx, args[0], filter), err
		},
		show: func(c *cli, runs []belfry.Run) { c.runTable(runs, false) },
	}.command(f, cmd)
}

func jobRevisionsCommand(f *connectionFlags) *cobra.Command {
	return listing[belfry.Revision]{
		noun: "revisions",
		list: func(c *cli, args []string, _ int) (iter.Seq2[belfry.Revision, error], error) {
			return c.Revisions(c.ctx, args[0]), nil
		},
		show: (*cli).revisionTable,
	}.command(f, &cobra.Command{
		Use:   "revisions REF",
		Short: "List the revisions of a job, latest first",
	})
}

func (c *cli) revisionTable(revisions []belfry.Revision) {
	header, wide := []string{"REVISION", "REPLACED", "SCHEDULE", "TARGET", "RETRIES"}, []string{"QUEUE", "TIMEOUT", "OVERLAP", "MISSED"}
	writeTable(&c.output, revisions, header, wide, func(r belfry.Revision) []any {
		replaced := "current"
		if r.ReplacedAt != nil {
			replaced = c.tableTime(*r.ReplacedAt)
		}
		return []any{r.Number, replaced, scheduleText(r.Spec), c.clip(targetText(r.Spec, r.Payload)), r.MaxRetries.Value(),
			r.Queue, durationText(r.Timeout()), overlapText(r.Spec), missedText(r.Spec)}
	})
}

func jobRollbackCommand(f *connectionFlags) *cobra.Command {
	return f.command(&cobra.Command{
		Use:               "rollback REF REVISION",
		Short:             "Return a job to an earlier revision",
		Example:           "  belfry job rollback report 3",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: f.completeJobs(1),
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

func jobShowCommand(f *connectionFlags) *cobra.Command {
	return f.oneJob(&cobra.Command{
		Use:     "show REF",
		Aliases: []string{"get"},
		Short:   "Show a job",
	}, func(c *cli, ref string) error {
		job, err := c.Job(c.ctx, ref)
		return c.printAnswer(job, err, func() { c.showJob(job) })
	})
}

func (c *cli) showJob(job belfry.Job) {
	var d details
	d.add("Name", job.Name)
	d.add("Description", job.Description)
	d.add("ID", job.ID)
	d.add("Namespace", job.Namespace)
	d.add("Status", statusCell(job.Status))
	d.add("Quarantined", cell{job.Quarantined, red})
	d.add("Next run", c.absoluteTimeIn(job.Timezone, job.NextRunAt))
	d.add("Last run", c.absoluteTimeIn(job.Timezone, job.LastRunAt))
	if r := job.LastResult; r != nil {
		result := resultCell(r)
		result.text += "  " + c.absoluteTimeIn(job.Timezone, &r.At)
		d.add("Last result", result)
		d.add("Last error", r.Error)
	}
	d.addIf(job.EndedAt != nil, "Ended", c.absoluteTimeIn(job.Timezone, job.EndedAt))
	addSpec(&d, job.Spec, job.Payload)
	d.add("Tags", strings.Join(job.Tags, ", "))
	d.add("Revision", job.Revision)
	d.add("Created", c.absoluteTime(job.CreatedAt))
	d.add("Updated", c.absoluteTime(job.UpdatedAt))
	c.writeRows(d)
	c.jsonSection("Payload", job.Payload)
}

// addSpec adds how a job runs. Fields that are not set are left out.
func addSpec(d *details, spec belfry.Spec, payload json.RawMessage) {
	d.add("Schedule", scheduleSentence(spec))
	d.add("Resolved", spec.Resolved)
	d.add("Time zone", spec.Timezone)
	d.addIf(!spec.StartsAt.IsZero(), "Starts", localTime(spec.Timezone, spec.StartsAt))
	d.addIf(!spec.EndsAt.IsZero(), "Ends", localTime(spec.Timezone, spec.EndsAt))
	d.addIf(spec.MaxRuns > 0, "Max runs", spec.MaxRuns)
	d.addIf(spec.JitterSeconds > 0, "Jitter", "up to "+durationText(time.Duration(spec.JitterSeconds)*time.Second))
	d.add("DST gap", spec.DSTGap)
	d.add("DST overlap", spec.DSTOverlap)
	d.add("Target", targetText(spec, payload))
	d.add("Queue", spec.Queue)
	d.addIf(spec.Priority != belfry.PriorityNormal, "Priority", spec.Priority)
	d.add("Timeout", durationText(spec.Timeout()))
	d.add("Retries", retryText(spec.Retry()))
	d.add("Overlap", overlapText(spec))
	d.add("Missed", missedText(spec))
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
		Use:   "why REF",
		Short: "Explain why a job ran at an instant, or did not, or will",
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
	return f.oneJob(cmd, func(c *cli, ref string) error {
		instant := strings.TrimSpace(*at)
		if _, err := parseMoment(instant, "UTC", c.now()); err != nil && cmd.Flags().Changed("at") {
			return usagef("--at: %w", err)
		}
		if moment, err := parseTimeOrAge(instant, c.now()); err == nil { // The server knows the zone of a wall time.
			instant = moment.Format(time.RFC3339Nano)
		}
		explanation, err := c.ExplainJob(c.ctx, ref, instant)
		return c.printAnswer(explanation, err, func() { c.showExplanation(explanation) })
	})
}

func (c *cli) showExplanation(e belfry.Explanation) {
	c.line("%s\n", escape(e.Sentence))
	zone := e.Rule.Timezone
	var d details
	d.add("Instant", c.absoluteTimeIn(zone, &e.At))
	d.add("Decision", statusCell(e.Decision))
	d.add("Reason", e.Reason)
	if run := e.Run; run != nil && run.Status != belfry.RunSkipped {
		d.add("Run", run.ID)
		d.add("Attempt", run.Attempt)
		d.add("Result", resultText(run.HTTPStatus, run.Error))
	}
	if e.WaitsFor != nil {
		d.add("Waits for", c.waitText(*e.WaitsFor, zone))
	}
	rule := e.Rule.Schedule
	if e.Rule.Description != "" {
		rule += "  (" + e.Rule.Description + ")"
	}
	d.add("Schedule", rule)
	d.add("Revision", e.Revision)
	d.add("Previous", c.absoluteTimeIn(zone, e.Previous))
	d.add("Next", c.absoluteTimeIn(zone, e.Next))
	c.writeRows(d)
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
