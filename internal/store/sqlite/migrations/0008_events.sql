-- What is noticed more than once is recorded once.
ALTER TABLE events ADD COLUMN run_id BLOB;
ALTER TABLE events ADD COLUMN dedup_id BLOB;
CREATE UNIQUE INDEX events_dedup ON events (dedup_id) WHERE dedup_id IS NOT NULL;
CREATE INDEX events_job ON events (job_id, id) WHERE job_id IS NOT NULL;

-- Processes that used the database, each of which writes its own row.
CREATE TABLE nodes (
    id         BLOB PRIMARY KEY,
    name       TEXT NOT NULL,
    version    TEXT NOT NULL,
    roles      TEXT NOT NULL, -- JSON list
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    left_at    INTEGER -- null: it has not stopped
) STRICT, WITHOUT ROWID;
