package sqlite

import (
	"context"
	"iter"

	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

const (
	// A job whose id exists was created by an earlier call whose reply was lost; it
	// may be archived by now.
	insertJob = `INSERT INTO jobs (id, shard, namespace, name, revision, state, spec, payload, created_at, updated_at,
  tags, queue, type, handler)
SELECT ?1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? WHERE NOT EXISTS (SELECT 1 FROM ended WHERE id = ?1) ON CONFLICT (id) DO NOTHING`

	insertPlan = `INSERT INTO plans (job_id, shard, version, next_at, nominal_at, fired_for, runs_made, zone_version, one_off, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
)

func (s *Store) CreateJobs(ctx context.Context, jobs iter.Seq2[store.NewJob, error], r *store.Request) error {
	pending, err := store.FillSpool(ctx, s.dir, jobs)
	if err != nil {
		return err
	}
	defer pending.Close()
	limited, err := s.IsLimited(ctx, pending.Usage())
	if err != nil {
		return err
	}
	return s.writeRequest(ctx, "create jobs", r, func(t *tx) error {
		if limited {
			if err := sqlstore.ReserveJobs(sharedTx{t}, pending); err != nil {
				return err
			}
		}
		t.changes.many = !pending.InMemory()
		t.changes.plans = t.changes.many
		return pending.Each(t.insertJob)
	})
}

func (t *tx) insertJob(r *store.NewRow) error {
	p := &r.Plan
	inserted, err := t.exec(insertJob, r.ID[:], int64(p.Shard), r.Namespace, nullText(r.Name), int64(r.Revision), string(r.State),
		r.Spec, nullText(r.Payload), micro(r.CreatedAt), micro(r.CreatedAt), tagsJSON(r.Tags), r.Queue, r.Type, r.Handler)
	if err != nil {
		return orTaken(err, store.NameTaken("job", r.Name))
	}
	if inserted == 0 {
		return nil
	}
	if !t.changes.many {
		t.changes.planWritten(r.ID)
	}
	return t.run(insertPlan, p.JobID[:], int64(p.Shard), p.Version, nullTime(p.NextAt), nullTime(p.NominalAt), nullTime(p.FiredFor), p.RunsMade,
		p.ZoneVersion, p.Once, r.Digest[:])
}
