package control

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/explain"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/secret"
	"github.com/belfry-sh/belfry/internal/store"
)

// Run finds a run, live or settled, with the attempts that failed and a note on clock
// changes.
func (c *Control) Run(ctx context.Context, namespace string, id belfry.ID) (belfry.Run, error) {
	run, err := retryRead(ctx, "look up a run", func() (belfry.Run, error) { return c.store.Run(ctx, namespace, id) })
	if err != nil {
		return belfry.Run{}, err
	}
	run.Note = explain.Note(ctx, c.store, c.compile, run)
	runs, err := c.complete(ctx, namespace, []belfry.Run{run})
	return runs[0], err
}

// RunLog returns what the handler of an attempt wrote to its log, also while it runs.
func (c *Control) RunLog(ctx context.Context, namespace string, id belfry.ID, q belfry.LogQuery) (belfry.RunLog, error) {
	return retryRead(ctx, "read a log", func() (belfry.RunLog, error) { return c.store.RunLog(ctx, namespace, id, q) })
}

// JobHistory finds a job, or a deleted one by its id as long as its history is kept.
func (c *Control) JobHistory(ctx context.Context, namespace, ref string) (belfry.Job, error) {
	job, err := c.jobHistory(ctx, namespace, ref)
	return masked(job), err
}

// jobHistory is JobHistory with the true payload.
func (c *Control) jobHistory(ctx context.Context, namespace, ref string) (belfry.Job, error) {
	job, err := c.job(ctx, namespace, ref)
	id, parseErr := belfry.ParseID(ref)
	if !isNotFound(err) || parseErr != nil {
		return job, err
	}
	deleted, lookupErr := c.store.DeletedJob(ctx, namespace, id)
	if isNotFound(lookupErr) {
		return belfry.Job{}, err
	}
	if lookupErr != nil {
		return belfry.Job{}, lookupErr
	}
	runs, _, lookupErr := c.jobRuns(ctx, deleted, belfry.JobRunFilter{}, store.Page{Limit: 1})
	if lookupErr != nil || len(runs) > 0 {
		return deleted, lookupErr
	}
	return belfry.Job{}, err
}

// JobRuns returns the runs and skips of a job, latest occurrence first, without their
// attempts; of a deleted job by its id. A page may be short, or empty, and still be
// followed by others.
func (c *Control) JobRuns(ctx context.Context, namespace, ref string, f belfry.JobRunFilter, p store.Page) ([]belfry.Run, store.Position, error) {
	job, err := c.jobHistory(ctx, namespace, ref)
	if err != nil {
		return nil, store.Position{}, err
	}
	return c.jobRuns(ctx, job, f, p)
}

func (c *Control) jobRuns(ctx context.Context, job belfry.Job, f belfry.JobRunFilter, p store.Page) (runs []belfry.Run, next store.Position, err error) {
	const searchTime = time.Second
	for started := time.Now(); len(runs) <= p.Limit; p.After = next {
		var more []belfry.Run
		err := retryUnknown(ctx, "list the runs of a job", func() (err error) {
			more, next, err = c.store.JobRuns(ctx, job.Namespace, job.ID, f, store.Page{After: p.After, Limit: p.Limit + 1 - len(runs)})
			return err
		})
		if err != nil {
			return nil, store.Position{}, err
		}
		runs = append(runs, more...)
		if next == (store.Position{}) || time.Since(started) > searchTime {
			break
		}
	}
	if full, end := cutPage(runs, p.Limit, func(r belfry.Run) store.Position { return store.Position{At: r.ScheduledAt, ID: r.ID} }); end != (store.Position{}) {
		runs, next = full, end
	}
	for i := range runs {
		setComputed(&runs[i])
		runs[i].JobName = job.Name
	}
	return runs, next, nil
}

// ListRuns returns the runs and skips of all jobs, or of one, latest first, without their
// attempts. A page may be short, or empty, and still be followed by others.
func (c *Control) ListRuns(ctx context.Context, namespace string, f belfry.RunFilter, p store.Page) ([]belfry.Run, store.Position, error) {
	if f.Job != "" {
		return c.JobRuns(ctx, namespace, f.Job, f.JobRunFilter, p)
	}
	list, err := retryRead(ctx, "list runs", func() (store.RunList, error) { return c.store.ListRuns(ctx, namespace, f, p) })
	if err == nil {
		list.Runs, err = c.complete(ctx, namespace, list.Runs)
	}
	return list.Runs, store.Position{ID: list.Next}, err
}

