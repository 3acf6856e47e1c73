-- Where a node listens, and how far the clock of this store is ahead of its own, in
-- microseconds.
ALTER TABLE nodes ADD COLUMN address TEXT NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN clock_offset INTEGER NOT NULL DEFAULT 0;
