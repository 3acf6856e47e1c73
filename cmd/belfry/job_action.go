package main

import (
	"encoding/json"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
)

func jobPauseCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Short: "Pause jobs: they do not fire until they are resumed",
		Example: `  belfry job pause report invoices
  belfry job pause --tag billing --dry-run
  belfry job pause --tag billing --yes`,
	}
	s := newJobSelection(f, cmd, belfry.ActionPause, "paused")
	return f.command(cmd, func(c *cli, args []string) error {
		return s.run(c, args, false, func(ref string) (actionResult, error) {
			job, err := c.PauseJob(c.ctx, ref)
			return actionResult{answer: job, name: jobTitle(job)}, err
		})
	})
}

func jobResumeCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Short: "Resume paused jobs",
		Long: `Resume paused jobs. Occurrences during the pause do not run, unless --catch-up is
given: then they count as missed, and missed_window of each job says which run.`,
		Example: `  belfry job resume report --catch-up
  belfry job resume --status paused --tag billing`,
	}
	s := newJobSelection(f, cmd, belfry.ActionResume, "resumed")
	catchUp := cmd.Flags().Bool("catch-up", false, "catch up on the occurrences during the pause, as missed_window says")
	return f.command(cmd, func(c *cli, args []string) error {
		return s.run(c, args, *catchUp, func(ref string) (actionResult, error) {
			job, err := c.ResumeJob(c.ctx, ref, belfry.Resume{CatchUp: *catchUp})
			return actionResult{answer: job, name: jobTitle(job), detail: c.resumedText(job)}, err
		})
	})
}

// resumedText says when a resumed job runs next, or why it does not.
func (c *cli) resumedText(job belfry.Job) string {
	switch {
	case job.NextRunAt == nil && job.Status == belfry.StatusCancelled:
		return "nothing is planned: the job was cancelled; edit its schedule to plan it again"
	case job.NextRunAt == nil && (job.Status == belfry.StatusCompleted || job.Status == belfry.StatusFailed):
		return "nothing is planned: the job has completed"
	}
	return c.nextRunText(job)
}

func jobCancelCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Short: "Cancel the live runs of jobs and plan nothing more",
		Long: `Cancel jobs: waiting runs are cancelled at once, running ones when their worker
stops them, within 7 seconds, and nothing more is planned. The jobs are kept; they
can be shown and triggered, and an edit of the schedule plans them again. To cancel
a single run, see: belfry run cancel --help`,
		Example: `  belfry job cancel report
  belfry job cancel --queue slow --dry-run`,
	}
	s := newJobSelection(f, cmd, belfry.ActionCancel, "cancelled")
	return f.command(cmd, func(c *cli, args []string) error {
		return s.run(c, args, false, func(ref string) (actionResult, error) {
			job, err := c.CancelJob(c.ctx, ref)
			return actionResult{answer: job, name: jobTitle(job), detail: c.nextRunText(job)}, err
		})
	})
}

func jobDeleteCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Aliases: []string{"rm"},
		Short:   "Delete jobs; by default their runs finish and their history is kept",
		Example: `  belfry job delete report
  belfry job delete report --runs cancel --history delete --yes
  belfry job delete --tag team-a --dry-run`,
	}
	s := newJobSelection(f, cmd, belfry.ActionDelete, resultDeleted)
	s.confirmNamed = true
	var deletion struct {
		Runs    string `json:"runs" enum:"finish,cancel" default:"finish" doc:"What happens to live runs."`
		History string `json:"history" enum:"keep,delete" default:"keep" doc:"What happens to the history."`
	}
	flags := addFieldFlagsOf(cmd, &deletion)
	return f.command(cmd, func(c *cli, args []string) error {
		if err := flags.decodeChecked(&deletion); err != nil {
			return err
		}
		var options []client.CallOption
		if deletion.Runs == "cancel" {
			options = append(options, client.CancelRuns())
		}
		if deletion.History == "delete" {
			options = append(options, client.PurgeHistory())
		}
		return s.run(c, args, len(options) > 0, func(ref string) (actionResult, error) {
			job, err := c.Job(c.ctx, ref) // for its name, if ref is an id
			if err == nil {
				err = c.DeleteJob(c.ctx, job.ID.String(), options...)
			}
			return actionResult{answer: job, name: jobTitle(job)}, err
		})
	})
}

func jobRetryCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Short: "Redrive the dead letters of jobs",
		Long: `Redrive the dead letters of jobs: they run again, with all their retries. To select
some of them, replace their payload or limit their rate, see:
belfry dead redrive --help`,
		Example: `  belfry job retry report
  belfry job retry --status failed --dry-run`,
	}
	s := newJobSelection(f, cmd, belfry.ActionRetry, "retried")
	s.object = "the dead letters of %"
	return f.command(cmd, func(c *cli, args []string) error {
		return s.run(c, args, false, func(ref string) (actionResult, error) {
			done, err := c.redriveJob(ref)
			if err == nil && done.Done == 0 {
				return actionResult{answer: done, verb: resultUnchanged, name: ref, detail: "no dead letters"}, nil
			}
			return actionResult{answer: done, name: ref, detail: plural(done.Done, "run")}, err
		})
	})
}

func jobTriggerCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Short: "Run jobs now",
		Long: `Run jobs now, in addition to their schedule. With --wait the command waits for the
end of the runs; its exit code is 5 unless all of them succeeded.`,
		Example: `  belfry job trigger report --wait
  belfry job trigger invoices --payload '{"customer": 17}'
  belfry job trigger --tag nightly --dry-run`,
	}
	s := newJobSelection(f, cmd, belfry.ActionTrigger, "triggered")
	s.namedOnly = []string{"payload", "idempotency-key", "wait"}
	flags := addFieldFlags[belfry.Trigger](cmd)
	key := cmd.Flags().String("idempotency-key", "", "start one run, however often this is called with the same key within seven days")
	wait := cmd.Flags().BoolP("wait", "w", false, "wait until the runs have ended")
	return f.command(cmd, func(c *cli, args []string) error {
		t := trigger{cli: c, payload: flags.object()["payload"], key: *key, several: len(args) > 1}
		if *wait && len(args) > 0 {
			if _, err := s.usesFilter(c.cmd, args); err != nil {
				return err
			}
			return t.wait(args)
		}
		return s.run(c, args, false, func(ref string) (actionResult, error) {
			result, err := t.start(ref)
			return actionResult{answer: result, name: ref, detail: "run " + result.RunID.String()}, err
		})
	})
}

// trigger is one execution of job trigger.
type trigger struct {
	*cli
	payload json.RawMessage // nil: that of the job
	key     string
	several bool // jobs
}

func (t *trigger) start(ref string) (belfry.TriggerResult, error) {
	var options []client.CallOption
	if t.key != "" {
		key := t.key
		if t.several {
			key += ":" + url.PathEscape(ref) // A key identifies one request.
		}
		options = append(options, client.IdempotencyKey(key))
	}
	var payload any
	if t.payload != nil {
		payload = t.payload
	}
	id, err := t.TriggerJob(t.ctx, ref, payload, options...)
	return belfry.TriggerResult{RunID: id}, err
}

// wait triggers all jobs and follows their runs to the end.
func (t *trigger) wait(refs []string) error {
	started, failed := forEach(t.cli, refs, t.start)
	var runs []belfry.Run
	for _, s := range started {
		run, err := t.followRun(s.RunID)
		if err != nil {
			return err
		}
		runs = append(runs, run)
		if failed == nil {
			failed = runError(run)
		}
	}
	return printAll(&t.output, len(refs), runs, failed)
}
