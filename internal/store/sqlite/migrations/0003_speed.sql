-- Identifies namespace, revision and spec, so that many plans are loaded without a look
-- at their jobs. Null: the job was not written since this column was added.
ALTER TABLE plans ADD COLUMN digest BLOB;

-- Plans are read shard by shard.
DROP INDEX plans_due;
CREATE INDEX plans_due ON plans (shard, next_at, job_id) WHERE next_at IS NOT NULL;
