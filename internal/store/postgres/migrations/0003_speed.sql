-- New entries come at the end of this index, whichever worker they are of, which costs a
-- third of an entry elsewhere.
DROP INDEX belfry.runs_running;
CREATE INDEX runs_running ON belfry.runs (started_at, worker) WHERE state = 'running';

-- Identifies namespace, revision and spec, so that many plans are loaded without a look
-- at their jobs. Null: the job was not written since this column was added.
ALTER TABLE belfry.plans ADD COLUMN digest uuid;

-- A node reads its shards, however many plans the other shards have.
DROP INDEX belfry.plans_due;
CREATE INDEX plans_due ON belfry.plans (shard, next_at, job_id) WHERE next_at IS NOT NULL;
