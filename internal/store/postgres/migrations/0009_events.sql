-- What is noticed more than once is recorded once.
ALTER TABLE belfry.events ADD COLUMN run_id uuid, ADD COLUMN dedup_id uuid UNIQUE;
CREATE INDEX events_job ON belfry.events (job_id, id) WHERE job_id IS NOT NULL;

-- Processes of the cluster, each of which writes its own row.
CREATE TABLE belfry.nodes (
    id         uuid PRIMARY KEY,
    name       text NOT NULL,
    version    text NOT NULL,
    roles      text[] NOT NULL,
    started_at timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL,
    left_at    timestamptz -- null: it has not stopped
);
