-- The door: tags, what lists are filtered by, the keys of requests, and the keys
-- that templates give to runs.

-- What is asked for in lists stands beside the spec that says the same.
ALTER TABLE jobs ADD COLUMN tags TEXT; -- JSON list, sorted; null: none
ALTER TABLE jobs ADD COLUMN queue TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN type TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN handler TEXT NOT NULL DEFAULT '';
UPDATE jobs SET
    queue = coalesce(json_extract(spec, '$.queue'), ''),
    type = coalesce(json_extract(spec, '$.type'), ''),
    handler = coalesce(json_extract(spec, '$.handler'), '')
WHERE json_valid(spec); -- one that cannot be read must not stop the others
CREATE INDEX jobs_queue ON jobs (namespace, queue, id) WHERE state <> 'deleted';
CREATE INDEX jobs_type ON jobs (namespace, type, id) WHERE state <> 'deleted';
CREATE INDEX jobs_handler ON jobs (namespace, handler, id) WHERE handler <> '' AND state <> 'deleted';
CREATE INDEX jobs_paused ON jobs (namespace, id) WHERE state = 'paused';
CREATE INDEX plans_ended ON plans (job_id) WHERE next_at IS NULL;

-- Idempotency keys of what people asked for, with the answers they got.
CREATE TABLE requests (
    namespace  TEXT NOT NULL,
    key        TEXT NOT NULL,
    hash       BLOB NOT NULL, -- of what was asked for
    answer     BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (namespace, key)
) STRICT;
CREATE INDEX requests_age ON requests (created_at);

-- The idempotency key that a template gave to a run; null: none.
ALTER TABLE runs ADD COLUMN key TEXT;
ALTER TABLE dead ADD COLUMN key TEXT;
ALTER TABLE history ADD COLUMN key TEXT;

-- Runs are looked up and listed within a namespace.
DROP INDEX history_id;
CREATE INDEX history_list ON history (namespace, id, state);
