package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// selectJob reads jobs with everything that their status is derived from. The
// caller adds a WHERE on j.
const selectJob = `
SELECT j.id, j.namespace, j.name, j.revision, j.state, j.spec, j.payload, j.created_at, j.updated_at,
       p.next_at, r.running, r.waiting, greatest(r.last, h.last, d.last), CASE WHEN d.last >= coalesce(s.at, d.last) THEN 'dead' ELSE s.state END
  FROM belfry.jobs j
  JOIN belfry.plans p ON p.job_id = j.id
  CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE state = 'running') AS running, count(*) FILTER (WHERE state <> 'running') AS waiting,
                             max(scheduled_at) AS last FROM belfry.runs WHERE job_id = j.id) r
  LEFT JOIN LATERAL (SELECT scheduled_at AS last FROM belfry.dead WHERE job_id = j.id ORDER BY scheduled_at DESC LIMIT 1) d ON true
  LEFT JOIN LATERAL (SELECT scheduled_at AS last FROM belfry.history WHERE job_id = j.id AND state <> 'skipped' ORDER BY scheduled_at DESC LIMIT 1) h ON true
  LEFT JOIN LATERAL (SELECT scheduled_at AS at, state FROM belfry.history WHERE job_id = j.id ORDER BY scheduled_at DESC, id DESC LIMIT 1) s ON true
`

func (s *Store) scanJob(row pgx.CollectableRow) (belfry.Job, error) {
	var (
		job              belfry.Job
		id               pgtype.UUID
		name, payload    pgtype.Text
		spec             string
		next, last       pgtype.Timestamptz
		running, waiting int
		outcome          pgtype.Text
	)
	err := row.Scan(&id, &job.Namespace, &name, &job.Revision, &job.State, &spec, &payload, &job.CreatedAt, &job.UpdatedAt,
		&next, &running, &waiting, &last, &outcome)
	if err != nil {
		return job, err
	}
	if job.Spec, err = s.specs.Decode(spec); err != nil {
		return job, fmt.Errorf("job %s: read its spec: %w", belfry.ID(id.Bytes), err)
	}
	job.ID, job.Name = id.Bytes, name.String
	if payload.Valid {
		job.Payload = json.RawMessage(payload.String)
	}
	job.CreatedAt, job.UpdatedAt = job.CreatedAt.UTC(), job.UpdatedAt.UTC()
	job.NextRunAt, job.LastRunAt = momentOrNil(next), momentOrNil(last)
	job.Status = belfry.StatusOf(job.State, next.Valid, belfry.Live{Running: running, Waiting: waiting}, belfry.RunState(outcome.String))
	return job, nil
}

// Job finds a job that is not deleted.
func (s *Store) Job(ctx context.Context, namespace string, id belfry.ID) (belfry.Job, error) {
	return s.job(ctx, s.work, namespace, id)
}

func (s *Store) job(ctx context.Context, q querier, namespace string, id belfry.ID) (belfry.Job, error) {
	rows, err := q.Query(ctx, selectJob+`WHERE j.namespace = $1 AND j.id = $2 AND j.state <> 'deleted'`, namespace, uuid(id))
	if err != nil {
		return belfry.Job{}, failed("look up a job", err)
	}
	job, err := pgx.CollectExactlyOneRow(rows, s.scanJob)
	if errors.Is(err, pgx.ErrNoRows) {
		return job, noSuchJob(id)
	}
	return job, failed("look up a job", err)
}

func noSuchJob(id belfry.ID) error {
	return belfry.Errorf(belfry.NotFound, "there is no job %s", id)
}

// ListJobs gives the jobs that are not deleted, newest first.
func (s *Store) ListJobs(ctx context.Context, namespace string, page store.Page) ([]belfry.Job, error) {
	rows, err := s.work.Query(ctx, selectJob+`WHERE j.namespace = $1 AND j.state <> 'deleted' AND ($2::uuid IS NULL OR j.id < $2) ORDER BY j.id DESC LIMIT $3`,
		namespace, uuid(page.After), page.Limit)
	if err != nil {
		return nil, failed("list jobs", err)
	}
	jobs, err := pgx.CollectRows(rows, s.scanJob)
	return jobs, failed("list jobs", err)
}

// Trigger records a wish for a run.
func (s *Store) Trigger(ctx context.Context, t plan.Trigger) error {
	ctx, cancel, err := detach(ctx, callTimeout)
	if err != nil {
		return err
	}
	defer cancel()
	var found bool
	err = s.work.QueryRow(ctx, `/* trigger */
WITH job AS (SELECT id, shard, namespace FROM belfry.jobs WHERE namespace = $1 AND id = $2 AND state <> 'deleted'),
wish AS (
  INSERT INTO belfry.triggers (id, shard, namespace, job_id, run_id, kind, at, payload, created_at)
  SELECT $3, job.shard, job.namespace, job.id, $7, $4, $5, $6, clock_timestamp() FROM job
  ON CONFLICT (id) DO NOTHING)
SELECT EXISTS (SELECT 1 FROM job)`,
		t.Namespace, uuid(t.JobID), uuid(t.ID), string(t.Kind), t.At, text(string(t.Payload)), uuid(t.RunID())).Scan(&found)
	if err != nil {
		return failed("record a trigger", err)
	}
	if !found {
		return noSuchJob(t.JobID)
	}
	s.hints.tellChanged(false, t.JobID)
	return nil
}

