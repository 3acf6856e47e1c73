-- Who changed what. Rows are inserted by the transactions of the changes, and deleted when they
-- are old; nothing updates them.
CREATE TABLE audit (
    id         BLOB PRIMARY KEY,
    namespace  TEXT NOT NULL, -- empty: of none
    job_id     BLOB,
    first_id   BLOB, -- of an import: its jobs are from here
    last_id    BLOB, -- to here
    actor_id   TEXT NOT NULL,
    actor_name TEXT NOT NULL,
    action     TEXT NOT NULL,
    body       TEXT NOT NULL -- JSON
) STRICT;
CREATE INDEX audit_list ON audit (namespace, id);
CREATE INDEX audit_job ON audit (job_id, id) WHERE job_id IS NOT NULL;
