-- The trace contexts of the requests that created jobs and triggered runs, for links.
CREATE TABLE trace_links (
    id          BLOB NOT NULL PRIMARY KEY, -- of the job or the run
    traceparent TEXT NOT NULL,
    created_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX trace_links_age ON trace_links (created_at);
