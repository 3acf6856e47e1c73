-- The door: what people look for jobs by, the keys of their requests, and the
-- idempotency keys of runs.

-- What a list of jobs may be filtered by, taken out of spec and name. Nobody wants
-- it sorted by a language, which would make indexes slow.
ALTER TABLE belfry.jobs
    ADD COLUMN tags    text[] COLLATE "C", -- null: none
    ADD COLUMN queue   text COLLATE "C",
    ADD COLUMN type    text COLLATE "C",
    ADD COLUMN handler text COLLATE "C", -- null unless the type is worker
    ADD COLUMN grams   bigint[]; -- every second three letters of the name, in lower case, 21 bits a letter

-- A spec that cannot be read must not stop the others.
CREATE FUNCTION pg_temp.field(spec text, name text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN spec::jsonb ->> name;
EXCEPTION WHEN others THEN
    RETURN NULL;
END $$;
UPDATE belfry.jobs
   SET queue = coalesce(pg_temp.field(spec, 'queue'), 'default'), type = coalesce(pg_temp.field(spec, 'type'), 'http'),
       handler = CASE WHEN pg_temp.field(spec, 'type') = 'worker' THEN pg_temp.field(spec, 'handler') END,
       grams = nullif(ARRAY(SELECT DISTINCT (ascii(substr(n, i, 1))::bigint << 42) | (ascii(substr(n, i + 1, 1))::bigint << 21) | ascii(substr(n, i + 2, 1))
                              FROM lower(name) n, generate_series(1, length(n) - 2, 2) i), '{}');
DROP FUNCTION pg_temp.field(text, text);
ALTER TABLE belfry.jobs ALTER COLUMN queue SET NOT NULL, ALTER COLUMN type SET NOT NULL;

-- All but the last two give their jobs in the order of the list, read backwards:
-- new jobs then come at the end of an index, which halves its size. The last two
-- are for what is rare.
DROP INDEX belfry.jobs_list;
CREATE INDEX jobs_list ON belfry.jobs (namespace, id) WHERE state <> 'deleted';
CREATE INDEX jobs_queue ON belfry.jobs (namespace, queue, id) WHERE state <> 'deleted';
CREATE INDEX jobs_handler ON belfry.jobs (namespace, type, handler, id) WHERE type <> 'http' AND state <> 'deleted';
CREATE INDEX jobs_paused ON belfry.jobs (namespace, id) WHERE state = 'paused';
CREATE INDEX plans_ended ON belfry.plans (job_id) WHERE next_at IS NULL;
CREATE INDEX jobs_tags ON belfry.jobs USING gin (tags) WHERE tags IS NOT NULL AND state <> 'deleted';
CREATE INDEX jobs_search ON belfry.jobs USING gin (grams) WHERE grams IS NOT NULL AND state <> 'deleted';

-- The keys under which something was asked for, with what was answered.
CREATE TABLE belfry.requests (
    namespace  text NOT NULL,
    key        text NOT NULL,
    hash       bytea NOT NULL, -- of what was asked for
    answer     bytea,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (namespace, key)
);
CREATE INDEX requests_age ON belfry.requests (created_at);

-- Null unless the job has a template of keys.
ALTER TABLE belfry.runs ADD COLUMN key text;
ALTER TABLE belfry.dead ADD COLUMN key text;
ALTER TABLE belfry.history ADD COLUMN key text;
