package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
)

// jobAction is what a command does to a job.
type jobAction func(c *cli, ref string) (actionResult, error)

// jobActions makes the commands that act on the jobs that are named, or that a filter matches.
func jobActions(f *connectionFlags) []*cobra.Command {
	simple := func(action belfry.Action, past, object string, cmd *cobra.Command, each jobAction) *cobra.Command {
		s := newJobSelection(f, cmd, action, past)
		s.object = object
		return f.command(cmd, func(c *cli, args []string) error { return s.run(c, args, false, each) })
	}
	return []*cobra.Command{simple(belfry.ActionPause, "paused", "", &cobra.Command{
		Short: "Pause jobs: they do not fire until they are resumed",
		Example: `  belfry job pause report invoices
  belfry job pause --tag billing --dry-run
  belfry job pause --tag billing --yes`,
	}, func(c *cli, ref string) (actionResult, error) {
		job, err := c.PauseJob(c.ctx, ref)
		return actionResult{answer: job, name: jobTitle(job)}, err
	}), simple(belfry.ActionCancel, "cancelled", "", &cobra.Command{
		Short: "Cancel the live runs of jobs and plan nothing more",
		Long: `Cancel jobs: waiting runs are cancelled at once, running ones when their worker
stops them, within 7 seconds, and nothing more is planned. The jobs are kept; they
can be shown and triggered, and an edit of the schedule plans them again. To cancel
a single run, see: belfry run cancel --help`,
		Example: `  belfry job cancel report
  belfry job cancel --queue slow --dry-run`,
	}, func(c *cli, ref string) (actionResult, error) {
		job, err := c.CancelJob(c.ctx, ref)
		return actionResult{answer: job, name: jobTitle(job), detail: c.nextRunText(job)}, err
	}), simple(belfry.ActionRetry, "retried", "the dead letters of %", &cobra.Command{
		Short: "Redrive the dead letters of jobs",
		Long: `Redrive the dead letters of jobs: they run again, with all their retries. To select
some of them, replace their payload or limit their rate, see:
belfry dead redrive --help`,
		Example: `  belfry job retry report
  belfry job retry --status failed --dry-run`,
	}, func(c *cli, ref string) (actionResult, error) {
		done, err := c.redriveJob(ref)
		if err == nil && done.Done == 0 {
			return actionResult{answer: done, verb: resultUnchanged, name: ref, detail: "no dead letters"}, nil
		}
		return actionResult{answer: done, name: ref, detail: plural(done.Done, "run")}, err
	}), jobResumeCommand(f), jobDeleteCommand(f), jobTriggerCommand(f)}
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
		return s.run(c, args, *catchUp, func(c *cli, ref string) (actionResult, error) {
			job, err := c.ResumeJob(c.ctx, ref, belfry.Resume{CatchUp: *catchUp})
			detail := c.nextRunText(job)
			if job.NextRunAt == nil && err == nil {
				detail = "nothing is planned: no run is left"
			}
			return actionResult{answer: job, name: jobTitle(job), detail: detail}, err
		})
	})
}

func jobDeleteCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Short: "Delete jobs; by default their runs finish and their history is kept",
		Example: `  belfry job delete report
  belfry job delete report --runs cancel --history delete --yes
  belfry job delete --tag team-a --dry-run`,
	}
	s := newJobSelection(f, cmd, belfry.ActionDelete, resultDeleted)
	s.confirmNamed = true
	type deletion struct {
		Runs    string `json:"runs" enum:"finish,cancel" default:"finish" doc:"What happens to live runs."`
		History string `json:"history" enum:"keep,delete" default:"keep" doc:"What happens to the history."`
	}
	flags := addFieldFlags[deletion](cmd)
	return f.command(cmd, func(c *cli, args []string) error {
		var d deletion
		if err := flags.decodeChecked(&d); err != nil {
			return err
		}
		var options []client.CallOption
		if d.Runs == "cancel" {
			options = append(options, client.CancelRuns())
		}
		if d.History == "delete" {
			options = append(options, client.PurgeHistory())
		}
		return s.run(c, args, len(options) > 0, func(c *cli, ref string) (actionResult, error) {
			job, err := c.Job(c.ctx, ref) // for its name, if ref is an id
			if err == nil {
				err = c.DeleteJob(c.ctx, job.ID.String(), options...)
			}
			return actionResult{answer: job, name: jobTitle(job)}, err
		})
	})
}

func jobTriggerCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Short: "Run jobs now",
		Long: `Run jobs now, in addition to their schedule. The overlap policy applies: a run that is
skipped because an earlier one is alive is reported, with exit code 5. With --wait the
command waits for the end of the runs; its exit code is 5 unless all of them succeeded.`,
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
		var payload any // nil: that of the job
		if value := flags.object()["payload"]; value != nil {
			payload = value
		}
		start := func(ref string) (belfry.TriggerResult, error) {
			key := *key
			if key != "" && len(args) > 1 {
				key += ":" + url.PathEscape(ref) // A key identifies one request.
			}
			id, err := c.TriggerJob(c.ctx, ref, payload, client.IdempotencyKey(key))
			return belfry.TriggerResult{RunID: id}, err
		}
		if *wait && len(args) > 0 {
			if _, err := s.usesFilter(c, args); err != nil {
				return err
			}
			return c.triggerAndWait(args, start)
		}
		var skipped error
		err := s.run(c, args, false, func(c *cli, ref string) (actionResult, error) {
			started, err := start(ref)
			result := actionResult{answer: started, name: ref, detail: "run " + started.RunID.String()}
			if err == nil {
				if run := c.firedRun(started.RunID); run.Status == belfry.RunSkipped {
					skipped = cmp.Or(skipped, runError(run))
					result.verb = "skipped"
				}
			}
			return result, err
		})
		return cmp.Or(err, skipped)
	})
}

