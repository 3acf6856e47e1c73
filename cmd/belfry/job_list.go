package main

import (
	"iter"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

func jobListCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List jobs, newest first",
		Example: `  belfry job list --status paused
  belfry job list --tag billing --tag nightly -o wide
  belfry job list --search report --limit 0 -o json`,
		Args: cobra.NoArgs,
	}
	flags := addFilterFlags[belfry.JobFilter](f, cmd)
	return listing[belfry.Job]{
		noun: "jobs", none: "No jobs. Create one with: belfry job create --name hello --schedule '* * * * *' --url http://...", filter: flags,
		list: func(c *cli, _ []string, pageSize int) (iter.Seq2[belfry.Job, error], error) {
			filter := belfry.JobFilter{PageSize: pageSize}
			err := flags.decode(&filter)
			return c.Jobs(c.ctx, filter), err
		},
		show: (*cli).jobTable,
	}.command(f, cmd)
}

func (c *cli) jobTable(jobs []belfry.Job) {
	now := c.now()
	t := c.table([]string{"NAME", "STATUS", "SCHEDULE", "TARGET", "NEXT", "LAST"}, "ID", "TYPE", "QUEUE", "PRIORITY", "REVISION", "TAGS")
	for _, j := range jobs {
		t.row(jobTitle(j), statusCell(j.Status), scheduleText(j.Spec), t.clip(targetText(j.Spec, j.Payload)), relativeTimeOrNone(now, j.NextRunAt), relativeTimeOrNone(now, j.LastRunAt),
			j.ID, j.Type, j.Queue, j.Priority, j.Revision, strings.Join(j.Tags, ","))
	}
	t.write()
}

func jobRunsCommand(f *connectionFlags) *cobra.Command {
	return listing[belfry.Run]{
		noun: "runs", none: "No runs yet. Run the job now with: belfry job trigger REF",
		list: func(c *cli, args []string, _ int) (iter.Seq2[belfry.Run, error], error) {
			return c.JobRuns(c.ctx, args[0]), nil
		},
		show: func(c *cli, runs []belfry.Run) { c.runTable(runs, nil) },
	}.command(f, &cobra.Command{
		Use:               "runs REF",
		Short:             "List the runs of a job, latest first",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.completeJobs(1),
	})
}

func jobRevisionsCommand(f *connectionFlags) *cobra.Command {
	return listing[belfry.Revision]{
		noun: "revisions",
		list: func(c *cli, args []string, _ int) (iter.Seq2[belfry.Revision, error], error) {
			return c.Revisions(c.ctx, args[0]), nil
		},
		show: (*cli).revisionTable,
	}.command(f, &cobra.Command{
		Use:               "revisions REF",
		Short:             "List the revisions of a job, latest first",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.completeJobs(1),
	})
}

func (c *cli) revisionTable(revisions []belfry.Revision) {
	now := c.now()
	t := c.table([]string{"REVISION", "REPLACED", "SCHEDULE", "TARGET", "RETRIES"}, "QUEUE", "TIMEOUT", "OVERLAP", "MISSED")
	for _, r := range revisions {
		replaced := "current"
		if r.ReplacedAt != nil {
			replaced = relativeTime(now, *r.ReplacedAt)
		}
		t.row(r.Number, replaced, scheduleText(r.Spec), t.clip(targetText(r.Spec, r.Payload)), r.MaxRetries.Value(),
			r.Queue, durationText(r.Timeout()), overlapText(r.Spec), missedText(r.Spec))
	}
	t.write()
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
		if err != nil {
			return err
		}
		return c.print(job, func() {
			c.result("restored", jobTitle(job), "revision "+strconv.Itoa(revision)+" is now revision "+strconv.Itoa(job.Revision))
		})
	})
}
