package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
)

func jobShowCommand(f *connectionFlags) *cobra.Command {
	return f.command(&cobra.Command{
		Use:               "show REF",
		Aliases:           []string{"get"},
		Short:             "Show a job",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.completeJobs(1),
	}, func(c *cli, args []string) error {
		job, err := c.Job(c.ctx, args[0])
		if err != nil {
			return err
		}
		return c.print(job, func() { c.showJob(job) })
	})
}

func (c *cli) showJob(job belfry.Job) {
	now := c.now()
	var d details
	d.add("Name", job.Name)
	d.add("Description", job.Description)
	d.add("ID", job.ID)
	d.add("Namespace", job.Namespace)
	d.add("Status", statusCell(job.Status))
	d.add("Quarantined", cell{job.Quarantined, red})
	d.add("Next run", absoluteTimeIn(job.Timezone, now, job.NextRunAt))
	d.add("Last run", absoluteTimeIn(job.Timezone, now, job.LastRunAt))
	if job.EndedAt != nil {
		d.add("Ended", absoluteTimeIn(job.Timezone, now, job.EndedAt))
	}
	addSpec(&d, job.Spec, job.Payload)
	d.add("Tags", strings.Join(job.Tags, ", "))
	d.add("Revision", job.Revision)
	d.add("Created", absoluteTime(now, job.CreatedAt))
	d.add("Updated", absoluteTime(now, job.UpdatedAt))
	d.write(&c.output)
	c.jsonSection("Payload", job.Payload)
}

// addSpec adds how a job runs. Fields that are not set are left out.
func addSpec(d *details, spec belfry.Spec, payload json.RawMessage) {
	d.add("Schedule", scheduleSentence(spec))
	d.add("Resolved", spec.Resolved)
	d.add("Time zone", spec.Timezone)
	for _, bound := range []struct {
		name string
		at   time.Time
	}{{"Starts", spec.StartsAt}, {"Ends", spec.EndsAt}} {
		if !bound.at.IsZero() {
			d.add(bound.name, localTime(spec.Timezone, bound.at))
		}
	}
	if spec.MaxRuns > 0 {
		d.add("Max runs", spec.MaxRuns)
	}
	if spec.JitterSeconds > 0 {
		d.add("Jitter", "up to "+durationText(time.Duration(spec.JitterSeconds)*time.Second))
	}
	d.add("DST gap", spec.DSTGap)
	d.add("DST overlap", spec.DSTOverlap)
	d.add("Target", targetText(spec, payload))
	d.add("Queue", spec.Queue)
	if spec.Priority != belfry.PriorityNormal {
		d.add("Priority", spec.Priority)
	}
	d.add("Timeout", durationText(spec.Timeout()))
	d.add("Retries", retryText(spec.Retry()))
	d.add("Overlap", overlapText(spec))
	d.add("Missed", missedText(spec))
	if spec.RetentionDays > 0 {
		d.add("Retention", plural(spec.RetentionDays, "day"))
	}
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
		var delays []string
		for _, seconds := range r.Delays.Seconds() {
			delays = append(delays, delayText(time.Duration(seconds*float64(time.Second))))
		}
		return "after " + strings.Join(delays, ", ")
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
