-- The path of a run. Every table on it carries its shard, and no key but a
-- job's name crosses shards.

CREATE TABLE belfry.settings (
    name  text PRIMARY KEY,
    value text NOT NULL
);

-- What people asked for. A deleted job stays until nothing live needs it.
CREATE TABLE belfry.jobs (
    id         uuid PRIMARY KEY,
    shard      integer NOT NULL,
    namespace  text NOT NULL,
    name       text, -- null: none
    revision   integer NOT NULL,
    state      text NOT NULL,
    spec       text NOT NULL, -- JSON
    payload    text, -- JSON
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE UNIQUE INDEX jobs_name ON belfry.jobs (namespace, name) WHERE name IS NOT NULL AND state <> 'deleted';
CREATE INDEX jobs_list ON belfry.jobs (namespace, id DESC) WHERE state <> 'deleted';
CREATE INDEX jobs_deleted ON belfry.jobs (updated_at) WHERE state = 'deleted';

-- Earlier specs of edited jobs: a run keeps the revision it was fired from.
CREATE TABLE belfry.revisions (
    job_id      uuid NOT NULL,
    revision    integer NOT NULL,
    shard       integer NOT NULL,
    spec        text NOT NULL,
    payload     text,
    replaced_at timestamptz NOT NULL,
    PRIMARY KEY (job_id, revision)
);

-- When each job is next looked at. Narrow, because every firing rewrites it.
CREATE TABLE belfry.plans (
    job_id       uuid PRIMARY KEY,
    shard        integer NOT NULL,
    version      bigint NOT NULL,
    next_at      timestamptz, -- null: not planned
    nominal_at   timestamptz, -- null: no occurrence is left
    fired_for    timestamptz, -- high-water mark
    runs_made    bigint NOT NULL,
    zone_version text NOT NULL,
    CHECK (fired_for IS NULL OR nominal_at IS NULL OR nominal_at > fired_for)
) WITH (fillfactor = 70);
CREATE INDEX plans_due ON belfry.plans (shard, next_at) WHERE next_at IS NOT NULL;

-- Wishes for runs that are not scheduled. A fired one stays for a while, so that
-- repeating the wish after a lost reply does nothing.
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
    fired_at   timestamptz
);
CREATE INDEX triggers_pending ON belfry.triggers (shard, created_at) WHERE fired_at IS NULL;
CREATE INDEX triggers_run ON belfry.triggers (run_id) WHERE fired_at IS NULL;
CREATE INDEX triggers_fired ON belfry.triggers (fired_at) WHERE fired_at IS NOT NULL;

-- Live runs only: this table stays tiny.
CREATE TABLE belfry.runs (
    id           uuid PRIMARY KEY,
    shard        integer NOT NULL,
    namespace    text NOT NULL,
    job_id       uuid NOT NULL,
    revision     integer NOT NULL,
    kind         text NOT NULL,
    lane         text NOT NULL,
    state        text NOT NULL, -- ready, running, retry, waiting
    rank         bigint NOT NULL,
    scheduled_at timestamptz NOT NULL,
    ready_at     timestamptz NOT NULL,
    fired_at     timestamptz NOT NULL,
    fired_by     uuid NOT NULL,
    epoch        bigint NOT NULL,
    timeout_ms   bigint NOT NULL,
    attempt      integer NOT NULL,
    failures     integer NOT NULL,
    lost         integer NOT NULL,
    worker       uuid,
    token        uuid,
    started_at   timestamptz, -- when the current attempt was claimed
    deadline_at  timestamptz,
    payload      text, -- replaces the job's own
    trace        text, -- W3C trace context
    CHECK ((state = 'running') = (worker IS NOT NULL AND token IS NOT NULL AND deadline_at IS NOT NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX runs_ready ON belfry.runs (lane, rank) WHERE state = 'ready';
CREATE INDEX runs_retry ON belfry.runs (ready_at) WHERE state = 'retry';
CREATE INDEX runs_job ON belfry.runs (job_id);

-- Attempts that did not succeed, with late results as evidence.
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

-- Settled runs and skips, a partition a day. The default partition only catches
-- what comes before the day's own was made.
CREATE TABLE belfry.history (
    id            uuid NOT NULL,
    shard         integer NOT NULL,
    namespace     text NOT NULL,
    job_id        uuid NOT NULL,
    revision      integer NOT NULL,
    kind          text NOT NULL,
    state         text NOT NULL, -- succeeded, skipped
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
    skipped_count bigint NOT NULL
) PARTITION BY RANGE (settled_at);
CREATE INDEX history_id ON belfry.history (id);
CREATE INDEX history_job ON belfry.history (job_id, scheduled_at DESC, id DESC);
CREATE TABLE belfry.history_default PARTITION OF belfry.history DEFAULT;

-- Runs out of attempts. They enter history when somebody settles them.
CREATE TABLE belfry.dead (
    id           uuid PRIMARY KEY,
    shard        integer NOT NULL,
    namespace    text NOT NULL,
    job_id       uuid NOT NULL,
    revision     integer NOT NULL,
    kind         text NOT NULL,
    lane         text NOT NULL,
    reason       text NOT NULL,
    scheduled_at timestamptz NOT NULL,
    ready_at     timestamptz NOT NULL,
    fired_at     timestamptz NOT NULL,
    fired_by     uuid NOT NULL,
    epoch        bigint NOT NULL,
    timeout_ms   bigint NOT NULL,
    attempt      integer NOT NULL,
    failures     integer NOT NULL,
    lost         integer NOT NULL,
    started_at   timestamptz,
    died_at      timestamptz NOT NULL,
    payload      text,
    trace        text,
    fingerprint  text NOT NULL -- groups dead letters by what went wrong
);
CREATE INDEX dead_job ON belfry.dead (job_id, scheduled_at DESC, id DESC);
CREATE INDEX dead_fingerprint ON belfry.dead (fingerprint);

-- Who holds which name, and for how long.
CREATE TABLE belfry.leases (
    name       text PRIMARY KEY,
    owner      uuid NOT NULL,
    epoch      bigint NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- One row a worker incarnation.
CREATE TABLE belfry.workers (
    id         uuid PRIMARY KEY,
    node       text NOT NULL,
    slots      integer NOT NULL,
    lanes      text NOT NULL, -- JSON list
    started_at timestamptz NOT NULL,
    last_seen  timestamptz NOT NULL
) WITH (fillfactor = 50);
