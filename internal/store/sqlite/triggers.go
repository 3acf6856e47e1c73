package sqlite

import (
	"context"
	"database/sql"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	insertTrigger = `INSERT INTO triggers (id, shard, namespace, job_id, run_id, kind, at, payload, created_at)
SELECT ?, shard, namespace, id, ?, ?, ?, ?, ? FROM jobs WHERE id = ? ON CONFLICT (id) DO NOTHING`

	selectPendingTriggers = `SELECT ` + dueColumns + `, g.id, g.kind, g.at, g.created_at, g.payload
FROM triggers g CROSS JOIN jobs j ON j.id = g.job_id CROSS JOIN plans p ON p.job_id = g.job_id
WHERE g.fired_at IS NULL AND j.state <> 'deleted' AND g.` + inShards + `ORDER BY g.created_at, g.id LIMIT ?`
)

func (s *Store) Trigger(ctx context.Context, triggers []plan.Trigger, r *store.Request) error {
	return s.writeRequest(ctx, "record triggers", r, func(t *tx) error {
		var checked belfry.ID
		for i := range triggers {
			g, run := &triggers[i], triggers[i].RunID()
			if g.JobID != checked {
				if _, err := t.editableJob(g.Namespace, g.JobID); err != nil {
					return t.unlessTriggered(g.ID, err)
				}
				checked = g.JobID
				t.changes.planWritten(g.JobID)
			}
			_, err := t.exec(insertTrigger, g.ID[:], run[:], string(g.Kind), micro(g.At), nullText(g.Payload), micro(t.now), g.JobID[:])
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// unlessTriggered is an error about a job, or nil if the call is repeated: the job may
// have been archived after its run.
func (t *tx) unlessTriggered(trigger belfry.ID, missing error) error {
	known, err := t.exists(`SELECT EXISTS (SELECT 1 FROM triggers WHERE id = ?)`, trigger[:])
	if err != nil || known {
		return err
	}
	return missing
}

func (s *Store) PendingTriggers(ctx context.Context, shards []int, limit int) ([]store.PendingTrigger, error) {
	return readValue(ctx, s, "read the triggers", func(t *tx) ([]store.PendingTrigger, error) {
		return all(t, func(rows *sql.Rows, p *store.PendingTrigger) error {
			d, g := &p.Due, &p.Trigger
			err := t.scanDueAnd(rows, d, bytesColumn{g.ID[:]}, &g.Kind, timeColumn{&g.At}, timeColumn{&g.ReadyAt}, jsonColumn{&g.Payload})
			g.Namespace, g.JobID, g.Shard = d.Namespace, d.Plan.JobID, d.Plan.Shard
			return err
		}, selectPendingTriggers, shardsJSON(shards), atMost(limit))
	})
}
