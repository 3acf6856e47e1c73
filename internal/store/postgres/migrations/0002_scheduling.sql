-- Plans change as often as runs.
ALTER TABLE belfry.plans SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

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
