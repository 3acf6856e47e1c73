package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/store"
)

// selectJob reads jobs with everything that their status is derived from. The
// caller adds where the jobs j and their plans p come from.
const selectJob = `
SELECT j.id, j.namespace, coalesce(j.name, ''), j.revision, j.state, j.spec, j.payload, j.created_at, j.updated_at, j.tags, p.next_at, coalesce(p.quarantined, ''),
       (SELECT count(*) FROM runs r WHERE r.job_id = j.id AND r.state = 'running'),
       (SELECT count(*) FROM runs r WHERE r.job_id = j.id AND r.state <> 'running'),
       (SELECT max(scheduled_at) FROM runs r WHERE r.job_id = j.id),
       (SELECT scheduled_at FROM dead d WHERE d.job_id = j.id ORDER BY scheduled_at DESC LIMIT 1),
       (SELECT scheduled_at FROM history h WHERE h.job_id = j.id AND h.state <> 'skipped' ORDER BY scheduled_at DESC LIMIT 1),
       (SELECT scheduled_at FROM history h WHERE h.job_id = j.id` + telling + `ORDER BY scheduled_at DESC, id DESC LIMIT 1),
       (SELECT state FROM history h WHERE h.job_id = j.id` + telling + `ORDER BY scheduled_at DESC, id DESC LIMIT 1)
`

// telling leaves out what is only noted beside the occurrences of a job: that the
// clock skipped a wall time, that a plan was moved. It says nothing about how the
// job ended. Nor does the note that the job was cancelled before an occurrence, once
// a run of it was fired after that.
const telling = ` AND (h.state <> 'skipped' OR h.reason NOT IN ('dst_gap', 'zone_change', 'cancelled') OR h.reason = 'cancelled'
  AND h.settled_at >= coalesce((SELECT o.fired_at FROM history o WHERE o.job_id = h.job_id AND o.state <> 'skipped' ORDER BY o.scheduled_at DESC, o.id DESC LIMIT 1), 0)
  AND h.settled_at >= coalesce((SELECT o.fired_at FROM dead o WHERE o.job_id = h.job_id ORDER BY o.scheduled_at DESC LIMIT 1), 0)) `

const (
	selectOneJob   = selectJob + `FROM jobs j CROSS JOIN plans p ON p.job_id = j.id WHERE j.namespace = ? AND j.id = ?`
	selectNamedJob = `SELECT id FROM jobs WHERE namespace = ? AND name = ? AND state <> 'deleted'`
)

func (t *tx) scanJob(rows *sql.Rows, job *belfry.Job) error {
	var (
		spec                      string
		next, live, dead, ran, at time.Time
		state                     sql.Null[string]
		alive                     belfry.LiveRuns
	)
	err := rows.Scan(key{job.ID[:]}, &job.Namespace, &job.Name, &job.Revision, &job.State, &spec, payload{&job.Payload},
		moment{&job.CreatedAt}, moment{&job.UpdatedAt}, tags{&job.Tags}, moment{&next}, &job.Quarantined, &alive.Running, &alive.Waiting,
		moment{&live}, moment{&dead}, moment{&ran}, moment{&at}, &state)
	if err != nil {
		return err
	}
	if job.Spec, err = t.specs.Decode(spec); err != nil {
		return fmt.Errorf("job %s: %w", job.ID, err)
	}
	last := belfry.RunStatus(state.V)
	if !dead.IsZero() && !dead.Before(at) {
		last = belfry.RunDead
	}
	job.NextRunAt, job.LastRunAt = orNil(next), orNil(latest(live, dead, ran))
	job.Status = belfry.StatusOf(job.State, !next.IsZero(), alive, last)
	return nil
}

func latest(times ...time.Time) time.Time {
	var out time.Time
	for _, t := range times {
		if t.After(out) {
			out = t
		}
	}
	return out
}

func orNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// job finds a job, deleted or not.
func (t *tx) job(namespace string, id belfry.ID) (belfry.Job, error) {
	jobs, err := all(t, t.scanJob, selectOneJob, namespace, id[:])
	if err != nil {
		return belfry.Job{}, err
	}
	if len(jobs) == 0 {
		return belfry.Job{}, noSuchJob(id)
	}
	return jobs[0], nil
}

// visibleJob finds a job that is not deleted, or has ended.
func (t *tx) visibleJob(namespace string, id belfry.ID) (belfry.Job, error) {
	job, err := t.job(namespace, id)
	if belfry.CodeOf(err) == belfry.NotFound {
		return t.endedJob(namespace, id)
	}
	if err == nil && job.State == belfry.JobDeleted {
		return belfry.Job{}, noSuchJob(id)
	}
	return job, err
}

// liveJob finds a job that is not deleted. One that has ended is a Conflict.
func (t *tx) liveJob(namespace string, id belfry.ID) (belfry.Job, error) {
	job, err := t.visibleJob(namespace, id)
	if err == nil && job.State == belfry.JobEnded {
		return belfry.Job{}, belfry.Errorf(belfry.Conflict, "the job has ended; create it again")
	}
	return job, err
}

// Job finds a job that is not deleted, or has ended.
func (s *Store) Job(ctx context.Context, namespace string, id belfry.ID) (job belfry.Job, err error) {
	err = s.read(ctx, "look up a job", func(t *tx) error {
		job, err = t.visibleJob(namespace, id)
		return err
	})
	return job, err
}