// EditJob locks a job and its plan, asks edit what to change, and writes it.
func (s *Store) EditJob(ctx context.Context, namespace string, id belfry.ID, edit store.Edit) (belfry.Job, error) {
	ctx, cancel, err := detach(ctx, callTimeout)
	if err != nil {
		return belfry.Job{}, err
	}
	defer cancel()
	var job belfry.Job
	var refusal error // edit's own, which is nobody else's to explain
	asked := func(j belfry.Job, p plan.Plan, now time.Time) (change *store.Change, err error) {
		change, refusal = edit(j, p, now)
		return change, refusal
	}
	err = pgx.BeginFunc(ctx, s.work, func(tx pgx.Tx) error {
		var err error
		job, err = s.edit(ctx, tx, namespace, id, asked)
		return err
	})
	if refusal != nil {
		return belfry.Job{}, refusal
	}
	if err != nil {
		return belfry.Job{}, failed("edit a job", nameTaken(err, job.Name))
	}
	s.hints.tellChanged(false, id)
	s.hints.tellReady()
	return job, nil
}

func (s *Store) edit(ctx context.Context, tx pgx.Tx, namespace string, id belfry.ID, edit store.Edit) (belfry.Job, error) {
	p, err := lockPlan(ctx, tx, namespace, id)
	if err != nil {
		return belfry.Job{}, err
	}
	old, err := s.job(ctx, tx, namespace, id)
	if err != nil {
		return old, err
	}
	change, err := edit(old, p, s.Now())
	if err != nil || change == nil {
		return old, err
	}
	job := change.Job
	if job.Revision > old.Revision {
		if _, err := tx.Exec(ctx, `INSERT INTO belfry.revisions (job_id, revision, shard, spec, payload, replaced_at)
			SELECT id, revision, shard, spec, payload, clock_timestamp() FROM belfry.jobs WHERE id = $1`, uuid(id)); err != nil {
			return job, err
		}
	}
	spec, err := json.Marshal(job.Spec)
	if err != nil {
		return job, err
	}
	_, err = tx.Exec(ctx, `/* edit */ UPDATE belfry.jobs SET name = $2, revision = $3, state = $4, spec = $5, payload = $6, updated_at = clock_timestamp() WHERE id = $1`,
		uuid(id), text(job.Name), job.Revision, string(job.State), string(spec), text(string(job.Payload)))
	if err != nil {
		return job, err
	}
	fired, err := s.fire(ctx, tx, belfry.ID{}, []plan.Step{change.Step}, store.Slots{})
	if err != nil {
		return job, err
	}
	if !fired.Applied[0] {
		return job, belfry.Errorf(belfry.Conflict, "the job's plan could not be changed; try again")
	}
	if job.State == belfry.JobDeleted {
		return job, nil
	}
	return s.job(ctx, tx, namespace, id)
}

// lockPlan locks a job and its plan against fires and other edits.
func lockPlan(ctx context.Context, tx pgx.Tx, namespace string, id belfry.ID) (plan.Plan, error) {
	rows, err := tx.Query(ctx, `/* edit */ SELECT p.job_id, p.shard, p.version, p.next_at, p.nominal_at, p.fired_for, p.runs_made, p.zone_version
		FROM belfry.jobs j JOIN belfry.plans p ON p.job_id = j.id
		WHERE j.namespace = $1 AND j.id = $2 AND j.state <> 'deleted' FOR UPDATE`, namespace, uuid(id))
	if err != nil {
		return plan.Plan{}, err
	}
	p, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (plan.Plan, error) {
		var scan planScan
		err := row.Scan(scan.fields()...)
		return scan.plan(), err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return p, noSuchJob(id)
	}
	return p, err
}

// planScan reads the columns of a plan.
type planScan struct {
	p                   plan.Plan
	id                  pgtype.UUID
	next, nominal, mark pgtype.Timestamptz
}

func (s *planScan) fields() []any {
	return []any{&s.id, &s.p.Shard, &s.p.Version, &s.next, &s.nominal, &s.mark, &s.p.RunsMade, &s.p.ZoneVersion}
}

func (s *planScan) plan() plan.Plan {
	p := s.p
	p.JobID = s.id.Bytes
	p.NextAt, p.NominalAt, p.FiredFor = moment(s.next), moment(s.nominal), moment(s.mark)
	return p
}

// nameTaken turns a violation of the unique name into a Conflict.
func nameTaken(err error, name string) error {
	if sqlState(err) != "23505" {
		return err
	}
	return &belfry.Error{
		Code:    belfry.Conflict,
		Message: "the name is taken",
		Faults:  []belfry.Fault{{Field: "name", Message: fmt.Sprintf("a job named %q exists already", name)}},
	}
}
