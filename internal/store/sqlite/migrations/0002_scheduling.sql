-- A lease that was renewed in the future was renewed before the clock was set back.
ALTER TABLE leases ADD COLUMN renewed_at INTEGER NOT NULL DEFAULT 0;

ALTER TABLE workers ADD COLUMN since INTEGER NOT NULL DEFAULT 0; -- since when its heartbeats have come without a gap
ALTER TABLE workers ADD COLUMN sequence INTEGER NOT NULL DEFAULT 0; -- of its last heartbeat

-- Times in which no scheduler was in charge of a shard.
CREATE TABLE outages (
    shard    INTEGER NOT NULL,
    began_at INTEGER, -- NULL: nobody was before
    ended_at INTEGER NOT NULL,
    PRIMARY KEY (shard, ended_at)
);

-- Waiting backfill runs come after all others of their job.
DROP INDEX runs_waiting;
CREATE INDEX runs_waiting ON runs (job_id, (kind = 'backfill'), scheduled_at, id) WHERE state = 'waiting';
