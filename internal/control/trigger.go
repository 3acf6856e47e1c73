package control

import (
	"context"
	"encoding/json"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
	"github.com/belfry-sh/belfry/internal/validate"
)

// Trigger requests a run of a job now, paused or not, and returns the id that the run
// will have. The owner of the job's shard creates it, and the overlap policy applies. A
// payload replaces that of the job; see validate.Payload.
func (c *Control) Trigger(ctx context.Context, namespace, ref string, t belfry.Trigger, k Key) (belfry.TriggerResult, error) {
	if response, err := c.cached(ctx, namespace, k); err != nil || response != nil {
		return decodeResponse[belfry.TriggerResult](response, err)
	}
	id, err := c.resolve(ctx, namespace, ref)
	if err != nil {
		return belfry.TriggerResult{}, err
	}
	payload := t.Payload
	if payload != nil {
		job, err := c.read.Job(ctx, namespace, id)
		if err != nil {
			return belfry.TriggerResult{}, err
		}
		var errors []belfry.FieldError
		if payload, errors = validate.Payload(job, payload); len(errors) > 0 {
			return belfry.TriggerResult{}, invalid("the payload is not valid", errors)
		}
	}
	now := c.now()
	trigger := plan.Trigger{
		ID:        belfry.NewID(now),
		Namespace: namespace,
		JobID:     id,
		Shard:     belfry.ShardOf(id, c.store.Shards()),
		Kind:      belfry.KindManual,
		At:        now,
		Payload:   payload,
	}
	result := belfry.TriggerResult{RunID: trigger.RunID()}
	request := k.request(namespace, func() ([]byte, error) { return json.Marshal(result) })
	err = retryUnknown(ctx, "trigger a job", func() error {
		return c.store.Trigger(ctx, []plan.Trigger{trigger}, request)
	})
	if err != nil {
		return decodeResponse[belfry.TriggerResult](k.duplicate(err))
	}
	return result, nil
}

// defaultBackfill is how many runs a backfill without a limit requests.
const defaultBackfill = 100

// Backfill requests runs of a job, paused or not, at past occurrences of its present
// schedule, whether they ran before or not. The owner of the job's shard creates them;
// unless the runs of the job may overlap they run one after another, oldest first. A
// job whose schedule is a single instant is a Conflict.
func (c *Control) Backfill(ctx context.Context, namespace, ref string, b belfry.Backfill, k Key) (belfry.BackfillResult, error) {
	if b.DryRun {
		k = Key{}
	}
	if response, err := c.cached(ctx, namespace, k); err != nil || response != nil {
		return decodeResponse[belfry.BackfillResult](response, err)
	}
	now := c.now()
	b, err := normalizeBackfill(b, now)
	if err != nil {
		return belfry.BackfillResult{}, err
	}
	job, err := c.job(ctx, namespace, ref)
	if err != nil {
		return belfry.BackfillResult{}, err
	}
	result, err := c.occurrences(job, b)
	if err != nil || b.DryRun || len(result.Instants) == 0 {
		return result, err
	}
	triggers := backfillTriggers(job, result.Instants, belfry.ShardOf(job.ID, c.store.Shards()), now)
	for _, t := range triggers {
		result.RunIDs = append(result.RunIDs, t.RunID())
	}
	request := k.request(namespace, func() ([]byte, error) { return json.Marshal(result) })
	err = retryUnknown(ctx, "backfill a job", func() error { return c.store.Trigger(ctx, triggers, request) })
	if err != nil {
		return decodeResponse[belfry.BackfillResult](k.duplicate(err))
	}
	return result, nil
}

// normalizeBackfill fills in what was left out: until now, and the usual limit.
func normalizeBackfill(b belfry.Backfill, now time.Time) (belfry.Backfill, error) {
	fail := func(field, message string) (belfry.Backfill, error) {
		return b, invalid("the backfill is not valid", []belfry.FieldError{{Field: field, Message: message}})
	}
	if b.From.After(now) {
		return fail("from", "is in the future; only the past can be backfilled: it is "+now.Format(time.RFC3339)+" now")
	}
	if !b.To.IsZero() && b.To.Before(b.From) {
		return fail("to", "must not be before from")
	}
	if b.Limit == 0 {
		b.Limit = defaultBackfill
	}
	if b.To.IsZero() || b.To.After(now) {
		b.To = now
	}
	return b, nil
}

// occurrences lists the occurrences of a job in the span of a backfill.
func (c *Control) occurrences(job belfry.Job, b belfry.Backfill) (belfry.BackfillResult, error) {
	if job.State == belfry.JobEnded {
		return belfry.BackfillResult{}, belfry.Errorf(belfry.Conflict, "the job has ended; create it again")
	}
	subject, err := c.subject(job)
	if err != nil {
		return belfry.BackfillResult{}, err
	}
	if _, once := schedule.Once(subject.Policy.Rule); once {
		return belfry.BackfillResult{}, belfry.Errorf(belfry.Conflict, "the schedule of the job is a single instant, so there is nothing to backfill; trigger the job to run it again")
	}
	list, more := subject.Policy.Between(b.From.UTC(), b.To.UTC(), b.Limit)
	result := belfry.BackfillResult{Count: len(list), Instants: append([]time.Time{}, list...), More: more}
	if more {
		result.NextFrom = subject.Policy.Rule.Next(list[len(list)-1])
	}
	return result, nil
}

// backfillTriggers are the triggers of a backfill. Their ids ascend like the instants
// and are never those of another backfill.
func backfillTriggers(job belfry.Job, instants []time.Time, shard int, now time.Time) []plan.Trigger {
	request := belfry.NewID(now)
	list := make([]plan.Trigger, len(instants))
	for i, at := range instants {
		list[i] = plan.Trigger{
			ID:        belfry.RunID(request, belfry.KindBackfill, at, belfry.ID{}),
			Namespace: job.Namespace,
			JobID:     job.ID,
			Shard:     shard,
			Kind:      belfry.KindBackfill,
			At:        at,
		}
	}
	return list
}
