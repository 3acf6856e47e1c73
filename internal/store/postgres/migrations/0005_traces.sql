-- The trace contexts of the requests that created jobs and triggered runs, for links.
CREATE TABLE belfry.trace_links (
    id          uuid PRIMARY KEY, -- of the job or the run
    traceparent text NOT NULL,
    created_at  timestamptz NOT NULL
);
CREATE INDEX trace_links_age ON belfry.trace_links (created_at);
