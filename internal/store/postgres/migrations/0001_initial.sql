-- The schema of a Belfry database. SQLite and PostgreSQL have the same tables and
-- columns, except for jobs.trigrams and plans.runs_triggered, which only this one has;
-- their indexes differ. Every table on the path of a run has its shard, and no key but
-- the name of a job crosses shards.
--
--   settings   what was fixed when the database was created
--   jobs       every job that is not archived; a deleted one stays while runs need it
--   revisions  earlier specs and payloads of edited jobs
--   plans      when each job fires next
--   triggers   requested runs: pending, or fired lately
--   runs       live runs
--   attempts   attempts that did not succeed
--   history    settled runs and skipped occurrences
--   dead       dead letters: runs that are out of attempts
--   keys       idempotency keys that templates gave to scheduled runs
--   ended      archived one-offs
--   requests   idempotency keys of API requests, with their responses
--   events     notable events for people
--   leases     which owner holds which name
--   workers    registered workers

CREATE TABLE belfry.settings (
    name  text PRIMARY KEY,
    value text NOT NULL
);

-- The columns from tags to trigrams repeat parts of a job so that lists can be filtered
-- by them. No list is sorted by a language, which would make indexes slow.
CREATE TABLE belfry.jobs (
    id         uuid PRIMARY KEY,
    shard      integer NOT NULL,
    namespace  text NOT NULL,
    name       text, -- null: none
    revision   integer NOT NULL,
    state      text NOT NULL, -- active, paused, deleted
    spec       text NOT NULL, -- JSON
    payload    text, -- JSON
    tags       text[] COLLATE "C", -- sorted; null: none
    queue      text COLLATE "C" NOT NULL,
    type       text COLLATE "C" NOT NULL,
    handler    text COLLATE "C", -- null unless the type is worker
    trigrams   bigint[], -- every second trigram of the name, in lower case, 21 bits a letter
    purge      boolean NOT NULL DEFAULT false, -- of a deleted job: its history is deleted too
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE UNIQUE INDEX jobs_name ON belfry.jobs (namespace, name) WHERE name IS NOT NULL AND state <> 'deleted';
CREATE INDEX jobs_deleted ON belfry.jobs (updated_at) WHERE state = 'deleted';
-- These four have the order of the list, read backwards: new jobs are added at the end
-- of an index, which halves its size. The GIN indexes are for what is rare.
CREATE INDEX jobs_list ON belfry.jobs (namespace, id) WHERE state <> 'deleted';
CREATE INDEX jobs_queue ON belfry.jobs (namespace, queue, id) WHERE state <> 'deleted';
CREATE INDEX jobs_handler ON belfry.jobs (namespace, type, handler, id) WHERE type <> 'http' AND state <> 'deleted';
CREATE INDEX jobs_paused ON belfry.jobs (namespace, id) WHERE state = 'paused';
CREATE INDEX jobs_tags ON belfry.jobs USING gin (tags) WHERE tags IS NOT NULL AND state <> 'deleted';
CREATE INDEX jobs_trigrams ON belfry.jobs USING gin (trigrams) WHERE trigrams IS NOT NULL AND state <> 'deleted';

-- A run keeps the revision it was fired from.
CREATE TABLE belfry.revisions (
    job_id      uuid NOT NULL,
    revision    integer NOT NULL,
    shard       integer NOT NULL,
    spec        text NOT NULL,
    payload     text,
    replaced_at timestamptz NOT NULL,
    PRIMARY KEY (job_id, revision)
);

-- Narrow, because every firing rewrites a row.
CREATE TABLE belfry.plans (
    job_id         uuid PRIMARY KEY,
    shard          integer NOT NULL,
    version        bigint NOT NULL,
    next_at        timestamptz, -- null: not planned
    nominal_at     timestamptz, -- null: no occurrence is left
    fired_for      timestamptz, -- high-water mark
    runs_made      bigint NOT NULL, -- scheduled runs, which a job may limit
    runs_triggered bigint NOT NULL DEFAULT 0,
    zone_version   text NOT NULL,
    one_off        boolean NOT NULL DEFAULT false, -- the rule is a single instant
    quarantined    text, -- why the job cannot be fired; null: no failure is known
    CHECK (fired_for IS NULL OR nominal_at IS NULL OR nominal_at > fired_for)
) WITH (fillfactor = 70);
CREATE INDEX plans_due ON belfry.plans (next_at, job_id, shard) WHERE next_at IS NOT NULL;
CREATE INDEX plans_unplanned ON belfry.plans (job_id) WHERE next_at IS NULL;
CREATE INDEX plans_finished ON belfry.plans (job_id) WHERE one_off AND next_at IS NULL AND nominal_at IS NULL;

-- A fired trigger is kept for a while, so that repeating a request whose response
-- was lost does nothing.
CREATE TABLE belfry.triggers (
    id         uuid PRIMARY KEY,
    shard      integer NOT NULL,
    namespace  text NOT NULL,
    job_id     uuid NOT NULL,
    run_id     uuid NOT NULL, -- of the run that it becomes
    kind       text NOT NULL,
    at         timestamptz NOT NULL,
    payload    text,
    created_at timestamptz NOT NULL,
    fired_at   timestamptz -- null: pending
);
CREATE INDEX triggers_pending ON belfry.triggers (created_at, id, shard, job_id) WHERE fired_at IS NULL;
CREATE INDEX triggers_run ON belfry.triggers (run_id) WHERE fired_at IS NULL;
CREATE INDEX triggers_job ON belfry.triggers (job_id) WHERE fired_at IS NULL;
CREATE INDEX triggers_fired ON belfry.triggers (fired_at) WHERE fired_at IS NOT NULL;

-- This table stays small, and its rows change often.
CREATE TABLE belfry.runs (
    id                  uuid PRIMARY KEY,
    shard               integer NOT NULL,
    namespace           text NOT NULL,
    job_id              uuid NOT NULL,
    revision            integer NOT NULL,
    kind                text NOT NULL,
    lane                text NOT NULL, -- queue and handler
    state               text NOT NULL, -- ready, running, retry, waiting
    rank                bigint NOT NULL, -- runs are claimed in this order
    weight              bigint NOT NULL DEFAULT 0, -- microseconds that its priority adds to its rank
    scheduled_at        timestamptz NOT NULL,
    ready_at            timestamptz NOT NULL,
    fired_at            timestamptz NOT NULL,
    fired_by            uuid NOT NULL,
    epoch               bigint NOT NULL,
    timeout_ms          bigint NOT NULL,
    attempt             integer NOT NULL,
    failures            integer NOT NULL,
    lost                integer NOT NULL,
    worker              uuid,
    token               uuid,
    started_at          timestamptz, -- when the current attempt was claimed
    deadline_at         timestamptz,
    cancel_requested_at timestamptz, -- when it was cancelled while a worker held it
    payload             text, -- replaces the payload of the job
    key                 text, -- idempotency key from a template; null: none
    one_off             boolean NOT NULL DEFAULT false, -- the last run that a one-off planned
    retention_days      integer, -- null: as long as everything else
    CHECK ((state = 'running') = (worker IS NOT NULL AND token IS NOT NULL AND deadline_at IS NOT NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX runs_ready ON belfry.runs (lane, rank) WHERE state = 'ready';
CREATE INDEX runs_retry ON belfry.runs (ready_at) WHERE state = 'retry';
CREATE INDEX runs_waiting ON belfry.runs (job_id, scheduled_at, id) WHERE state = 'waiting';
CREATE INDEX runs_cancelled ON belfry.runs (worker) WHERE cancel_requested_at IS NOT NULL;
CREATE INDEX runs_job ON belfry.runs (job_id, state); -- a job may have one run among thousands that is not waiting

-- A late result is kept beside the attempt as evidence.
CREATE TABLE belfry.attempts (
    run_id       uuid NOT NULL,
    attempt      integer NOT NULL,
    shard        integer NOT NULL,
    namespace    text NOT NULL,
    outcome      text NOT NULL,
    worker       uuid NOT NULL,
    token        uuid NOT NULL,
    started_at   timestamptz NOT NULL,
    finished_at  timestamptz NOT NULL,
    http_status  integer NOT NULL,
    error        text NOT NULL,
    output       text NOT NULL,
    late_outcome text,
    late_at      timestamptz,
    PRIMARY KEY (run_id, attempt)
);
CREATE INDEX attempts_age ON belfry.attempts USING brin (finished_at);

-- A partition a day. The default partition has what was settled before the partition of
-- its day was made.
CREATE TABLE belfry.history (
    id            uuid NOT NULL,
    shard         integer NOT NULL,
    namespace     text NOT NULL,
    job_id        uuid NOT NULL,
    revision      integer NOT NULL,
    kind          text NOT NULL,
    state         text NOT NULL, -- succeeded, skipped, cancelled, discarded
    reason        text NOT NULL,
    scheduled_at  timestamptz NOT NULL,
    ready_at      timestamptz NOT NULL,
    fired_at      timestamptz NOT NULL,
    fired_by      uuid NOT NULL,
    epoch         bigint NOT NULL,
    attempt       integer NOT NULL,
    worker        uuid,
    token         uuid,
    started_at    timestamptz,
    settled_at    timestamptz NOT NULL,
    http_status   integer NOT NULL,
    error         text NOT NULL,
    output        text NOT NULL,
    skipped_to    timestamptz,
    skipped_count bigint NOT NULL,
    key           text,
    retain_until  timestamptz -- null: as long as everything else
) PARTITION BY RANGE (settled_at);
CREATE INDEX history_id ON belfry.history (id);
CREATE INDEX history_job ON belfry.history (job_id, scheduled_at DESC, id DESC);
CREATE INDEX history_ranges ON belfry.history (job_id, scheduled_at DESC) WHERE skipped_count > 1;
CREATE INDEX history_discarded ON belfry.history (job_id) WHERE state = 'discarded';
CREATE INDEX history_retained ON belfry.history (retain_until) WHERE retain_until IS NOT NULL;
CREATE TABLE belfry.history_default PARTITION OF belfry.history DEFAULT;

-- A dead letter enters history when it is redriven and settles, or is discarded.
CREATE TABLE belfry.dead (
    id             uuid PRIMARY KEY,
    shard          integer NOT NULL,
    namespace      text NOT NULL,
    job_id         uuid NOT NULL,
    revision       integer NOT NULL,
    kind           text NOT NULL,
    lane           text NOT NULL,
    reason         text NOT NULL,
    weight         bigint NOT NULL DEFAULT 0,
    scheduled_at   timestamptz NOT NULL,
    ready_at       timestamptz NOT NULL,
    fired_at       timestamptz NOT NULL,
    fired_by       uuid NOT NULL,
    epoch          bigint NOT NULL,
    timeout_ms     bigint NOT NULL,
    attempt        integer NOT NULL,
    failures       integer NOT NULL,
    lost           integer NOT NULL,
    started_at     timestamptz,
    died_at        timestamptz NOT NULL,
    payload        text,
    key            text,
    one_off        boolean NOT NULL DEFAULT false,
    retention_days integer,
    fingerprint    text NOT NULL -- the same for failures of the same kind
);
CREATE INDEX dead_list ON belfry.dead (namespace, died_at DESC, id DESC);
CREATE INDEX dead_job ON belfry.dead (job_id, scheduled_at DESC, id DESC);
CREATE INDEX dead_fingerprint ON belfry.dead (fingerprint);

-- Only jobs with a template have rows here.
CREATE TABLE belfry.keys (
    job_id       uuid NOT NULL,
    key          text NOT NULL,
    shard        integer NOT NULL,
    run_id       uuid NOT NULL, -- the latest run that has it
    created_at   timestamptz NOT NULL,
    succeeded_at timestamptz,
    PRIMARY KEY (job_id, key)
);
CREATE INDEX keys_age ON belfry.keys (created_at);

CREATE TABLE belfry.ended (
    id           uuid PRIMARY KEY,
    shard        integer NOT NULL,
    namespace    text NOT NULL,
    name         text,
    tags         text[] COLLATE "C",
    revision     integer NOT NULL,
    status       text NOT NULL, -- completed, failed, cancelled
    spec         text NOT NULL,
    payload      text,
    queue        text COLLATE "C" NOT NULL,
    type         text COLLATE "C" NOT NULL,
    handler      text COLLATE "C",
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    last_run_at  timestamptz,
    ended_at     timestamptz NOT NULL,
    retain_until timestamptz
);
CREATE INDEX ended_list ON belfry.ended (namespace, status, id); -- they are listed by status only
CREATE INDEX ended_name ON belfry.ended (namespace, name, ended_at) WHERE name IS NOT NULL;
CREATE INDEX ended_age ON belfry.ended (ended_at) WHERE retain_until IS NULL;
CREATE INDEX ended_retained ON belfry.ended (retain_until) WHERE retain_until IS NOT NULL;

CREATE TABLE belfry.requests (
    namespace  text NOT NULL,
    key        text NOT NULL,
    hash       bytea NOT NULL, -- of the request
    response   bytea, -- null until the request is done, in the same transaction
    created_at timestamptz NOT NULL,
    PRIMARY KEY (namespace, key)
);
CREATE INDEX requests_age ON belfry.requests (created_at);

CREATE TABLE belfry.events (
    id        uuid PRIMARY KEY,
    shard     integer NOT NULL,
    namespace text NOT NULL,
    job_id    uuid, -- null: not about one job
    kind      text NOT NULL,
    at        timestamptz NOT NULL,
    message   text NOT NULL,
    count     bigint NOT NULL
);
CREATE INDEX events_list ON belfry.events (namespace, id);
CREATE INDEX events_age ON belfry.events (at);

CREATE TABLE belfry.leases (
    name       text PRIMARY KEY,
    owner      uuid NOT NULL,
    epoch      bigint NOT NULL, -- grows whenever the owner changes
    renewed_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- A worker has a new id every time it starts.
CREATE TABLE belfry.workers (
    id         uuid PRIMARY KEY,
    node       text NOT NULL,
    slots      integer NOT NULL,
    lanes      text NOT NULL, -- JSON list
    started_at timestamptz NOT NULL,
    last_seen  timestamptz NOT NULL,
    since      timestamptz NOT NULL, -- since when its heartbeats have come without a gap
    sequence   bigint NOT NULL -- of its last heartbeat
) WITH (fillfactor = 50);
