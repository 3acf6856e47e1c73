-- The schema of a Belfry database. SQLite and PostgreSQL have the same tables and
-- columns; their indexes differ, because a SQLite database has one node, which owns
-- all shards.
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
--
-- Here times are microseconds since 1970 in UTC, and ids and tokens are 16 bytes.

CREATE TABLE settings (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The columns tags, queue, type and handler repeat parts of a job so that lists can
-- be filtered by them.
CREATE TABLE jobs (
    id         BLOB NOT NULL PRIMARY KEY,
    shard      INTEGER NOT NULL,
    namespace  TEXT NOT NULL,
    name       TEXT, -- null: none
    revision   INTEGER NOT NULL,
    state      TEXT NOT NULL, -- active, paused, deleted
    spec       TEXT NOT NULL, -- JSON
    payload    TEXT, -- JSON
    tags       TEXT, -- JSON list, sorted; null: none
    queue      TEXT NOT NULL DEFAULT '',
    type       TEXT NOT NULL DEFAULT '',
    handler    TEXT NOT NULL DEFAULT '',
    purge      INTEGER NOT NULL DEFAULT 0, -- of a deleted job: its history is deleted too
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX jobs_name ON jobs (namespace, name) WHERE name IS NOT NULL AND state <> 'deleted';
CREATE INDEX jobs_list ON jobs (namespace, id DESC) WHERE state <> 'deleted';
CREATE INDEX jobs_queue ON jobs (namespace, queue, id) WHERE state <> 'deleted';
CREATE INDEX jobs_type ON jobs (namespace, type, id) WHERE state <> 'deleted';
CREATE INDEX jobs_handler ON jobs (namespace, handler, id) WHERE handler <> '' AND state <> 'deleted';
CREATE INDEX jobs_paused ON jobs (namespace, id) WHERE state = 'paused';
CREATE INDEX jobs_deleted ON jobs (updated_at, id) WHERE state = 'deleted';
CREATE INDEX jobs_purge ON jobs (id) WHERE state = 'deleted' AND purge;

-- A run keeps the revision it was fired from.
CREATE TABLE revisions (
    job_id      BLOB NOT NULL,
    revision    INTEGER NOT NULL,
    shard       INTEGER NOT NULL,
    spec        TEXT NOT NULL,
    payload     TEXT,
    replaced_at INTEGER NOT NULL,
    PRIMARY KEY (job_id, revision)
) STRICT, WITHOUT ROWID;

-- Narrow, because every firing rewrites a row.
CREATE TABLE plans (
    job_id       BLOB NOT NULL PRIMARY KEY,
    shard        INTEGER NOT NULL,
    version      INTEGER NOT NULL,
    next_at      INTEGER, -- null: not planned
    nominal_at   INTEGER, -- null: no occurrence is left
    fired_for    INTEGER, -- high-water mark
    runs_made    INTEGER NOT NULL,
    zone_version TEXT NOT NULL,
    one_off      INTEGER NOT NULL DEFAULT 0, -- the rule is a single instant
    quarantined  TEXT, -- why the job cannot be fired; null: no failure is known
    CHECK (fired_for IS NULL OR nominal_at IS NULL OR nominal_at > fired_for)
) STRICT, WITHOUT ROWID;
CREATE INDEX plans_due ON plans (next_at, job_id, shard) WHERE next_at IS NOT NULL;
CREATE INDEX plans_unplanned ON plans (job_id) WHERE next_at IS NULL;
CREATE INDEX plans_finished ON plans (job_id) WHERE one_off AND next_at IS NULL AND nominal_at IS NULL;

-- A fired trigger is kept for a while, so that repeating a request whose response
-- was lost does nothing.
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
    fired_at   INTEGER -- null: pending
) STRICT;
CREATE INDEX triggers_pending ON triggers (created_at, id) WHERE fired_at IS NULL;
CREATE INDEX triggers_run ON triggers (run_id) WHERE fired_at IS NULL;
CREATE INDEX triggers_job ON triggers (job_id) WHERE fired_at IS NULL;
CREATE INDEX triggers_fired ON triggers (fired_at) WHERE fired_at IS NOT NULL;

CREATE TABLE runs (
    id                  BLOB NOT NULL PRIMARY KEY,
    shard               INTEGER NOT NULL,
    namespace           TEXT NOT NULL,
    job_id              BLOB NOT NULL,
    revision            INTEGER NOT NULL,
    kind                TEXT NOT NULL,
    lane                TEXT NOT NULL, -- queue and handler
    state               TEXT NOT NULL, -- ready, running, retry, waiting
    rank                INTEGER NOT NULL, -- runs are claimed in this order
    weight              INTEGER NOT NULL DEFAULT 0, -- microseconds that its priority adds to its rank
    scheduled_at        INTEGER NOT NULL,
    ready_at            INTEGER NOT NULL,
    fired_at            INTEGER NOT NULL,
    fired_by            BLOB NOT NULL,
    epoch               INTEGER NOT NULL,
    timeout_ms          INTEGER NOT NULL,
    attempt             INTEGER NOT NULL,
    failures            INTEGER NOT NULL,
    lost                INTEGER NOT NULL,
    worker              BLOB,
    token               BLOB,
    started_at          INTEGER, -- when the current attempt was claimed
    deadline_at         INTEGER,
    cancel_requested_at INTEGER, -- when it was cancelled while a worker held it
    payload             TEXT, -- replaces the payload of the job
    key                 TEXT, -- idempotency key from a template; null: none
    one_off             INTEGER NOT NULL DEFAULT 0, -- the last run that a one-off planned
    retention_days      INTEGER, -- null: as long as everything else
    CHECK ((state = 'running') = (worker IS NOT NULL AND token IS NOT NULL AND deadline_at IS NOT NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX runs_ready ON runs (lane, rank, id) WHERE state = 'ready';
CREATE INDEX runs_running ON runs (worker) WHERE state = 'running';
CREATE INDEX runs_retry ON runs (ready_at) WHERE state = 'retry';
CREATE INDEX runs_waiting ON runs (job_id, scheduled_at, id) WHERE state = 'waiting';
CREATE INDEX runs_cancelled ON runs (worker) WHERE cancel_requested_at IS NOT NULL;
CREATE INDEX runs_job ON runs (job_id, state); -- a job may have one run among thousands that is not waiting

-- A late result is kept beside the attempt as evidence.
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

CREATE TABLE history (
    id            BLOB NOT NULL,
    shard         INTEGER NOT NULL,
    namespace     TEXT NOT NULL,
    job_id        BLOB NOT NULL,
    revision      INTEGER NOT NULL,
    kind          TEXT NOT NULL,
    state         TEXT NOT NULL, -- succeeded, skipped, cancelled, discarded
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
    skipped_count INTEGER NOT NULL,
    key           TEXT,
    retain_until  INTEGER -- null: as long as everything else
) STRICT;
CREATE INDEX history_list ON history (namespace, id, state);
CREATE INDEX history_job ON history (job_id, scheduled_at DESC, id DESC, state);
CREATE INDEX history_ranges ON history (job_id, scheduled_at DESC) WHERE skipped_count > 1;
CREATE INDEX history_age ON history (settled_at) WHERE retain_until IS NULL;
CREATE INDEX history_retained ON history (retain_until) WHERE retain_until IS NOT NULL;

-- A dead letter enters history when it is redriven and settles, or is discarded.
CREATE TABLE dead (
    id             BLOB NOT NULL PRIMARY KEY,
    shard          INTEGER NOT NULL,
    namespace      TEXT NOT NULL,
    job_id         BLOB NOT NULL,
    revision       INTEGER NOT NULL,
    kind           TEXT NOT NULL,
    lane           TEXT NOT NULL,
    reason         TEXT NOT NULL,
    weight         INTEGER NOT NULL DEFAULT 0,
    scheduled_at   INTEGER NOT NULL,
    ready_at       INTEGER NOT NULL,
    fired_at       INTEGER NOT NULL,
    fired_by       BLOB NOT NULL,
    epoch          INTEGER NOT NULL,
    timeout_ms     INTEGER NOT NULL,
    attempt        INTEGER NOT NULL,
    failures       INTEGER NOT NULL,
    lost           INTEGER NOT NULL,
    started_at     INTEGER,
    died_at        INTEGER NOT NULL,
    payload        TEXT,
    key            TEXT,
    one_off        INTEGER NOT NULL DEFAULT 0,
    retention_days INTEGER,
    fingerprint    TEXT NOT NULL -- the same for failures of the same kind
) STRICT;
CREATE INDEX dead_list ON dead (namespace, died_at DESC, id DESC);
CREATE INDEX dead_job ON dead (job_id, scheduled_at DESC, id DESC);
CREATE INDEX dead_fingerprint ON dead (fingerprint);

-- Only jobs with a template have rows here.
CREATE TABLE keys (
    job_id       BLOB NOT NULL,
    key          TEXT NOT NULL,
    shard        INTEGER NOT NULL,
    run_id       BLOB NOT NULL, -- the latest run that has it
    created_at   INTEGER NOT NULL,
    succeeded_at INTEGER,
    PRIMARY KEY (job_id, key)
) STRICT;
CREATE INDEX keys_age ON keys (created_at);

CREATE TABLE ended (
    id           BLOB NOT NULL PRIMARY KEY,
    shard        INTEGER NOT NULL,
    namespace    TEXT NOT NULL,
    name         TEXT,
    tags         TEXT,
    revision     INTEGER NOT NULL,
    status       TEXT NOT NULL, -- completed, failed, cancelled
    spec         TEXT NOT NULL,
    payload      TEXT,
    queue        TEXT NOT NULL,
    type         TEXT NOT NULL,
    handler      TEXT,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    last_run_at  INTEGER,
    ended_at     INTEGER NOT NULL,
    retain_until INTEGER
) STRICT;
CREATE INDEX ended_list ON ended (namespace, id);
CREATE INDEX ended_name ON ended (namespace, name, ended_at) WHERE name IS NOT NULL;
CREATE INDEX ended_age ON ended (ended_at) WHERE retain_until IS NULL;
CREATE INDEX ended_retained ON ended (retain_until) WHERE retain_until IS NOT NULL;

CREATE TABLE requests (
    namespace  TEXT NOT NULL,
    key        TEXT NOT NULL,
    hash       BLOB NOT NULL, -- of the request
    response   BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (namespace, key)
) STRICT;
CREATE INDEX requests_age ON requests (created_at);

CREATE TABLE events (
    id        BLOB NOT NULL PRIMARY KEY,
    shard     INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    job_id    BLOB, -- null: not about one job
    kind      TEXT NOT NULL,
    at        INTEGER NOT NULL,
    message   TEXT NOT NULL,
    count     INTEGER NOT NULL
) STRICT;
CREATE INDEX events_list ON events (namespace, id);
CREATE INDEX events_age ON events (at);

CREATE TABLE leases (
    name       TEXT NOT NULL PRIMARY KEY,
    owner      BLOB NOT NULL,
    epoch      INTEGER NOT NULL, -- grows whenever the owner changes
    renewed_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A worker has a new id every time it starts.
CREATE TABLE workers (
    id         BLOB NOT NULL PRIMARY KEY,
    node       TEXT NOT NULL,
    slots      INTEGER NOT NULL,
    lanes      TEXT NOT NULL, -- JSON list
    started_at INTEGER NOT NULL,
    last_seen  INTEGER NOT NULL,
    since      INTEGER NOT NULL, -- since when its heartbeats have come without a gap
    sequence   INTEGER NOT NULL -- of its last heartbeat
) STRICT, WITHOUT ROWID;
