-- What handlers write to the logs of their attempts, in pieces as it comes. The newest
-- 64 KiB of an attempt are kept, as long as its run.
CREATE TABLE attempt_logs (
    run_id     BLOB NOT NULL,
    attempt    INTEGER NOT NULL,
    start      INTEGER NOT NULL, -- bytes of the log before this piece
    stop       INTEGER NOT NULL, -- and with it
    shard      INTEGER NOT NULL,
    namespace  TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    text       TEXT NOT NULL,
    PRIMARY KEY (run_id, attempt, start)
) STRICT;
CREATE INDEX attempt_logs_age ON attempt_logs (updated_at, run_id, attempt);