// complete sets what runs show and their records do not have: their idempotency keys,
// traces and the names of their jobs.
func (c *Control) complete(ctx context.Context, namespace string, runs []belfry.Run) ([]belfry.Run, error) {
	var jobs []belfry.ID
	for i := range runs {
		setComputed(&runs[i])
		if !slices.Contains(jobs, runs[i].JobID) {
			jobs = append(jobs, runs[i].JobID)
		}
	}
	if len(runs) == 0 {
		return runs, nil
	}
	names, err := retryRead(ctx, "look up the names of jobs", func() (map[belfry.ID]string, error) { return c.store.JobNames(ctx, namespace, jobs) })
	for i := range runs {
		runs[i].JobName = names[runs[i].JobID]
	}
	return runs, err
}

// setComputed sets what is computed from a run. A skip has no trace.
func setComputed(r *belfry.Run) {
	r.IdempotencyKey = r.Key()
	if r.Status != belfry.RunSkipped {
		r.TraceID = belfry.RunTraceID(r.ID).String()
	}
}

// CancelRun ends a run and returns it: one that no worker holds is cancelled at once; a
// running one ends when its worker has stopped it. A run that is settled in any other
// way is a Conflict.
func (c *Control) CancelRun(ctx context.Context, namespace string, id belfry.ID) (belfry.Run, error) {
	write, audit := c.audited(ctx, objectEntry(belfry.AuditCancel, belfry.AuditRun, namespace, id.String(), ""))
	if audit != nil {
		run, err := c.Run(ctx, namespace, id)
		if err != nil {
			return run, err
		}
		audit.SetWhenDone(func([]belfry.ID) []belfry.AuditEntry {
			e := audit.Entry
			e.JobID, e.Object.Name = run.JobID, run.JobName
			if run.CancelRequestedAt != nil {
				return nil // It was cancelled before.
			}
			return []belfry.AuditEntry{e}
		})
	}
	err := retryUnknown(ctx, "cancel a run", func() error { return c.store.Cancel(write, namespace, id) })
	if err != nil {
		return belfry.Run{}, err
	}
	return c.Run(ctx, namespace, id)
}

// Explain says what was decided for an instant of a job and why, or what is planned; see
// explain.Explain. A deleted job is found by its id. The instant is written as in RFC 3339, or as a wall time in the time
// zone of the job; empty means the latest.
func (c *Control) Explain(ctx context.Context, namespace, ref, at string) (belfry.Explanation, error) {
	job, err := c.jobHistory(ctx, namespace, ref)
	if err != nil {
		return belfry.Explanation{}, err
	}
	instant, err := parseInstant(at, job.Timezone)
	if err != nil {
		return belfry.Explanation{}, invalid("the instant is not valid", []belfry.FieldError{{Field: "at", Message: err.Error()}})
	}
	e, err := retryRead(ctx, "explain an instant of a job", func() (belfry.Explanation, error) {
		return explain.Explain(ctx, c.store.Store, c.compile, job, instant, c.now())
	})
	if e.Run != nil {
		setComputed(e.Run)
		e.Run.JobName = job.Name
	}
	return e, err
}

