-- Who changed what. Rows are inserted by the transactions of the changes, and deleted when they
-- are old; nothing updates them.
CREATE TABLE belfry.audit (
    id         uuid PRIMARY KEY,
    namespace  text NOT NULL, -- empty: of none
    job_id     uuid,
    first_id   uuid, -- of an import: its jobs are from here
    last_id    uuid, -- to here
    actor_id   text NOT NULL,
    actor_name text NOT NULL,
    action     text NOT NULL,
    body       text NOT NULL -- JSON
);
CREATE INDEX audit_list ON belfry.audit (namespace, id);
CREATE INDEX audit_job ON belfry.audit (job_id, id) WHERE job_id IS NOT NULL;
