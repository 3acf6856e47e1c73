-- Free space in the pages of plans made firing no faster, and most plans are fired rarely.
ALTER TABLE belfry.plans RESET (fillfactor);

-- Most jobs are in the default queue, where a list finds them along jobs_list.
DROP INDEX belfry.jobs_queue;
CREATE INDEX jobs_queue ON belfry.jobs (namespace, queue, id) WHERE queue <> 'default' AND state <> 'deleted';
