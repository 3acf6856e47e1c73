-- Where alerts are sent. The spec is JSON.
CREATE TABLE channels (
    namespace   TEXT NOT NULL,
    name        TEXT NOT NULL,
    spec        TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    sent_at     INTEGER,
    failures    INTEGER NOT NULL DEFAULT 0, -- since then
    error       TEXT NOT NULL DEFAULT '',
    next_try_at INTEGER,
    PRIMARY KEY (namespace, name)
) STRICT;

-- What channels are told. The columns repeat parts of the body, which is JSON.
CREATE TABLE alerts (
    id            BLOB NOT NULL PRIMARY KEY,
    namespace     TEXT NOT NULL,
    channel       TEXT NOT NULL,
    key           TEXT NOT NULL, -- the same for what is one alert
    status        TEXT NOT NULL,
    version       INTEGER NOT NULL,
    latest_at     INTEGER NOT NULL,
    body          TEXT NOT NULL,
    send_at       INTEGER, -- null: there is nothing to send
    claimed_until INTEGER,
    sent_at       INTEGER,
    sent_count    INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX alerts_open ON alerts (namespace, channel, key) WHERE status <> 'resolved';
CREATE INDEX alerts_list ON alerts (namespace, id);
CREATE INDEX alerts_recent ON alerts (latest_at);
CREATE INDEX alerts_send ON alerts (send_at) WHERE send_at IS NOT NULL;

-- Jobs whose last attempts failed, until one succeeds.
CREATE TABLE failing (
    job_id    BLOB NOT NULL PRIMARY KEY,
    namespace TEXT NOT NULL,
    since     INTEGER NOT NULL,
    latest_at INTEGER NOT NULL,
    failures  INTEGER NOT NULL,
    run_id    BLOB NOT NULL,
    error     TEXT NOT NULL
) STRICT;
CREATE INDEX failing_list ON failing (namespace, job_id);

-- What did not succeed, or not within a minute: few of all.
CREATE INDEX history_exceptions ON history (settled_at) WHERE state <> 'succeeded' OR settled_at - scheduled_at > 60000000;
CREATE INDEX dead_age ON dead (died_at);
