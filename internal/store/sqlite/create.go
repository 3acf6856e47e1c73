package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// CreateJobs stores new jobs with their plans, all or none. A job whose id is
// there already was stored by an earlier call whose answer was lost.
func (s *Store) CreateJobs(ctx context.Context, jobs iter.Seq2[store.NewJob, error], r *store.Request) error {
	waiting := &spool{dir: s.dir}
	defer waiting.close()
	for job, err := range jobs {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := waiting.add(job); err != nil {
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

	insertPlan = `INSERT INTO plans (job_id, shard, version, next_at, nominal_at, fired_for, runs_made, zone_version, once)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`
)

func (t *tx) insertJob(n *store.NewJob) error {
	job, p := &n.Job, &n.Plan
	spec, err := t.specText(job.Spec)
	if err != nil {
		return fmt.Errorf("job %s: %w", job.ID, err)
	}
	inserted, err := t.exec(insertJob, job.ID[:], int64(p.Shard), job.Namespace, text(job.Name), int64(job.Revision), string(job.State),
		spec, text(job.Payload), micro(job.CreatedAt), micro(job.CreatedAt),
		tagList(job.Tags), job.Queue, job.Type, job.Handler)
	if err != nil {
		return nameTaken(err, job.Name)
	}
	if inserted == 0 {
		return nil
	}
	if !t.news.many {
		t.news.change(job.ID)
	}
	_, err = t.exec(insertPlan, p.JobID[:], int64(p.Shard), p.Version, stamp(p.NextAt), stamp(p.NominalAt), stamp(p.FiredFor), p.RunsMade, p.ZoneVersion, p.Once)
	return err
}

// specText writes a spec down. Jobs that come together often have the same one.
func (t *tx) specText(spec belfry.Spec) (string, error) {
	if t.written.text == "" || t.written.spec != spec {
		text, err := json.Marshal(spec)
		if err != nil {
			return "", fmt.Errorf("write the spec: %w", err)
		}
		t.written.spec, t.written.text = spec, string(text)
	}
	return t.written.text, nil
}