// firedRun waits a moment for a triggered run to be decided, and returns it; a zero run
// if that takes longer.
func (c *cli) firedRun(id belfry.ID) belfry.Run {
	ctx, cancel := context.WithTimeout(c.ctx, time.Second)
	defer cancel()
	for {
		run, err := c.Run(ctx, id)
		if err != nil || !run.FiredAt.IsZero() {
			return run
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return belfry.Run{}
		}
	}
}

func (c *cli) triggerAndWait(refs []string, start func(ref string) (belfry.TriggerResult, error)) error {
	started, failed := forEach(c, refs, start)
	var runs []belfry.Run
	for _, s := range started {
		run, err := c.followRun(s.RunID)
		if err != nil {
			return err
		}
		runs = append(runs, run)
		if failed == nil {
			failed = runError(run)
		}
	}
	return printAll(&c.output, len(refs), runs, failed)
}

// backfill is the flags of a command, and its job.
type backfill struct {
	*cli
	belfry.Backfill
	job           belfry.Job
	from, to, key string
	yes           bool
}

func jobBackfillCommand(f *connectionFlags) *cobra.Command {
	b := &backfill{}
	cmd := &cobra.Command{
		Use: "backfill REF --from T [--to T]", Short: "Run a job for past occurrences of its schedule",
		Long: `Run a job for the occurrences of its schedule in a span of the past, whether they
ran before or not. The runs have a kind of their own. Unless the runs of the job may
overlap, they run one after another, oldest first.

` + aboutMoments + `

At a terminal it lists the occurrences and asks first, unless --yes is given.`,
		Example: `  belfry job backfill report --from '2026-03-01 00:00' --to '2026-03-07 23:59' --dry-run
  belfry job backfill report --from 24h --yes`,
	}
	p := cmd.Flags()
	p.StringVar(&b.from, "from", "", "first instant that may run, as `T`")
	p.StringVar(&b.to, "to", "", "last instant that may run, as `T` (default now)")
	p.IntVar(&b.Limit, "limit", 100, "how many runs at most, up to 1000")
	p.BoolVar(&b.DryRun, "dry-run", false, "list the occurrences, but run nothing")
	p.BoolVarP(&b.yes, "yes", "y", false, "do not ask for confirmation")
	p.StringVar(&b.key, "idempotency-key", "", "create the runs once, however often this is called with the same key within seven days")
	completeFlag(cmd, "from")
	completeFlag(cmd, "to")
	return f.command(cmd, func(c *cli, args []string) (err error) {
		b.cli = c
		if b.from == "" {
			return usagef("--from is required, for example --from 24h")
		}
		if b.job, err = c.Job(c.ctx, args[0]); err != nil {
			return err
		}
		return b.run()
	})
}

func (b *backfill) run() (err error) {
	if b.Limit < 1 {
		return usagef("--limit: must be from 1 to 1000, not %d", b.Limit)
	}
	if b.From, err = parseMoment(b.from, b.job.Timezone, b.now()); err != nil {
		return usagef("--from: %w", err)
	}
	if b.to != "" {
		if b.To, err = parseMoment(b.to, b.job.Timezone, b.now()); err != nil {
			return usagef("--to: %w", err)
		}
	}
	if ask := !b.yes && isTerminal(b.in); ask || b.DryRun {
		request := b.Backfill
		request.DryRun = true
		preview, err := b.BackfillJob(b.ctx, b.job.ID.String(), request)
		if err != nil {
			return err
		}
		if b.DryRun {
			return b.print(preview, func() { b.showOccurrences(&b.output, preview) })
		}
		onError := b.output // Data is what was done.
		onError.out = &writer{Writer: b.err}
		b.showOccurrences(&onError, preview)
		if preview.Count == 0 {
			return nil
		}
		if err := b.ask("Run " + jobTitle(b.job) + " for " + plural(preview.Count, "occurrence") + "?"); err != nil {
			return err
		}
	}
	result, err := b.BackfillJob(b.ctx, b.job.ID.String(), b.Backfill, client.IdempotencyKey(b.key))
	return b.printAnswer(result, err, func() {
		if n := len(result.Instants); n > 0 {
			first, last := localTime(b.job.Timezone, result.Instants[0]), localTime(b.job.Timezone, result.Instants[n-1])
			b.result("backfilled", jobTitle(b.job), fmt.Sprintf("%s, %s to %s", plural(result.Count, "run"), first, last))
		}
		b.messageRest(result)
	})
}

func (b *backfill) showOccurrences(o *output, r belfry.BackfillResult) {
	if r.Count > 0 {
		writeTable(o, r.Instants, []string{"OCCURRENCE", "WHEN"}, nil, func(at time.Time) []any {
			return []any{localTime(b.job.Timezone, at), b.relativeTime(at)}
		})
	}
	b.messageRest(r)
}

// messageRest says that there was nothing, or how to continue after the limit.
func (b *backfill) messageRest(r belfry.BackfillResult) {
	if r.Count == 0 {
		b.message("Nothing to run: the schedule of %s has no occurrence in that span.", escape(jobTitle(b.job)))
	}
	if r.More {
		b.message("There are more occurrences. Continue with: --from %s", localTime(b.job.Timezone, r.NextFrom))
	}
}
