package control

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// How many runs a backfill asks for at once.
const (
	defaultBackfill = 100
	maxBackfill     = 1000
)

// Backfill asks for runs at instants that a schedule names and that have passed,
// from one instant to another, both included.
type Backfill struct {
	From, To time.Time // a To that is zero or lies in the future is now
	Limit    int       // how many at once; zero: 100, at most 1000
	DryRun   bool      // list the instants, and do nothing
}

// Backfilled is what came of it.
type Backfilled struct {
	Instants []time.Time `json:"instants"`           // oldest first; never nil
	Runs     []belfry.ID `json:"runs,omitempty"`     // of these instants; none of a dry run
	More     bool        `json:"more"`               // there are others up to To,
	NextFrom time.Time   `json:"next_from,omitzero"` // of which this is the first
}

// Backfill asks for runs of a job, paused or not, at past occurrences of the rule
// that it has now, whether they ran before or not. The owner of the job's shard
// makes them; those of a job whose runs may not overlap follow one after another,
// oldest first. A job whose schedule is a single instant is a Conflict. The key is
// that of Create, and needs a Hash of all that is asked for.
func (c *Control) Backfill(ctx context.Context, namespace string, id belfry.ID, b Backfill, k Key) (Backfilled, error) {
	if b.DryRun {
		k = Key{}
	}
	if answer, err := c.answered(ctx, namespace, k); err != nil || answer != nil {
		return decodeBackfilled(answer, err)
	}
	now := c.now()
	if err := b.settle(now); err != nil {
		return Backfilled{}, err
	}
	job, err := c.Get(ctx, namespace, id)
	if err != nil {
		return Backfilled{}, err
	}
	out, err := c.occurrences(job, b)
	if err != nil || b.DryRun || len(out.Instants) == 0 {
		return out, err
	}
	wishes := out.wishes(job, belfry.ShardOf(id, c.store.Shards()), now)
	request := k.request(namespace, func() ([]byte, error) { return json.Marshal(out) })
	err = insist(ctx, "backfill a job", func() error { return c.store.Trigger(ctx, wishes, request) })
	if err != nil {
		return decodeBackfilled(k.repeated(err))
	}
	return out, nil
}

// settle fills in what was left out, or tells all that is wrong.
func (b *Backfill) settle(now time.Time) error {
	p := problems{}
	if b.Limit == 0 {
		b.Limit = defaultBackfill
	}
	p.between("limit", b.Limit, 1, maxBackfill)
	end := b.To
	if b.To.IsZero() || b.To.After(now) {
		b.To = now
	}
	switch year := b.From.UTC().Year(); {
	case b.From.IsZero():
		p.fault("from", fmt.Sprintf("is missing; for example %q", now.AddDate(0, 0, -1).Format(time.RFC3339)))
	case year < firstYear:
		p.fault("from", fmt.Sprintf("must not lie before the year %d", firstYear))
	case b.From.After(now):
		p.fault("from", "lies in the future; what has passed can be backfilled: it is "+now.Format(time.RFC3339)+" now")
	case !end.IsZero() && end.Before(b.From):
		p.fault("to", "must not lie before from")
	}
	return p.err("the backfill is not valid")
}

// occurrences are those of a job that a backfill is about.
func (c *Control) occurrences(job belfry.Job, b Backfill) (Backfilled, error) {
	if job.State == belfry.JobEnded {
		return Backfilled{}, belfry.Errorf(belfry.Conflict, "the job has ended; create it again")
	}
	subject, err := c.subjectOf(job)
	if err != nil {
		return Backfilled{}, err
	}
	if _, once := schedule.Once(subject.Policy.Rule); once {
		return Backfilled{}, belfry.Errorf(belfry.Conflict, "the schedule of the job is a single instant, so that there is nothing to backfill; trigger the job to have it run again")
	}
	list, more := subject.Policy.Between(b.From.UTC(), b.To.UTC(), b.Limit)
	out := Backfilled{Instants: append([]time.Time{}, list...), More: more}
	if more {
		out.NextFrom = subject.Policy.Rule.Next(list[len(list)-1])
	}
	return out, nil
}

// wishes are triggers for the instants, and notes the ids of the runs that they
// become. Their own ids ascend like the instants and are never those of another
// backfill.
func (out *Backfilled) wishes(job belfry.Job, shard int, now time.Time) []plan.Trigger {
	call := belfry.NewID(now)
	list := make([]plan.Trigger, len(out.Instants))
	for i, at := range out.Instants {
		list[i] = plan.Trigger{
			ID:        belfry.RunID(call, belfry.KindBackfill, at, belfry.ID{}),
			Namespace: job.Namespace,
			JobID:     job.ID,
			Shard:     shard,
			Kind:      belfry.KindBackfill,
			At:        at,
		}
		out.Runs = append(out.Runs, list[i].RunID())
	}
	return list
}

// decodeBackfilled reads the answer that is kept under a key. It passes an error
// on.
func decodeBackfilled(answer []byte, err error) (out Backfilled, _ error) {
	if err != nil {
		return Backfilled{}, err
	}
	if err := json.Unmarshal(answer, &out); err != nil {
		return Backfilled{}, unreadable(err)
	}
	return out, nil
}
