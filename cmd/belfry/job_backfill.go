package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// backfill is one call of the command.
type backfill struct {
	from, to, key string
	limit         int
	dryRun, yes   bool

	*door
	cmd *cobra.Command
	job belfry.Job
}

func jobBackfillCommand(s *session) *cobra.Command {
	b := &backfill{}
	cmd := &cobra.Command{
		Use:   "backfill REF --from T [--to T]",
		Short: "Run a job for instants of its schedule that have passed",
		Long: `Run a job for the instants that its schedule has in a span of the past, whether
they ran before or not. The runs are of a kind of their own; those of a job whose
runs may not overlap follow one after another, oldest first.

T is an instant such as 2026-03-02T09:00:00+01:00, a wall time in the job's zone
such as '2026-03-02 09:00', or how long ago, such as 24h or 7d.

At a terminal it shows what would run and asks first, unless --yes is given.`,
		Example: `  belfry job backfill report --from '2026-03-01 00:00' --to '2026-03-07 23:59' --dry-run
  belfry job backfill report --from 24h --yes`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: refs(s, 1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if b.from == "" {
				return usagef("say from when on with --from, for example --from 24h")
			}
			if b.door, err = s.open(cmd); err != nil {
				return err
			}
			b.cmd = cmd
			if b.job, err = b.Job(cmd.Context(), args[0]); err != nil {
				return err
			}
			return b.run()
		},
	}
	f := cmd.Flags()
	f.StringVar(&b.from, "from", "", "first instant that may run, as `T`")
	f.StringVar(&b.to, "to", "", "last instant that may run, as `T` (default now)")
	f.IntVar(&b.limit, "limit", 100, "how many runs at most, up to 1000")
	f.BoolVar(&b.dryRun, "dry-run", false, "show what would run, and run nothing")
	f.BoolVarP(&b.yes, "yes", "y", false, "do not ask")
	f.StringVar(&b.key, "idempotency-key", "", "the same key makes the runs once, however often this is called in seven days")
	for _, flag := range []string{"from", "to"} {
		words(cmd, flag, nil)
	}
	return cmd
}

func (b *backfill) run() error {
	order, err := b.order()
	if err != nil {
		return err
	}
	if ask := !b.yes && terminal(b.in); ask || b.dryRun {
		order.DryRun = true
		would, err := b.Backfill(b.cmd.Context(), b.job.ID.String(), order)
		if err != nil {
			return err
		}
		if b.dryRun {
			return b.print(shownBackfill(would), func() error { return b.show(b.out, would) })
		}
		if err := b.show(b.err, would); err != nil || would.Count == 0 {
			return err
		}
		if agreed, err := b.ask("Run " + title(b.job) + " for " + howMany(would.Count, "instant") + "?"); err != nil || !agreed {
			return err
		}
		order.DryRun = false
	}
	var options []client.CallOption
	if b.key != "" {
		options = append(options, client.IdempotencyKey(b.key))
	}
	made, err := b.Backfill(b.cmd.Context(), b.job.ID.String(), order, options...)
	if err != nil {
		return err
	}
	return b.print(shownBackfill(made), func() error { return b.tell(made) })
}

// order reads the flags.
func (b *backfill) order() (order client.Backfill, err error) {
	if b.limit < 1 {
		return order, usagef("--limit: must be from 1 to 1000, not %d", b.limit)
	}
	order.Limit = b.limit
	if order.From, err = readMoment("from", b.from, b.job.Timezone, b.now()); err != nil {
		return order, err
	}
	order.To, err = readMoment("to", b.to, b.job.Timezone, b.now())
	return order, err
}

// backfilled is the server's answer to a backfill, as it is printed for programs.
type backfilled struct {
	client.Backfilled
	Runs     []belfry.ID `json:"runs,omitempty"`
	NextFrom time.Time   `json:"next_from,omitzero"`
}

func shownBackfill(b client.Backfilled) backfilled { return backfilled{b, b.Runs, b.NextFrom} }

// show lists what would run.
func (b *backfill) show(w io.Writer, would client.Backfilled) error {
	if would.Count == 0 {
		b.none()
		return nil
	}
	now := b.now()
	t := newTable("INSTANT", "WHEN")
	for _, at := range would.Instants {
		t.row(localTime(b.job.Timezone, at), relative(now, at))
	}
	if err := t.write(w, b.palette); err != nil {
		return err
	}
	b.more(would)
	return nil
}

// tell says what was made.
func (b *backfill) tell(made client.Backfilled) error {
	if made.Count == 0 {
		b.none()
		return nil
	}
	first, last := made.Instants[0], made.Instants[len(made.Instants)-1]
	err := b.done("backfilled", title(b.job), fmt.Sprintf("%s, %s to %s", howMany(made.Count, "run"), localTime(b.job.Timezone, first), localTime(b.job.Timezone, last)))
	b.more(made)
	return err
}

func (b *backfill) none() {
	b.say("Nothing to run: the schedule of %s has no instant in that span.", safe(title(b.job)))
}

// more says where to go on when the limit cut it short.
func (b *backfill) more(of client.Backfilled) {
	if of.More {
		b.say("There are more. Go on with: --from %s", localTime(b.job.Timezone, of.NextFrom))
	}
}

// localTime names an instant in a time zone, as far as this machine knows it.
func localTime(zone string, at time.Time) string {
	if place, err := schedule.LoadZone(zone); err == nil {
		at = at.In(place)
	}
	return at.Format(time.RFC3339Nano)
}

// readMoment reads a flag that is a point in time: an instant, a wall time in a zone,
// or how long ago; empty is none.
func readMoment(flag, text, zone string, now time.Time) (at time.Time, err error) {
	text = strings.TrimSpace(text)
	if ago, ok := readAgo(text); ok {
		return now.Add(-ago).UTC(), nil
	}
	for _, form := range [...]string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04"} {
		wall, err := time.Parse(form, text)
		if err != nil {
			continue
		}
		rule, err := schedule.Parse(wall.Format("2006-01-02T15:04:05"), schedule.Options{Timezone: zone})
		if err == nil {
			if at, once := schedule.Once(rule); once {
				return at, nil
			}
		}
		return at, usagef("--%s: the clock of %s cannot be told here; give an instant with an offset or a Z", flag, safe(zone))
	}
	if at, err = readInstant(flag, text); err != nil {
		err = usagef("--%s: %q is not an instant such as 2027-03-01T09:00:00+01:00, a wall time in the job's zone such as '2027-03-01 09:00', or how long ago, such as 24h or 7d", flag, text)
	}
	return at, err
}
