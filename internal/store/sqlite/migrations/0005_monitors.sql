-- Monitors watch work that is done elsewhere.
CREATE TABLE monitors (
    id           BLOB PRIMARY KEY,
    namespace    TEXT NOT NULL,
    name         TEXT NOT NULL,
    token        BLOB NOT NULL UNIQUE,
    spec         TEXT NOT NULL,
    last_ping_at INTEGER,
    started_at   INTEGER,
    failed_at    INTEGER,
    due_at       INTEGER,
    alert_at     INTEGER, -- from when on it is late or failed
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    UNIQUE (namespace, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX monitors_list ON monitors (namespace, id);
CREATE INDEX monitors_alert ON monitors (alert_at) WHERE alert_at IS NOT NULL;
