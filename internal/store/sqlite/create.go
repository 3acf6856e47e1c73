package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// CreateJobs stores new jobs with their plans, all or none. A job whose id is
// there already was stored by an earlier call whose answer was lost.
func (s *Store) CreateJobs(ctx context.Context, jobs iter.Seq2[store.NewJob, error], r *store.Request) error {
	var spec specWriter
	waiting := &spool{dir: s.dir}
	defer waiting.close()
	for job, err := range jobs {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		row, err := spec.row(&job)
		if err != nil {
			return failed("create jobs", err)
		}
		if err := waiting.add(row); err != nil {
			return failed("create jobs", err)
		}
	}
	return s.once(ctx, "create jobs", r, func(t *tx) error {
		t.news.many = waiting.file != nil
		t.news.changed = t.news.many
		return waiting.each(t.insertJob)
	})
}

const (
	// One that has ended meanwhile must not begin anew.
	insertJob = `INSERT INTO jobs (id, shard, namespace, name, revision, state, spec, payload, created_at, updated_at,
  tags, queue, type, handler)
SELECT ?1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? WHERE NOT EXISTS (SELECT 1 FROM ended WHERE id = ?1) ON CONFLICT (id) DO NOTHING`

	insertPlan = `INSERT INTO plans (job_id, shard, version, next_at, nominal_at, fired_for, runs_made, zone_version, one_off)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`
)

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
	inserted, err := t.exec(insertJob, r.ID[:], int64(p.Shard), r.Namespace, text(r.Name), int64(r.Revision), string(r.State),
		r.Spec, text(r.Payload), micro(r.CreatedAt), micro(r.CreatedAt), tagList(r.Tags), r.Queue, r.Type, r.Handler)
	if err != nil {
		return nameTaken(err, r.Name)
	}
	if inserted == 0 {
		return nil
	}
	if !t.news.many {
		t.news.change(r.ID)
	}
	_, err = t.exec(insertPlan, p.JobID[:], int64(p.Shard), p.Version, stamp(p.NextAt), stamp(p.NominalAt), stamp(p.FiredFor), p.RunsMade, p.ZoneVersion, p.Once)
	return err
}

// specWriter writes specs as text. Jobs that are created together often have the
// same one, which is encoded once.
type specWriter struct {
	spec belfry.Spec
	text string
}

func (w *specWriter) encode(spec belfry.Spec) (string, error) {
	if w.text == "" || w.spec != spec {
		text, err := json.Marshal(spec)
		if err != nil {
			return "", fmt.Errorf("write the spec: %w", err)
		}
		w.spec, w.text = spec, string(text)
	}
	return w.text, nil
}

func (w *specWriter) row(n *store.NewJob) (*newRow, error) {
	job := &n.Job
	spec, err := w.encode(job.Spec)
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", job.ID, err)
	}
	return &newRow{
		ID: job.ID, Namespace: job.Namespace, Name: job.Name, Tags: job.Tags, Revision: job.Revision, State: job.State, Spec: spec,
		Payload: job.Payload, Queue: job.Queue, Type: job.Type, Handler: job.Handler, CreatedAt: job.CreatedAt, Plan: n.Plan,
	}, nil
}
