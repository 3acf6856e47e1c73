-- What happens to a run: queues of runs that wait for each other, priorities,
-- cancelling, idempotency keys, retention of a job's own, and one-offs that leave
-- the live tables.

ALTER TABLE plans ADD COLUMN once INTEGER NOT NULL DEFAULT 0; -- the rule is a single instant
ALTER TABLE plans ADD COLUMN parked TEXT; -- why the job cannot be fired; null: it can, as far as known
UPDATE plans SET once = 1 WHERE job_id IN (SELECT id FROM jobs WHERE json_valid(spec)
    AND trim(json_extract(spec, '$.schedule')) GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*');
CREATE INDEX plans_over ON plans (job_id) WHERE once AND next_at IS NULL AND nominal_at IS NULL;

ALTER TABLE jobs ADD COLUMN purge INTEGER NOT NULL DEFAULT 0; -- of a deleted one: its history goes too
CREATE INDEX jobs_purge ON jobs (id) WHERE state = 'deleted' AND purge;

ALTER TABLE runs ADD COLUMN weight INTEGER NOT NULL DEFAULT 0; -- microseconds that its priority adds to its rank
ALTER TABLE runs ADD COLUMN once INTEGER NOT NULL DEFAULT 0; -- the last that a one-off planned
ALTER TABLE runs ADD COLUMN keep_days INTEGER; -- retention of its own
ALTER TABLE runs ADD COLUMN cancel_at INTEGER; -- when somebody cancelled it while it was running
CREATE INDEX runs_waiting ON runs (job_id, scheduled_at, id) WHERE state = 'waiting';
CREATE INDEX runs_cancelled ON runs (worker) WHERE cancel_at IS NOT NULL;
DROP INDEX runs_job; -- a job may have thousands of waiting runs, and one that is not
CREATE INDEX runs_job ON runs (job_id, state);

ALTER TABLE dead ADD COLUMN weight INTEGER NOT NULL DEFAULT 0;
ALTER TABLE dead ADD COLUMN once INTEGER NOT NULL DEFAULT 0;
ALTER TABLE dead ADD COLUMN keep_days INTEGER;
CREATE INDEX dead_list ON dead (namespace, died_at DESC, id DESC);

-- States are succeeded, skipped, cancelled and discarded.
ALTER TABLE history ADD COLUMN keep_until INTEGER; -- null: as long as everything else
CREATE INDEX history_kept ON history (keep_until) WHERE keep_until IS NOT NULL;
DROP INDEX history_age;
CREATE INDEX history_age ON history (settled_at) WHERE keep_until IS NULL;
CREATE INDEX history_ranges ON history (job_id, scheduled_at DESC) WHERE skipped_count > 1;

-- The idempotency keys that templates gave to scheduled runs. Only jobs with a
-- template have rows here.
CREATE TABLE keys (
    job_id       BLOB NOT NULL,
    key          TEXT NOT NULL,
    shard        INTEGER NOT NULL,
    run_id       BLOB NOT NULL, -- the latest that has it
    made_at      INTEGER NOT NULL,
    succeeded_at INTEGER,
    PRIMARY KEY (job_id, key)
) STRICT;
CREATE INDEX keys_age ON keys (made_at);

-- One-offs that are over, as they were last seen.
CREATE TABLE ended (
    id          BLOB NOT NULL PRIMARY KEY,
    shard       INTEGER NOT NULL,
    namespace   TEXT NOT NULL,
    name        TEXT,
    tags        TEXT,
    revision    INTEGER NOT NULL,
    status      TEXT NOT NULL, -- completed, failed, cancelled
    spec        TEXT NOT NULL,
    payload     TEXT,
    queue       TEXT NOT NULL,
    type        TEXT NOT NULL,
    handler     TEXT,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    last_run_at INTEGER,
    ended_at    INTEGER NOT NULL,
    keep_until  INTEGER
) STRICT;
CREATE INDEX ended_list ON ended (namespace, id);
CREATE INDEX ended_name ON ended (namespace, name, ended_at) WHERE name IS NOT NULL;
CREATE INDEX ended_age ON ended (ended_at) WHERE keep_until IS NULL;
CREATE INDEX ended_kept ON ended (keep_until) WHERE keep_until IS NOT NULL;

-- What people should hear of.
CREATE TABLE events (
    id        BLOB NOT NULL PRIMARY KEY,
    shard     INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    job_id    BLOB,
    kind      TEXT NOT NULL,
    at        INTEGER NOT NULL,
    message   TEXT NOT NULL,
    count     INTEGER NOT NULL
) STRICT;
CREATE INDEX events_list ON events (namespace, id);
CREATE INDEX events_age ON events (at);
