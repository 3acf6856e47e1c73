-- Where a node listens, and how far the clock of this server is ahead of its own, in
-- microseconds.
ALTER TABLE belfry.nodes ADD COLUMN address text NOT NULL DEFAULT '', ADD COLUMN clock_offset bigint NOT NULL DEFAULT 0;
