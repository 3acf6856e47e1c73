-- Times in which no scheduler was in charge of a shard.
CREATE TABLE outages (
    shard    INTEGER NOT NULL,
    began_at INTEGER, -- NULL: nobody was before
    ended_at INTEGER NOT NULL,
    PRIMARY KEY (shard, ended_at)
) STRICT;

-- Waiting backfill runs come after all others of their job.
DROP INDEX runs_waiting;
CREATE INDEX runs_waiting ON runs (job_id, (kind = 'backfill'), scheduled_at, id) WHERE state = 'waiting';
