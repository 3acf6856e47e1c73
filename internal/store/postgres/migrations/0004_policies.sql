-- What happens to a run: queues of runs that wait for each other, priorities,
-- cancelling, idempotency keys, retention of a job's own, and one-offs that leave
-- the live tables.

ALTER TABLE belfry.plans
    ADD COLUMN once   boolean NOT NULL DEFAULT false, -- the rule is a single instant
    ADD COLUMN parked text; -- why the job cannot be fired; null: it can, as far as known
CREATE FUNCTION pg_temp.field(spec text, name text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN spec::jsonb ->> name;
EXCEPTION WHEN others THEN
    RETURN NULL;
END $$;
UPDATE belfry.plans p SET once = true FROM belfry.jobs j
 WHERE j.id = p.job_id AND pg_temp.field(j.spec, 'schedule') ~ '^\s*[0-9]{4}-[0-9]{2}-[0-9]{2}';
DROP FUNCTION pg_temp.field(text, text);
CREATE INDEX plans_over ON belfry.plans (job_id) WHERE once AND next_at IS NULL AND nominal_at IS NULL;

CREATE INDEX triggers_job ON belfry.triggers (job_id) WHERE fired_at IS NULL;

ALTER TABLE belfry.jobs ADD COLUMN purge boolean NOT NULL DEFAULT false; -- of a deleted one: its history goes too

ALTER TABLE belfry.runs
    ADD COLUMN weight    bigint NOT NULL DEFAULT 0, -- microseconds that its priority adds to its rank
    ADD COLUMN once      boolean NOT NULL DEFAULT false, -- the last that a one-off planned
    ADD COLUMN keep_days integer, -- retention of its own
    ADD COLUMN cancel_at timestamptz; -- when somebody cancelled it while it was running
DROP INDEX belfry.runs_job;
CREATE INDEX runs_job ON belfry.runs (job_id, state); -- who looks for one that does not wait need not pass all that do
CREATE INDEX runs_waiting ON belfry.runs (job_id, scheduled_at, id) WHERE state = 'waiting';
CREATE INDEX runs_cancel ON belfry.runs (worker) WHERE cancel_at IS NOT NULL;

ALTER TABLE belfry.dead
    ADD COLUMN weight    bigint NOT NULL DEFAULT 0,
    ADD COLUMN once      boolean NOT NULL DEFAULT false,
    ADD COLUMN keep_days integer;
CREATE INDEX dead_list ON belfry.dead (namespace, died_at DESC, id DESC);

-- States are succeeded, skipped, cancelled and discarded.
ALTER TABLE belfry.history ADD COLUMN keep_until timestamptz; -- null: as long as everything else
CREATE INDEX history_kept ON belfry.history (keep_until) WHERE keep_until IS NOT NULL;
CREATE INDEX history_discarded ON belfry.history (job_id) WHERE state = 'discarded';
CREATE INDEX history_ranges ON belfry.history (job_id, scheduled_at DESC) WHERE skipped_count > 1;

-- The idempotency keys that templates gave to scheduled runs. Only jobs with a
-- template have rows here.
CREATE TABLE belfry.keys (
    job_id       uuid NOT NULL,
    key          text NOT NULL,
    shard        integer NOT NULL,
    run_id       uuid NOT NULL, -- the latest that has it
    made_at      timestamptz NOT NULL,
    succeeded_at timestamptz,
    PRIMARY KEY (job_id, key)
);
CREATE INDEX keys_age ON belfry.keys (made_at);

-- One-offs that are over, as they were last seen.
CREATE TABLE belfry.ended (
    id          uuid PRIMARY KEY,
    shard       integer NOT NULL,
    namespace   text NOT NULL,
    name        text,
    tags        text[] COLLATE "C",
    revision    integer NOT NULL,
    status      text NOT NULL, -- completed, failed, cancelled
    spec        text NOT NULL,
    payload     text,
    queue       text COLLATE "C" NOT NULL,
    type        text COLLATE "C" NOT NULL,
    handler     text COLLATE "C",
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    last_run_at timestamptz,
    ended_at    timestamptz NOT NULL,
    keep_until  timestamptz
);
CREATE INDEX ended_list ON belfry.ended (namespace, status, id); -- nobody lists them but by status
CREATE INDEX ended_name ON belfry.ended (namespace, name, ended_at) WHERE name IS NOT NULL;
CREATE INDEX ended_age ON belfry.ended (ended_at) WHERE keep_until IS NULL;
CREATE INDEX ended_kept ON belfry.ended (keep_until) WHERE keep_until IS NOT NULL;

-- What people should hear of.
CREATE TABLE belfry.events (
    id        uuid PRIMARY KEY,
    shard     integer NOT NULL,
    namespace text NOT NULL,
    job_id    uuid,
    kind      text NOT NULL,
    at        timestamptz NOT NULL,
    message   text NOT NULL,
    count     bigint NOT NULL
);
CREATE INDEX events_list ON belfry.events (namespace, id);
CREATE INDEX events_age ON belfry.events (at);
