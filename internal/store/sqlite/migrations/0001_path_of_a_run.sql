-- The path of a run. Times are microseconds since 1970 in UTC, ids and tokens
-- are 16 bytes. The tables and columns are those of the PostgreSQL store; the
-- indexes suit one node, which owns all shards.

CREATE TABLE settings (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- What people asked for. A deleted job stays until nothing live needs it.
CREATE TABLE jobs (
    id         BLOB NOT NULL PRIMARY KEY,
    shard      INTEGER NOT NULL,
    namespace  TEXT NOT NULL,
    name       TEXT, -- null: none
    revision   INTEGER NOT NULL,
    state      TEXT NOT NULL,
    spec       TEXT NOT NULL, -- JSON
    payload    TEXT, -- JSON
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX jobs_name ON jobs (namespace, name) WHERE name IS NOT NULL AND state <> 'deleted';
CREATE INDEX jobs_list ON jobs (namespace, id DESC) WHERE state <> 'deleted';
CREATE INDEX jobs_deleted ON jobs (updated_at, id) WHERE state = 'deleted';

-- Earlier specs of edited jobs: a run keeps the revision it was fired from.
CREATE TABLE revisions (
    job_id      BLOB NOT NULL,
    revision    INTEGER NOT NULL,
    shard       INTEGER NOT NULL,
    spec        TEXT NOT NULL,
    payload     TEXT,
    replaced_at INTEGER NOT NULL,
    PRIMARY KEY (job_id, revision)
) STRICT, WITHOUT ROWID;

-- When each job is next looked at. Narrow, because every firing rewrites it.
CREATE TABLE plans (
    job_id       BLOB NOT NULL PRIMARY KEY,
    shard        INTEGER NOT NULL,
    version      INTEGER NOT NULL,
    next_at      INTEGER, -- null: not planned
    nominal_at   INTEGER, -- null: no occurrence is left
    fired_for    INTEGER, -- high-water mark
    runs_made    INTEGER NOT NULL,
    zone_version TEXT NOT NULL,
    CHECK (fired_for IS NULL OR nominal_at IS NULL OR nominal_at > fired_for)
) STRICT, WITHOUT ROWID;
CREATE INDEX plans_due ON plans (next_at, job_id, shard) WHERE next_at IS NOT NULL;

-- Wishes for runs that are not scheduled. A fired one stays for a while, so that
-- repeating the wish after a lost reply does nothing.
CREATE TABLE triggers (
    id         BLOB NOT NULL PRIMARY KEY,
    shard      INTEGER NOT NULL,
    namespace  TEXT NOT NULL,
    job_id     BLOB NOT NULL,
    run_id     BLOB NOT NULL, -- of the run that it becomes
    kind       TEXT NOT NULL,
    at         INTEGER NOT NULL,
    payload    TEXT,
    created_at INTEGER NOT NULL,
    fired_at   INTEGER
) STRICT;
CREATE INDEX triggers_pending ON triggers (created_at, id) WHERE fired_at IS NULL;
CREATE INDEX triggers_run ON triggers (run_id) WHERE fired_at IS NULL;
CREATE INDEX triggers_job ON triggers (job_id) WHERE fired_at IS NULL;
CREATE INDEX triggers_fired ON triggers (fired_at) WHERE fired_at IS NOT NULL;

-- Live runs only: this table stays tiny.
CREATE TABLE runs (
    id           BLOB NOT NULL PRIMARY KEY,
    shard        INTEGER NOT NULL,
    namespace    TEXT NOT NULL,
    job_id       BLOB NOT NULL,
    revision     INTEGER NOT NULL,
    kind         TEXT NOT NULL,
    lane         TEXT NOT NULL,
    state        TEXT NOT NULL, -- ready, running, retry, waiting
    rank         INTEGER NOT NULL,
    scheduled_at INTEGER NOT NULL,
    ready_at     INTEGER NOT NULL,
    fired_at     INTEGER NOT NULL,
    fired_by     BLOB NOT NULL,
    epoch        INTEGER NOT NULL,
    timeout_ms   INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    failures     INTEGER NOT NULL,
    lost         INTEGER NOT NULL,
    worker       BLOB,
    token        BLOB,
    started_at   INTEGER, -- when the current attempt was claimed
    deadline_at  INTEGER,
    payload      TEXT, -- replaces the job's own
    trace        TEXT, -- W3C trace context
    CHECK ((state = 'running') = (worker IS NOT NULL AND token IS NOT NULL AND deadline_at IS NOT NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX runs_ready ON runs (lane, rank, id) WHERE state = 'ready';
CREATE INDEX runs_running ON runs (worker) WHERE state = 'running';
CREATE INDEX runs_retry ON runs (ready_at) WHERE state = 'retry';
CREATE INDEX runs_job ON runs (job_id);

-- Attempts that did not succeed, with late results as evidence.
CREATE TABLE attempts (
    run_id       BLOB NOT NULL,
    attempt      INTEGER NOT NULL,
    shard        INTEGER NOT NULL,
    namespace    TEXT NOT NULL,
    outcome      TEXT NOT NULL,
    worker       BLOB NOT NULL,
    token        BLOB NOT NULL,
    started_at   INTEGER NOT NULL,
    finished_at  INTEGER NOT NULL,
    http_status  INTEGER NOT NULL,
    error        TEXT NOT NULL,
    output       TEXT NOT NULL,
    late_outcome TEXT,
    late_at      INTEGER,
    PRIMARY KEY (run_id, attempt)
) STRICT, WITHOUT ROWID;
CREATE INDEX attempts_age ON attempts (finished_at, run_id, attempt);

-- Settled runs and skips.
CREATE TABLE history (
    id            BLOB NOT NULL,
    shard         INTEGER NOT NULL,
    namespace     TEXT NOT NULL,
    job_id        BLOB NOT NULL,
    revision      INTEGER NOT NULL,
    kind          TEXT NOT NULL,
    state         TEXT NOT NULL, -- succeeded, skipped
    reason        TEXT NOT NULL,
    scheduled_at  INTEGER NOT NULL,
    ready_at      INTEGER NOT NULL,
    fired_at      INTEGER NOT NULL,
    fired_by      BLOB NOT NULL,
    epoch         INTEGER NOT NULL,
    attempt       INTEGER NOT NULL,
    worker        BLOB,
    token         BLOB,
    started_at    INTEGER,
    settled_at    INTEGER NOT NULL,
    http_status   INTEGER NOT NULL,
    error         TEXT NOT NULL,
    output        TEXT NOT NULL,
    skipped_to    INTEGER,
    skipped_count INTEGER NOT NULL
) STRICT;
CREATE INDEX history_id ON history (id);
CREATE INDEX history_job ON history (job_id, scheduled_at DESC, id DESC, state);
CREATE INDEX history_age ON history (settled_at);

-- Runs out of attempts. They enter history when somebody settles them.
CREATE TABLE dead (
    id           BLOB NOT NULL PRIMARY KEY,
    shard        INTEGER NOT NULL,
    namespace    TEXT NOT NULL,
    job_id       BLOB NOT NULL,
    revision     INTEGER NOT NULL,
    kind         TEXT NOT NULL,
    lane         TEXT NOT NULL,
    reason       TEXT NOT NULL,
    scheduled_at INTEGER NOT NULL,
    ready_at     INTEGER NOT NULL,
    fired_at     INTEGER NOT NULL,
    fired_by     BLOB NOT NULL,
    epoch        INTEGER NOT NULL,
    timeout_ms   INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    failures     INTEGER NOT NULL,
    lost         INTEGER NOT NULL,
    started_at   INTEGER,
    died_at      INTEGER NOT NULL,
    payload      TEXT,
    trace        TEXT,
    fingerprint  TEXT NOT NULL -- groups dead letters by what went wrong
) STRICT;
CREATE INDEX dead_job ON dead (job_id, scheduled_at DESC, id DESC);
CREATE INDEX dead_fingerprint ON dead (fingerprint);

-- Who holds which name, and for how long.
CREATE TABLE leases (
    name       TEXT NOT NULL PRIMARY KEY,
    owner      BLOB NOT NULL,
    epoch      INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- One row a worker incarnation.
CREATE TABLE workers (
    id         BLOB NOT NULL PRIMARY KEY,
    node       TEXT NOT NULL,
    slots      INTEGER NOT NULL,
    lanes      TEXT NOT NULL, -- JSON list
    started_at INTEGER NOT NULL,
    last_seen  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
