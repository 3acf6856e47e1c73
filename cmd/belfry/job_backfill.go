package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
)

// backfill is one execution of job backfill.
type backfill struct {
	*cli
	job  belfry.Job
	from string
	to   string
	key  string
	yes  bool
	belfry.Backfill
}

func jobBackfillCommand(f *connectionFlags) *cobra.Command {
	b := &backfill{}
	cmd := &cobra.Command{
		Use:   "backfill REF --from T [--to T]",
		Short: "Run a job for past occurrences of its schedule",
		Long: `Run a job for the occurrences of its schedule in a span of the past, whether they
ran before or not. The runs have a kind of their own. Unless the runs of the job may
overlap, they run one after another, oldest first.

T is an instant such as 2026-03-02T09:00:00+01:00, a wall time in the time zone of
the job such as '2026-03-02 09:00', or an age such as 24h or 7d.

At a terminal it lists the occurrences and asks first, unless --yes is given.`,
		Example: `  belfry job backfill report --from '2026-03-01 00:00' --to '2026-03-07 23:59' --dry-run
  belfry job backfill report --from 24h --yes`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.completeJobs(1),
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
	return f.command(cmd, func(c *cli, args []string) error {
		if b.from == "" {
			return usagef("--from is required, for example --from 24h")
		}
		b.cli = c
		var err error
		if b.job, err = c.Job(c.ctx, args[0]); err != nil {
			return err
		}
		return b.run()
	})
}

func (b *backfill) run() error {
	if err := b.parseFlags(); err != nil {
		return err
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
		if b.showOccurrences(&onError, preview); preview.Count == 0 {
			return nil
		}
		if ok, err := b.ask("Run " + jobTitle(b.job) + " for " + plural(preview.Count, "occurrence") + "?"); err != nil || !ok {
			return err
		}
	}
	var options []client.CallOption
	if b.key != "" {
		options = append(options, client.IdempotencyKey(b.key))
	}
	result, err := b.BackfillJob(b.ctx, b.job.ID.String(), b.Backfill, options...)
	if err != nil {
		return err
	}
	return b.print(result, func() { b.showResult(result) })
}

func (b *backfill) parseFlags() (err error) {
	if b.Limit < 1 {
		return usagef("--limit: must be from 1 to 1000, not %d", b.Limit)
	}
	if b.From, err = parseMoment(b.from, b.job.Timezone, b.now()); err != nil {
		return usagef("--from: %w", err)
	}
	if b.to == "" {
		return nil
	}
	if b.To, err = parseMoment(b.to, b.job.Timezone, b.now()); err != nil {
		return usagef("--to: %w", err)
	}
	return nil
}

func (b *backfill) showOccurrences(o *output, r belfry.BackfillResult) {
	if r.Count > 0 {
		t := o.table([]string{"OCCURRENCE", "WHEN"})
		for _, at := range r.Instants {
			t.row(localTime(b.job.Timezone, at), relativeTime(b.now(), at))
		}
		t.write()
	}
	b.messageRest(r)
}

func (b *backfill) showResult(r belfry.BackfillResult) {
	if r.Count > 0 {
		first, last := r.Instants[0], r.Instants[len(r.Instants)-1]
		b.result("backfilled", jobTitle(b.job), fmt.Sprintf("%s, %s to %s", plural(r.Count, "run"), localTime(b.job.Timezone, first), localTime(b.job.Timezone, last)))
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
