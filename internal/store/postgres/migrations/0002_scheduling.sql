-- A page of plans costs what it returns, however many shards a node owns.
DROP INDEX belfry.plans_due;
CREATE INDEX plans_due ON belfry.plans (next_at, job_id, shard) WHERE next_at IS NOT NULL;
ALTER TABLE belfry.plans SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Triggers of jobs that cannot be fired are left out by the index alone.
DROP INDEX belfry.triggers_pending;
CREATE INDEX triggers_pending ON belfry.triggers (created_at, id, shard, job_id) WHERE fired_at IS NULL;

-- A lease that was renewed in the future was renewed before the clock was set back.
ALTER TABLE belfry.leases ADD COLUMN renewed_at timestamptz NOT NULL DEFAULT clock_timestamp();

ALTER TABLE belfry.workers
    ADD COLUMN since    timestamptz NOT NULL DEFAULT clock_timestamp(), -- since when its heartbeats have come without a gap
    ADD COLUMN sequence bigint NOT NULL DEFAULT 0; -- of its last heartbeat

-- Times in which no scheduler was in charge of a shard.
CREATE TABLE belfry.outages (
    shard    integer NOT NULL,
    began_at timestamptz, -- NULL: nobody was before
    ended_at timestamptz NOT NULL,
    PRIMARY KEY (shard, ended_at)
);

-- Waiting backfill runs come after all others of their job.
DROP INDEX belfry.runs_waiting;
CREATE INDEX runs_waiting ON belfry.runs (job_id, (kind = 'backfill'), scheduled_at, id) WHERE state = 'waiting';

-- Attempts are reaped without a look at runs that are not running.
CREATE INDEX runs_running ON belfry.runs (worker) WHERE state = 'running';
