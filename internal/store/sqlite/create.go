package sqlite

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	// A job whose id exists was created by an earlier call whose reply was lost; it
	// may be archived by now.
	insertJob = `INSERT INTO jobs (id, shard, namespace, name, revision, state, spec, payload, created_at, updated_at,
  tags, queue, type, handler)
SELECT ?1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? WHERE NOT EXISTS (SELECT 1 FROM ended WHERE id = ?1) ON CONFLICT (id) DO NOTHING`

	insertPlan = `INSERT INTO plans (job_id, shard, version, next_at, nominal_at, fired_for, runs_made, zone_version, one_off)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`
)

func (s *Store) CreateJobs(ctx context.Context, jobs iter.Seq2[store.NewJob, error], r *store.Request) error {
	var specs store.SpecEncoder
	pending := &spool{dir: s.dir}
	defer pending.close()
	for job, err := range jobs {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		row, err := rowOf(&job, &specs)
		if err == nil {
			err = pending.add(row)
		}
		if err != nil {
			return failed("create jobs", err)
		}
	}
	return s.writeRequest(ctx, "create jobs", r, func(t *tx) error {
		t.changes.many = pending.file != nil
		t.changes.plans = t.changes.many
		return pending.each(t.insertJob)
	})
}

// newRow is a new job as it is written, with its spec as text.
type newRow struct {
	ID                   belfry.ID
	Namespace, Name      string
	Tags                 []string
	Revision             int
	State                belfry.JobState
	Spec                 string
	Payload              []byte
	Queue, Type, Handler string
	CreatedAt            time.Time
	Plan                 plan.Plan
}

func (t *tx) insertJob(r *newRow) error {
	p := &r.Plan
	inserted, err := t.exec(insertJob, r.ID[:], int64(p.Shard), r.Namespace, nullText(r.Name), int64(r.Revision), string(r.State),
		r.Spec, nullText(r.Payload), micro(r.CreatedAt), micro(r.CreatedAt), tagsJSON(r.Tags), r.Queue, r.Type, r.Handler)
	if err != nil {
		return nameTaken(err, r.Name)
	}
	if inserted == 0 {
		return nil
	}
	if !t.changes.many {
		t.changes.planWritten(r.ID)
	}
	_, err = t.exec(insertPlan, p.JobID[:], int64(p.Shard), p.Version, nullTime(p.NextAt), nullTime(p.NominalAt), nullTime(p.FiredFor), p.RunsMade,
		p.ZoneVersion, p.Once)
	return err
}

func rowOf(n *store.NewJob, specs *store.SpecEncoder) (*newRow, error) {
	job := &n.Job
	spec, err := specs.Encode(job.Spec)
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", job.ID, err)
	}
	return &newRow{
		ID: job.ID, Namespace: job.Namespace, Name: job.Name, Tags: job.Tags, Revision: job.Revision, State: job.State, Spec: spec,
		Payload: job.Payload, Queue: job.Queue, Type: job.Type, Handler: job.Handler, CreatedAt: job.CreatedAt, Plan: n.Plan,
	}, nil
}