// JobNamed finds the id of the job that is not deleted and has the name, or of the
// last one that had it and ended.
func (s *Store) JobIDByName(ctx context.Context, namespace, name string) (id belfry.ID, err error) {
	err = s.read(ctx, "look up a name", func(t *tx) error {
		err := t.get([]any{key{id[:]}}, selectNamedJob, namespace, name)
		if errors.Is(err, sql.ErrNoRows) {
			err = t.get([]any{key{id[:]}}, selectNamedEnded, namespace, name)
		}
		if errors.Is(err, sql.ErrNoRows) {
			return belfry.Errorf(belfry.NotFound, "there is no job named %q", sanitize.Text(name, maxNameShown))
		}
		return err
	})
	return id, err
}

// maxNameShown bounds what an error repeats of a name that may be anything.
const maxNameShown = 200

const insertWish = `INSERT INTO triggers (id, shard, namespace, job_id, run_id, kind, at, payload, created_at)
SELECT ?, shard, namespace, id, ?, ?, ?, ?, ? FROM jobs WHERE id = ? ON CONFLICT (id) DO NOTHING`

// Trigger records wishes for runs, all or none.
func (s *Store) Trigger(ctx context.Context, wishes []plan.Trigger, r *store.Request) error {
	return s.once(ctx, "record triggers", r, func(t *tx) error {
		var seen belfry.ID
		for i := range wishes {
			w, run := &wishes[i], wishes[i].RunID()
			if w.JobID != seen {
				if _, err := t.liveJob(w.Namespace, w.JobID); err != nil {
					return t.unlessWished(w.ID, err)
				}
				seen = w.JobID
				t.news.change(w.JobID)
			}
			_, err := t.exec(insertWish, w.ID[:], run[:], string(w.Kind), micro(w.At), text(w.Payload), micro(t.now), w.JobID[:])
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// unlessWished is an error about a job, unless a wish is known that is repeated: it
// may have been the last that the job had to fulfil.
func (t *tx) unlessWished(wish belfry.ID, err error) error {
	var known bool
	if failed := t.get([]any{&known}, `SELECT EXISTS (SELECT 1 FROM triggers WHERE id = ?)`, wish[:]); failed != nil || known {
		return failed
	}
	return err
}

// EditJob reads a job and its plan, asks edit what to change, and writes it.
// Nothing else is written meanwhile.
func (s *Store) EditJob(ctx context.Context, namespace string, id belfry.ID, edit store.Edit) (job belfry.Job, err error) {
	var refused error
	err = s.write(ctx, "edit a job", func(t *tx) error {
		p, old, err := t.planAndJob(namespace, id)
		if err != nil {
			return err
		}
		change, err := edit(old, p, t.now)
		if err != nil {
			refused = err
			return err
		}
		if change == nil {
			job = old
			return nil
		}
		job, err = t.change(old, change)
		return err
	})
	if refused != nil {
		err = refused
	}
	if err != nil {
		return belfry.Job{}, err
	}
	return job, nil
}

func (t *tx) planAndJob(namespace string, id belfry.ID) (plan.Plan, belfry.Job, error) {
	var p planScan
	job, err := t.liveJob(namespace, id)
	if err == nil {
		err = t.get(p.fields(), `SELECT `+planColumns+` FROM plans p WHERE p.job_id = ?`, id[:])
	}
	return p.Plan, job, err
}

// change writes an edited job and takes its plan along.
func (t *tx) change(old belfry.Job, c *store.Change) (belfry.Job, error) {
	job := c.Job
	if job.Revision > old.Revision {
		_, err := t.exec(`INSERT INTO revisions (job_id, revision, shard, spec, payload, replaced_at)
SELECT id, revision, shard, spec, payload, ? FROM jobs WHERE id = ?`, micro(t.now), old.ID[:])
		if err != nil {
			return job, err
		}
	}
	spec, err := new(specWriter).encode(job.Spec)
	if err != nil {
		return job, err
	}
	_, err = t.exec(`UPDATE jobs SET name = ?, state = ?, spec = ?, payload = ?, revision = ?, updated_at = ?,
  tags = ?, queue = ?, type = ?, handler = ?, purge = ? WHERE id = ?`,
		text(job.Name), string(job.State), spec, text(job.Payload), job.Revision, micro(t.now),
		tagList(job.Tags), job.Queue, job.Type, job.Handler, c.Purge && job.State == belfry.JobDeleted, old.ID[:])
	if err != nil {
		return job, nameTaken(err, job.Name)
	}
	fired, err := t.fire(belfry.ID{}, []plan.Step{c.Step}, store.FreeSlots{})
	if err != nil {
		return job, err
	}
	if !fired.Applied[0] {
		return job, belfry.Errorf(belfry.Internal, "the step for job %s does not fit its plan", old.ID)
	}
	t.news.change(old.ID)
	if c.Cancel {
		if err := t.cancelAll(old.ID); err != nil {
			return job, err
		}
	}
	if old.Serial() && !job.Serial() {
		if _, err := t.exec(release, sql.Named("now", micro(t.now)), sql.Named("job", old.ID[:])); err != nil {
			return job, err
		}
		t.news.ready = true
	}
	job, err = t.job(old.Namespace, old.ID)
	if belfry.CodeOf(err) == belfry.NotFound {
		return t.endedJob(old.Namespace, old.ID)
	}
	return job, err
}