// parseInstant reads an instant, or a wall time in a time zone: for one that the clock
// shows twice it is the first instant, for one that it skips the end of the gap, as for
// a one-off. The error follows the name of a field.
func parseInstant(text, zone string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, form := range [...]string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04"} {
		wall, err := time.Parse(form, text)
		if err != nil {
			continue
		}
		if err := schema.CheckYear(wall); err != nil {
			return time.Time{}, err
		}
		if rule, err := schedule.Parse(wall.Format("2006-01-02T15:04:05"), schedule.Options{Timezone: zone}); err == nil {
			if at, once := schedule.Once(rule); once {
				return at, nil
			}
		}
		return time.Time{}, fmt.Errorf("cannot be used as a wall time in %s; use an instant with an offset or Z", zone)
	}
	at, err := schema.ParseTime(strings.Replace(text, " ", "+", 1)) // a plus sign that was not encoded
	if err == schema.ErrNoTime {
		return time.Time{}, fmt.Errorf(`must be an instant such as "2027-03-01T09:00:00Z", or a wall time in the time zone of the job such as "2027-03-01 09:00"`)
	}
	return at, err
}

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
	if t.Payload != nil {
		job, err := c.store.Job(ctx, namespace, id)
		if err == nil {
			err = requireCommands(ctx, job.Type)
		}
		if err != nil {
			return belfry.TriggerResult{}, err
		}
		if t.Payload, err = c.override(ctx, job, t.Payload, "the payload is not valid"); err != nil {
			return belfry.TriggerResult{}, err
		}
	}
	now := c.now()
	trigger := plan.Trigger{
		ID: belfry.NewID(now), Namespace: namespace, JobID: id, Shard: belfry.ShardOf(id, c.store.Shards()),
		Kind: belfry.KindManual, At: now, Payload: t.Payload,
	}
	result := belfry.TriggerResult{RunID: trigger.RunID()}
	request := k.request(namespace, func() ([]byte, error) { return json.Marshal(result) })
	ctx, audit := c.audited(ctx, jobEntry(belfry.AuditTrigger, namespace, id, refName(ref)))
	if audit != nil {
		_, after := auditChange([]belfry.FieldChange{{Field: "run_id", New: belfry.MustJSON(result.RunID)}, {Field: "payload", New: secret.Mask(t.Payload)}})
		audit.SetChange(nil, after)
	}
	err = retryUnknown(ctx, "trigger a job", func() error { return c.store.Trigger(ctx, []plan.Trigger{trigger}, request) })
	if err != nil {
		return decodeResponse[belfry.TriggerResult](k.duplicate(err))
	}
	return result, nil
}

// refName is the name that a job was found by; empty for an id.
func refName(ref string) string {
	if _, err := belfry.ParseID(ref); err == nil {
		return ""
	}
	return strings.TrimSpace(ref)
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
	var result belfry.BackfillResult
	err = c.computing.do(ctx, func() error {
		result, err = c.occurrences(job, b)
		return err
	})
	if err != nil || b.DryRun || len(result.Instants) == 0 {
		return result, err
	}
	// The ids of triggers ascend like the instants and are never those of another backfill.
	batch, shard := belfry.NewID(now), belfry.ShardOf(job.ID, c.store.Shards())
	var triggers []plan.Trigger
	for _, at := range result.Instants {
		id := belfry.RunID(batch, belfry.KindBackfill, at, belfry.ID{})
		t := plan.Trigger{ID: id, Namespace: namespace, JobID: job.ID, Shard: shard, Kind: belfry.KindBackfill, At: at}
		triggers, result.RunIDs = append(triggers, t), append(result.RunIDs, t.RunID())
	}
	request := k.request(namespace, func() ([]byte, error) { return json.Marshal(result) })
	ctx, audit := c.audited(ctx, jobEntry(belfry.AuditBackfill, namespace, job.ID, job.Name))
	if audit != nil {
		audit.Entry.Count = len(triggers)
		_, after := auditChange([]belfry.FieldChange{{Field: "from", New: belfry.MustJSON(b.From)}, {Field: "to", New: belfry.MustJSON(b.To)}})
		audit.SetChange(nil, after)
	}
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
	b.Limit = cmp.Or(b.Limit, defaultBackfill)
	if b.To.IsZero() || b.To.After(now) {
		b.To = now
	}
	return b, nil
}

func (c *Control) occurrences(job belfry.Job, b belfry.Backfill) (belfry.BackfillResult, error) {
	if job.State == belfry.JobEnded {
		return belfry.BackfillResult{}, belfry.Errorf(belfry.Conflict, "the job has ended; create it again")
	}
	parsed := c.parse(job)
	if parsed.err != nil {
		return belfry.BackfillResult{}, parsed.err
	}
	policy := parsed.subject.Policy
	if _, once := schedule.Once(policy.Rule); once {
		return belfry.BackfillResult{}, belfry.Errorf(belfry.Conflict, "the schedule of the job is a single instant, so there is nothing to backfill; trigger the job to run it again")
	}
	list, more := policy.Between(b.From.UTC(), b.To.UTC(), b.Limit)
	result := belfry.BackfillResult{Count: len(list), Instants: append([]time.Time{}, list...), More: more}
	if more {
		result.NextFrom = policy.Rule.Next(list[len(list)-1])
	}
	return result, nil
}
